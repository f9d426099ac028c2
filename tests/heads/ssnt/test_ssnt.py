"""SSNT: the contract of heads, its alignments one by one, and the prefixes of its decoder."""

import itertools

import pytest
import torch
from tests.heads.contract import (
    INPUT_SIZE,
    VOCAB_SIZE,
    HeadContract,
    Neighbours,
    follow,
    random_outputs,
    random_sentences,
)
from tests.heads.reference import output_states

from permalign.heads.ssnt import SsntHead
from permalign.structures import Segment
from permalign.structures.brute_force import EnumeratedMonotoneAlignment
from permalign.text.codec import END_ID


def written_out(head, states, lengths, target, target_lengths, smoothing=0.0):
    """Compute log-likelihoods by definition: a softmax for each cell and step, and every alignment."""
    answers = []
    for row, (n, m) in enumerate(zip(lengths.tolist(), target_lengths.tolist(), strict=True)):
        cells = torch.cat([states[row, :n], head.end_cell[None]])
        if head.encoder is not None:
            cells = head.encoder(cells[None], torch.tensor([n + 1]))[0]
        steps = output_states(head.context, target[row, :m].tolist(), cells)
        tokens = [*target[row, :m].tolist(), END_ID]
        emit, write = torch.empty(2, n + 1, m + 1, dtype=states.dtype)
        for i, j in itertools.product(range(n + 1), range(m + 1)):
            hidden = (head.emit_cells(cells[i]) + head.emit_steps(steps[j])).relu()
            emit[i, j] = head.emit(hidden)
            logits = head.word_scores.of_cells(cells[i]) + head.word_scores.of_steps(steps[j])
            words = (
                [1, *range(END_ID + 1, head.vocab_size)] if i < n or head.word_scores.words_at_last else []
            )
            choices = words + ([END_ID] if i == n else [])
            log_probs = torch.full_like(logits, -torch.inf)
            log_probs[choices] = logits[choices].log_softmax(0)
            write[i, j] = (1 - smoothing) * log_probs[tokens[j]]
            write[i, j] += smoothing * log_probs[choices].mean()
        both = torch.tensor([n + 1]), torch.tensor([m + 1])
        answers.append(EnumeratedMonotoneAlignment(emit[None], write[None], *both).log_likelihood())
    return torch.cat(answers)


class MonotoneContract(HeadContract):
    context = "full"
    layers = 1

    def head(self, **options):
        defaults = {"input_size": INPUT_SIZE, "vocab_size": VOCAB_SIZE, "embedding_dim": 3, "hidden_size": 5}
        return SsntHead(**defaults | {"context": self.context, "num_layers": self.layers} | options)

    @torch.no_grad()
    def test_smoothing_interpolates_every_token_with_the_mean_over_tokens(self):
        head = self.build()
        for smoothing in (0.0, 0.3):
            value = head.log_likelihood(*self.batch(), smoothing=smoothing)
            torch.testing.assert_close(value, written_out(head, *self.batch(), smoothing))


class TestWholePrefix(MonotoneContract):
    pass


class TestTwoLayers(MonotoneContract):
    layers = 2


class TestLastToken(MonotoneContract):
    context = 1


class TestLastTwoTokens(MonotoneContract):
    context = 2
    layers = 2


class TestWithEncoder(MonotoneContract):
    def head(self, **options):
        return super().head(**{"encoder": Neighbours(INPUT_SIZE, 6)} | options)


class TestAttention(MonotoneContract):
    def head(self, **options):
        return super().head(
            **{"attention": True, "scaled_attention": True, "encoder": Neighbours(INPUT_SIZE, 6)} | options
        )


class TestInputFeeding(TestAttention):
    def head(self, **options):
        return super().head(**{"input_feeding": True} | options)


class TestInputFeedingInTwoLayers(TestInputFeeding):
    layers = 2


class TestEndCellThatOnlyEnds(MonotoneContract):
    def head(self, **options):
        return super().head(**{"words_at_end_cell": False, "encoder": Neighbours(INPUT_SIZE, 6)} | options)


def small_head(scale=1.0, dtype=torch.float64, **options):
    torch.manual_seed(3)
    defaults = {"input_size": INPUT_SIZE, "vocab_size": 6, "embedding_dim": 3, "hidden_size": 5}
    head = SsntHead(**defaults | options).to(dtype).eval()
    for parameter in head.parameters():
        torch.nn.init.normal_(parameter, std=scale)
    return head


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("n", [1, 2, 4])
def test_decoder_and_likelihood_score_every_output_alike(dtype, tolerance, n):
    head = small_head(dtype=dtype)
    states, lengths = random_sentences([n])
    states = states.to(dtype)
    for m in range(4):
        outputs = torch.tensor(list(itertools.product([1, 4, 5], repeat=m)), dtype=torch.int64)
        count = len(outputs)
        sizes = torch.full((count,), m)
        expected = head.log_likelihood(states.expand(count, -1, -1), lengths.expand(count), outputs, sizes)
        decoder = head.decoder(states.expand(count, -1, -1), lengths.expand(count))
        for tokens in outputs.T:
            decoder.extend(torch.arange(count), tokens)
        torch.testing.assert_close(decoder.scores()[:, END_ID], expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [1.0, 6.0, 30.0])
def test_mass_is_conserved_along_a_long_prefix(scale):
    """However confident the model is, the probability of a prefix is the sum of those of its continuations."""
    head = small_head(scale, torch.float32)
    states, lengths = random_sentences([40])
    (output,), _ = random_outputs([30])
    output = torch.where(output == 6, 4, output)
    scores = follow(head.decoder(states.float(), lengths), output.tolist())
    taken = scores[torch.arange(30), output]
    torch.testing.assert_close(scores[1:].logsumexp(-1), taken, rtol=1e-5, atol=1e-4)


@torch.no_grad()
def test_tokens_whose_sum_over_cells_underflows():
    """Where a cell and a step prefer different tokens, products of exponentials vanish; scores do not."""
    head = small_head(0.5, torch.float32)
    head.word_scores.of_cells.weight.mul_(300)
    states, lengths = random_sentences([3, 2])
    scores = head.decoder(states.float(), lengths).scores()
    exact = head.double().decoder(states, lengths).scores()
    assert exact[:, 4:].min() < -110
    torch.testing.assert_close(scores, exact, check_dtype=False, rtol=1e-5, atol=1e-3)


def test_decoder_with_rows_of_any_sentence_in_any_order():
    head = small_head()
    states, lengths = random_sentences([3, 1, 2])
    decoder = head.decoder(states, lengths)
    decoder.extend(torch.tensor([2, 0, 2, 2]), torch.tensor([4, 5, 5, 1]))
    decoder.extend(torch.tensor([3, 1, 0]), torch.tensor([4, 4, 5]))
    for row, (sentence, output) in enumerate([(2, [1, 4]), (0, [5, 4]), (2, [4, 5])]):
        single = follow(head.decoder(states[[sentence]], lengths[[sentence]]), output)
        torch.testing.assert_close(decoder.scores()[row], single[-1])


def test_a_token_that_cannot_be_written_has_no_continuation():
    head = small_head()
    decoder = head.decoder(*random_sentences([2]))
    decoder.extend(torch.tensor([0]), torch.tensor([END_ID]))
    assert (decoder.scores() == -torch.inf).all()


@torch.no_grad()
def test_segments_leave_out_the_end_and_follow_the_order():
    head = small_head(0.0, input_size=2, hidden_size=1)
    head.emit.weight.fill_(20)  # states with a positive first feature emit, others move on
    head.emit.bias.fill_(-50)
    head.emit_cells.weight.copy_(torch.tensor([[1.0, 0.0]]))
    states = torch.tensor([[[-5.0, 0.0], [5.0, 0.0], [-5.0, 0.0]]]).double()
    lengths, order = torch.tensor([3]), torch.tensor([[2, 0, 1]])
    target, target_lengths = torch.tensor([[4, 5]]), torch.tensor([2])
    [segments] = head.segments(states, lengths, target, target_lengths, order)
    assert segments == [Segment((2, 0), (0, 1)), Segment((1,), ())]
    [segments] = head.segments(states, lengths, target, target_lengths, None)
    assert segments == [Segment((0, 1), (0, 1)), Segment((2,), ())]
    [segments] = head.segments(states[:, :2], lengths - 1, target, target_lengths, order[:, :2])
    assert segments == [Segment((2, 0), (0, 1))]
    [segments] = head.segments(states, lengths, target[:, :0], target_lengths - 2, order)
    assert segments == [Segment((2, 0, 1), ())]


@pytest.mark.parametrize("words_at_end_cell", [True, False])
def test_whether_words_are_written_at_the_end_cell(words_at_end_cell):
    head = small_head(words_at_end_cell=words_at_end_cell)
    (states, lengths), (target, target_lengths) = random_sentences([3, 1]), random_outputs([2, 3])
    posteriors = head.alignment_posteriors(states, lengths, target.clamp(max=5), target_lengths)
    assert bool(posteriors[torch.arange(2), lengths].any()) == words_at_end_cell


@pytest.mark.parametrize(("layers", "between"), [(1, 0.0), (2, 0.5)])
def test_there_is_dropout_between_two_layers_of_an_lstm(layers, between):
    head = SsntHead(
        input_size=2, vocab_size=6, embedding_dim=3, hidden_size=5, num_layers=layers, dropout=0.5
    )
    assert head.context.network.dropout == between


@pytest.mark.parametrize("context", [0, -1, "some", True, 1.5])
@pytest.mark.usefixtures("unchecked")
def test_wrong_contexts_are_named(context):
    with pytest.raises(ValueError, match=r"context is .*'full'.*at least 1"):
        SsntHead(input_size=2, vocab_size=6, embedding_dim=1, hidden_size=1, context=context)


@pytest.mark.parametrize(
    ("options", "message"),
    [({}, "attention is false"), ({"attention": True, "context": 2}, "context must be 'full'")],
)
def test_input_feeding_needs_attention_and_all_preceding_tokens(options, message):
    with pytest.raises(ValueError, match=message):
        MonotoneContract().head(**{"input_feeding": True} | options)


def test_on_a_cpu_output_states_stay_in_single_precision(monkeypatch):
    torch.manual_seed(0)
    head = SsntHead(input_size=INPUT_SIZE, vocab_size=VOCAB_SIZE, embedding_dim=8, hidden_size=8).eval()
    outputs, rows = torch.randint(4, VOCAB_SIZE, (2, 5)), torch.arange(2)

    def states():
        start, cache = head.context.begin(2, outputs.device)
        return head.context(outputs), start, head.context.advance(cache, rows, outputs[:, 0])[0]

    exact = states()
    monkeypatch.setattr("permalign.precision.low_precision_dtype", lambda: torch.bfloat16)
    torch.testing.assert_close(states(), exact, rtol=0, atol=0)
