"""The contract of every head: subclass `HeadContract` and define `head`."""

import itertools

import pytest
import torch
from tests.structures.contract import seeded
from torch import nn

from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID, UNKNOWN_ID

INPUT_SIZE, VOCAB_SIZE = 4, 7
WRITABLE = [
    token for token in range(VOCAB_SIZE) if token not in (PADDING_ID, BEGIN_ID, END_ID)
]  # the unknown token included


class Neighbours(nn.Module):
    """A stand-in for an encoder: a token sees itself and both neighbours; padding is zero."""

    def __init__(self, input_width, width):
        super().__init__()
        self.hidden_size = width
        self.linear = nn.Linear(3 * input_width, width)

    def forward(self, states, lengths):
        inside = (torch.arange(states.shape[1]) < lengths[:, None])[..., None]
        states = torch.where(inside, states, 0)
        padded = nn.functional.pad(states, (0, 0, 1, 1))
        return self.linear(torch.cat([padded[:, :-2], states, padded[:, 2:]], -1)).tanh() * inside


def random_sentences(lengths, room=None, width=INPUT_SIZE):
    """Random states of sentences, with noise at padding."""
    room = room or max(lengths)
    states = torch.randn(len(lengths), room, width, dtype=torch.float64, generator=seeded(sum(lengths)))
    return states, torch.tensor(lengths)


def random_outputs(lengths, room=None, writable=WRITABLE):
    """Random outputs without BEGIN and END, padded with zeros."""
    target = torch.zeros(len(lengths), max(room or 0, *lengths), dtype=torch.int64)
    for row, length in enumerate(lengths):
        picks = torch.randint(len(writable), (length,), generator=seeded(10 * row + length))
        target[row, :length] = torch.tensor(writable)[picks]
    return target, torch.tensor(lengths)


def follow(decoder, output):
    """Return the scores after every prefix of an output, from a decoder with one row."""
    scores = [decoder.scores()]
    for token in output:
        decoder.extend(torch.tensor([0]), torch.tensor([token]))
        scores.append(decoder.scores())
    return torch.cat(scores)  # (tokens + 1, vocab)


class HeadContract:
    """Subclasses define how to build a head, and output lengths that suit sources of 3, 1 and 5 tokens."""

    lengths = (3, 1, 5)
    output_lengths = (2, 4, 0)
    writes_end = True
    writable = tuple(WRITABLE)

    def head(self, dropout=0.0, **options):
        raise NotImplementedError

    def build(self, training=False, **options):
        torch.manual_seed(7)
        head = self.head(**options).double().train(training)
        for parameter in head.parameters():  # large enough for wrong sums to be noticed
            nn.init.normal_(parameter, std=0.7)
        return head

    def batch(self, room=None, output_room=None):
        outputs = random_outputs(self.output_lengths, output_room)
        return (*random_sentences(self.lengths, room), *outputs)

    def test_the_score_of_the_end_is_the_log_likelihood(self):
        head = self.build()
        states, lengths, target, target_lengths = self.batch()
        expected = head.log_likelihood(states, lengths, target, target_lengths)
        assert expected.isfinite().all()
        for row in range(len(lengths)):
            decoder = head.decoder(states[[row]], lengths[[row]])
            scores = follow(decoder, target[row, : target_lengths[row]].tolist())
            torch.testing.assert_close(scores[-1, END_ID], expected[row])

    def test_rows_of_a_beam_do_not_disturb_each_other(self):
        head = self.build()
        states, lengths, _, _ = self.batch()
        beam = head.decoder(states, lengths)
        history = [[row, []] for row in range(len(lengths))]
        steps = [([2, 0, 0, 2, 1], [4, 5, 6, 1, 4]), ([3, 0, 1, 2, 0], [5, 5, 6, 4, 6]), ([4, 1], [1, 6])]
        for rows, tokens in steps:
            beam.extend(torch.tensor(rows), torch.tensor(tokens))
            history = [
                [history[row][0], [*history[row][1], token]] for row, token in zip(rows, tokens, strict=True)
            ]
            for scores, (sentence, output) in zip(beam.scores(), history, strict=True):
                single = follow(head.decoder(states[[sentence]], lengths[[sentence]]), output)[-1]
                torch.testing.assert_close(scores[: len(single)], single)
                assert (scores[len(single) :] == -torch.inf).all()  # unknown words of other sentences

    def test_prefixes_only_lose_probability_to_their_continuations(self):
        head = self.build()
        states, lengths = random_sentences([3])
        scores = follow(head.decoder(states, lengths), [4, UNKNOWN_ID, 6])
        assert (scores[:, [PADDING_ID, BEGIN_ID]] == -torch.inf).all()
        taken = torch.stack([torch.zeros(()).double(), scores[0, 4], scores[1, UNKNOWN_ID], scores[2, 6]])
        torch.testing.assert_close(scores.logsumexp(-1), taken)

    def test_probabilities_of_all_outputs_sum_to_one(self):
        head = self.build()
        states, lengths = random_sentences([3])
        longest = 3
        outputs = [
            list(tokens) for m in range(longest + 1) for tokens in itertools.product(self.writable, repeat=m)
        ]
        if not self.writes_end:
            outputs = [output for output in outputs if len(output) == longest]
        target = torch.tensor([output + [0] * (longest - len(output)) for output in outputs])
        count = len(outputs)
        finished = head.log_likelihood(
            states.expand(count, -1, -1), lengths.expand(count), target, torch.tensor([*map(len, outputs)])
        )
        decoder = head.decoder(states, lengths)
        for step in range(longest):
            rows = torch.arange(len(self.writable) ** step).repeat_interleave(len(self.writable))
            decoder.extend(rows, torch.tensor(self.writable).repeat(len(self.writable) ** step))
        longer = decoder.scores()[:, self.writable]
        torch.testing.assert_close(finished.exp().sum() + longer.exp().sum(), torch.ones(()).double())

    def test_padding_and_other_sentences_change_nothing(self):
        head = self.build()
        states, lengths, target, target_lengths = self.batch()
        batched = head.log_likelihood(states, lengths, target, target_lengths, smoothing=0.1)
        padded = self.batch(room=9, output_room=11)
        padded[0][:, : states.shape[1]] = states
        torch.testing.assert_close(head.log_likelihood(*padded, smoothing=0.1), batched)
        for row, (n, m) in enumerate(zip(self.lengths, self.output_lengths, strict=True)):
            single = head.log_likelihood(
                states[[row], :n],
                lengths[[row]],
                target[[row], :m],
                target_lengths[[row]],
                smoothing=0.1,
            )
            torch.testing.assert_close(single, batched[[row]])
        scores = head.decoder(states, lengths).scores()
        torch.testing.assert_close(head.decoder(*padded[:2]).scores(), scores)

    def test_smoothing_interpolates_every_token_with_the_mean_over_tokens(self):
        head = self.build()
        states, lengths, target, target_lengths = self.batch()
        smoothed = head.log_likelihood(states, lengths, target, target_lengths, smoothing=0.3)
        choices = [*WRITABLE, END_ID] if self.writes_end else WRITABLE
        for row in range(len(lengths)):
            output = target[row, : target_lengths[row]].tolist()
            log_probs = follow(head.decoder(states[[row]], lengths[[row]]), output).log_softmax(-1)
            written = [*output, END_ID] if self.writes_end else output
            expected = sum(
                0.7 * log_probs[step, token] + 0.3 * log_probs[step, choices].mean()
                for step, token in enumerate(written)
            )
            torch.testing.assert_close(smoothed[row], expected)

    @pytest.mark.parametrize("smoothing", [0.0, 0.1])
    def test_gradients_reach_states_and_every_parameter(self, smoothing):
        head = self.build(training=True, dropout=0.1)
        states, lengths, target, target_lengths = self.batch()
        states.requires_grad_()
        head.log_likelihood(states, lengths, target, target_lengths, smoothing).sum().backward()
        for name, parameter in head.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.isfinite().all(), name
            assert parameter.grad.abs().sum() > 0, name
        touched = states.grad.abs().sum(-1) > 0
        assert (touched == (torch.arange(states.shape[1]) < lengths[:, None])).all()

    def test_dropout_is_for_training_only(self):
        head = self.build(training=True, dropout=0.5)
        batch = self.batch()
        assert not torch.equal(head.log_likelihood(*batch), head.log_likelihood(*batch))
        head.eval()
        assert torch.equal(head.log_likelihood(*batch), head.log_likelihood(*batch))

    def test_long_sentences_and_large_scores(self):
        head = self.build().float()
        states, lengths = random_sentences([200])
        target, target_lengths = random_outputs([200])
        value = head.log_likelihood(30 * states.float(), lengths, target, target_lengths)
        value.sum().backward()
        assert value.isfinite().all()
        assert all(parameter.grad.isfinite().all() for parameter in head.parameters())

    @pytest.mark.parametrize("special", [PADDING_ID, BEGIN_ID, END_ID, VOCAB_SIZE, -1])
    def test_outputs_hold_ordinary_tokens_only(self, special):
        states, lengths, target, target_lengths = self.batch()
        target[0, 1] = special
        with pytest.raises(
            ValueError, match=rf"target\[0, 1\] is {special}.*Leave begin and end to the head"
        ):
            self.build().log_likelihood(states, lengths, target, target_lengths)

    def test_wrong_arguments_are_named(self):
        head = self.build()
        states, lengths, target, target_lengths = self.batch()
        with pytest.raises(ValueError, match=r"states has shape \(3, 5, 3\).*\(batch, n, 4\)"):
            head.decoder(states[..., :3], lengths)
        with pytest.raises(ValueError, match="lengths goes down to 0"):
            head.decoder(states, torch.zeros_like(lengths))
        with pytest.raises(ValueError, match="smoothing is 1"):
            head.log_likelihood(states, lengths, target, target_lengths, smoothing=1.0)
        with pytest.raises(ValueError, match="target_lengths goes up to 9"):
            head.log_likelihood(states, lengths, target, target_lengths.clamp(min=9))

    def test_wrong_options_are_named(self):
        for option, value in {"vocab_size": 4, "dropout": 1.0, "input_size": 0}.items():
            with pytest.raises(ValueError, match=f"{option} is {value}"):
                self.head(**{option: value})
        with pytest.raises(ValueError, match="encoder Linear must give the size"):
            self.head(encoder=nn.Linear(3, 3))
