"""The contract of heads that copy source words: mix it in before the head's own contract."""

import pytest
import torch
from tests.heads.contract import VOCAB_SIZE, WRITABLE, random_outputs, random_sentences

from permalign.heads.copying import CopySource
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID

OWN_WORD = VOCAB_SIZE  # a word that is in no vocabulary


def copy_source(states, lengths, soft):
    """What the words of a batch copy: a word of the vocabulary, one beyond it or nothing, as their states decide."""
    choice = (states[..., 0].detach().double() * 6).long().abs() % 3
    ids = torch.tensor([OWN_WORD, 4, PADDING_ID])[choice]
    inside = torch.arange(states.shape[1]) < lengths[:, None]
    matrix = None
    if soft:
        scores = states[..., 1, None] * states[:, None, :, 2].detach()
        matrix = scores.masked_fill(~inside[:, None], -torch.inf).softmax(2)
    return CopySource.of(ids, lengths, matrix)


class Copying:
    """A head that is given the copies of its states whenever it is called."""

    def __init__(self, head, soft):
        self.head, self.soft = head, soft

    def __getattr__(self, name):
        return getattr(self.head, name)

    def bound(self, states, lengths):
        if states.shape[-1] != self.head.input_size:  # a wrong argument, which the head must name
            return self.head
        return self.head.with_copies(copy_source(states, lengths, self.soft))

    def log_likelihood(self, states, lengths, *rest, **options):
        return self.bound(states, lengths).log_likelihood(states, lengths, *rest, **options)

    def decoder(self, states, lengths):
        return self.bound(states, lengths).decoder(states, lengths)

    def float(self):
        self.head.float()
        return self


class CopyContract:
    """The tests of a head hold when it copies as well; see `copy_source`."""

    writable = (*WRITABLE, OWN_WORD)
    soft = False

    def build(self, training=False, **options):
        copying = Copying(super().build(training, copy_mechanism=True, **options), self.soft)
        torch.manual_seed(8)  # for dropout
        return copying

    def test_the_sentence_of_the_sum_has_words_of_its_own(self):
        assert sorted(copy_source(*random_sentences([3]), soft=False).ids[0].tolist()) == [0, 4, OWN_WORD]

    def test_an_output_with_copied_words_scores_the_same_in_search(self):
        head = self.build()
        states, lengths = random_sentences(self.lengths)
        target, target_lengths = random_outputs(self.output_lengths, writable=[4, OWN_WORD])
        expected = head.log_likelihood(states, lengths, target, target_lengths)
        for row in range(len(lengths)):
            decoder = head.decoder(states[[row]], lengths[[row]])
            possible = True
            for token in target[row, : target_lengths[row]].tolist():
                possible &= token < decoder.scores().shape[1]
                if possible:
                    decoder.extend(torch.tensor([0]), torch.tensor([token]))
            if possible:
                torch.testing.assert_close(decoder.scores()[0, END_ID], expected[row])
            else:
                assert expected[row] == -torch.inf

    def test_words_of_no_vocabulary_can_only_be_copied(self):
        head = self.build()
        states, lengths = random_sentences([3])
        decoder = head.decoder(states, lengths)
        first = decoder.scores()[0, OWN_WORD]
        decoder.extend(torch.tensor([0]), torch.tensor([5]))
        assert first.isfinite() or decoder.scores()[0, OWN_WORD].isfinite()
        nothing = head.head.with_copies(CopySource(torch.tensor([[4, 4, PADDING_ID]])))
        assert nothing.decoder(states, lengths).scores().shape == (1, VOCAB_SIZE)

    def test_gradients_of_weights_are_posteriors_of_copying(self):
        head = self.build().head
        states, lengths = random_sentences([3])
        source = copy_source(states, lengths, self.soft)
        target, target_lengths = torch.tensor([[OWN_WORD, UNKNOWN_ID, 4]]), torch.tensor([3])
        weights = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        bound = head.with_copies(CopySource(source.ids, source.matrix, weights))
        with torch.enable_grad():
            total = bound.log_likelihood(states, lengths, target, target_lengths).sum()
            if total.isfinite():
                (posteriors,) = torch.autograd.grad(total, weights)
                torch.testing.assert_close(posteriors[0, 0], torch.ones(()).double())
                assert posteriors[0, 1] == 0
                assert 0 <= posteriors[0, 2] < 1

    def test_smoothing_interpolates_every_token_with_the_mean_over_tokens(self):
        """Smoothing leaves out what is copied: without copies it is what it is without a copy mechanism."""
        plain = super().build()
        copying = self.build().head
        copying.load_state_dict(plain.state_dict(), strict=False)
        states, lengths, target, target_lengths = self.batch()
        bound = copying.with_copies(CopySource(torch.zeros(states.shape[:2], dtype=torch.int64)))
        for smoothing in (0.0, 0.3):
            expected = plain.log_likelihood(states, lengths, target, target_lengths, smoothing)
            torch.testing.assert_close(
                bound.log_likelihood(states, lengths, target, target_lengths, smoothing), expected
            )

    @pytest.mark.parametrize("special", [PADDING_ID, BEGIN_ID, END_ID, OWN_WORD + 1, -1])
    def test_outputs_hold_ordinary_tokens_only(self, special):
        super().test_outputs_hold_ordinary_tokens_only(special)

    def test_a_head_must_be_given_what_it_copies(self):
        head = self.build().head
        states, lengths = random_sentences([3])
        with pytest.raises(ValueError, match="copies source words, but was not given any"):
            head.decoder(states, lengths)
        with pytest.raises(ValueError, match="built without a copy mechanism"):
            super().build().with_copies(copy_source(states, lengths, self.soft)).decoder(states, lengths)
        with pytest.raises(ValueError, match="states has 1 sentences, but the copies are those of 2"):
            head.with_copies(CopySource(torch.zeros(2, 3, dtype=torch.int64))).decoder(states, lengths)
