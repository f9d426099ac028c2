"""The contract of heads that write segments, on top of that of all heads."""

import itertools

import pytest
import torch
from tests.heads.contract import INPUT_SIZE, VOCAB_SIZE, HeadContract, random_outputs


class SegmentalContract(HeadContract):
    """Likelihoods are sums over all segmentations of an output; subclasses define how probable one segment is.

    Attributes:
        kind: the class of the head.
        longest: its max_segment_length.
    """

    kind: type
    longest = 4

    def head(self, **options):
        defaults = {"input_size": INPUT_SIZE, "vocab_size": VOCAB_SIZE, "embedding_dim": 3, "hidden_size": 5}
        return self.kind(**defaults | {"max_segment_length": self.longest} | options)

    @staticmethod
    def segment_log_prob(head, cells, cell, before, tokens, smoothing):
        """Return the log-probability of one segment of a cell, given all cells and the tokens ``before`` it."""
        raise NotImplementedError

    def written_out(self, head, states, lengths, target, target_lengths, smoothing):
        """Compute log-likelihoods by definition, from every segmentation of each output."""
        answers = []
        for row, (n, m) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True)):
            cells, tokens = states[[row], :n], target[row, :m].tolist()
            cells = cells[0] if head.encoder is None else head.encoder(cells, lengths[[row]])[0]
            segmentations = []
            for sizes in itertools.product(range(head.max_segment_length + 1), repeat=n):
                if sum(sizes) == m:
                    cuts = itertools.pairwise(itertools.accumulate(sizes, initial=0))
                    segmentations.append(
                        sum(
                            self.segment_log_prob(
                                head, cells, cell, tokens[:start], tokens[start:end], smoothing
                            )
                            for cell, (start, end) in zip(cells, cuts, strict=True)
                        )
                    )
            answers.append(torch.stack(segmentations).logsumexp(0))
        return torch.stack(answers)

    @torch.no_grad()
    def test_smoothing_interpolates_every_token_with_the_mean_over_tokens(self):
        head = self.build()
        for smoothing in (0.0, 0.3):
            value = head.log_likelihood(*self.batch(), smoothing=smoothing)
            torch.testing.assert_close(value, self.written_out(head, *self.batch(), smoothing))

    def test_wrong_arguments_are_named(self):
        super().test_wrong_arguments_are_named()
        states, lengths, _, _ = self.batch()
        message = (
            rf"target_lengths\[1\] is 9, but 1 source .* {self.longest} tokens write .*max_segment_length=9"
        )
        with pytest.raises(ValueError, match=message):
            self.build().log_likelihood(states, lengths, *random_outputs((1, 9, 1)))


def small_head(kind, scale=1.0, dtype=torch.float64, **options):
    """Build a small head over six token ids, with weights drawn at a given scale."""
    torch.manual_seed(3)
    defaults = {
        "input_size": INPUT_SIZE,
        "vocab_size": 6,
        "embedding_dim": 3,
        "hidden_size": 5,
        "max_segment_length": 2,
    }
    head = kind(**defaults | options).to(dtype).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return head
