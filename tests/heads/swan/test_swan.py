"""SWAN: the contract of segmental heads, every segmentation of an output, and the prefixes of its decoder."""

import itertools

import pytest
import torch
from tests.heads.contract import (
    INPUT_SIZE,
    VOCAB_SIZE,
    Neighbours,
    follow,
    random_outputs,
    random_sentences,
)
from tests.heads.reference import token_log_prob
from tests.heads.segmental_contract import SegmentalContract, small_head

from permalign.heads.swan import SwanHead
from permalign.heads.swan import head as swan
from permalign.heads.swan.segment_lstm import SegmentLstm
from permalign.structures import Segment
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID


class SwanContract(SegmentalContract):
    kind = SwanHead

    @staticmethod
    def segment_log_prob(head, cells, cell, before, tokens, smoothing):
        step = head.context(torch.tensor([before], dtype=torch.int64))[0, -1]
        network, total = head.segment, 0.0
        state, memory = (network.from_cells(cell) + network.from_steps(step)).tanh().chunk(2)
        choices = [token for token in range(head.vocab_size) if token not in (PADDING_ID, BEGIN_ID)]
        for size, token in enumerate([*tokens, END_ID]):
            if size == head.max_segment_length:
                break  # stops by itself
            mean = sum(token_log_prob(head, state, choice) for choice in choices) / len(choices)
            total = total + (1 - smoothing) * token_log_prob(head, state, token) + smoothing * mean
            gates = network.from_words(head.context.embeddings.weight[token]) + network.from_states(state)
            take, keep, show, new = gates.chunk(4)
            memory = keep.sigmoid() * memory + take.sigmoid() * new.tanh()
            state = show.sigmoid() * memory.tanh()
        return total


class TestWholePrefix(SwanContract):
    pass


class TestLastToken(SwanContract):
    def head(self, **options):
        return super().head(**{"context": 1, "num_layers": 2} | options)


class TestTwoTokensWithEncoder(SwanContract):
    """Not every cell can start everywhere: the others must have room for the rest."""

    longest = 2
    output_lengths = (6, 2, 7)

    def head(self, **options):
        return super().head(**{"encoder": Neighbours(INPUT_SIZE, 6)} | options)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize(("n", "longest"), [(1, 3), (2, 2), (4, 1)])
def test_decoder_and_likelihood_score_every_output_alike(dtype, tolerance, n, longest):
    head = small_head(SwanHead, dtype=dtype, max_segment_length=longest)
    states, lengths = random_sentences([n])
    states = states.to(dtype)
    total = 0.0
    for m in range(n * longest + 1):
        outputs = torch.tensor(list(itertools.product([1, 4, 5], repeat=m)), dtype=torch.int64)
        copies = states.expand(len(outputs), -1, -1), lengths.expand(len(outputs))
        expected = head.log_likelihood(*copies, outputs, torch.full((len(outputs),), m))
        decoder = head.decoder(*copies)
        for tokens in outputs.T:
            decoder.extend(torch.arange(len(outputs)), tokens)
        torch.testing.assert_close(decoder.scores()[:, END_ID], expected, rtol=tolerance, atol=tolerance)
        total += expected.detach().exp().sum().item()
    assert total == pytest.approx(1, abs=tolerance)  # there are no longer outputs
    assert (decoder.scores()[:, [1, 4, 5]] == -torch.inf).all()


@pytest.mark.parametrize("scale", [1.0, 6.0, 30.0])
def test_mass_is_conserved_along_a_long_prefix(scale):
    head = small_head(SwanHead, scale, torch.float32)
    states, lengths = random_sentences([20])
    (output,), _ = random_outputs([30])
    output = torch.where(output == 6, 4, output)
    scores = follow(head.decoder(states.float(), lengths), output.tolist())
    taken = scores[torch.arange(30), output]
    torch.testing.assert_close(scores[1:].logsumexp(-1), taken, rtol=1e-5, atol=1e-4)


def test_a_token_that_cannot_be_written_has_no_continuation():
    decoder = small_head(SwanHead).decoder(*random_sentences([2]))
    decoder.extend(torch.tensor([0]), torch.tensor([END_ID]))
    assert (decoder.scores() == -torch.inf).all()


def test_large_vocabularies_go_through_the_softmax_in_parts(monkeypatch):
    batch = (*random_sentences([3, 2]), *random_outputs([4, 3]))
    head = small_head(SwanHead, vocab_size=VOCAB_SIZE)
    answers = []
    for max_logits in (2**24, 30):
        monkeypatch.setattr(swan, "MAX_LOGITS", max_logits)
        head.zero_grad()
        value = head.log_likelihood(*batch, smoothing=0.1)
        value.sum().backward()
        answers.append([value, *(parameter.grad for parameter in head.parameters())])
    torch.testing.assert_close(*answers)


@torch.no_grad()
def test_segments_follow_the_order():
    head = small_head(SwanHead, 0.0, input_size=2, hidden_size=1)
    head.segment.from_cells.weight[0, 0] = 1.0  # a positive first feature starts to write, any other stops
    head.segment.from_words.bias.fill_(9.0)
    head.softmax.linear.weight[END_ID] = -20.0
    states = torch.tensor([[[-5.0, 0.0], [5.0, 0.0], [-5.0, 0.0]]]).double()
    pair = torch.tensor([[4, 5]]), torch.tensor([2])
    [segments] = head.segments(states, torch.tensor([3]), *pair, torch.tensor([[2, 0, 1]]))
    assert segments == [Segment((2,), ()), Segment((0,), (0, 1)), Segment((1,), ())]
    [segments] = head.segments(states, torch.tensor([3]), *pair, None)
    assert segments == [Segment((0,), ()), Segment((1,), (0, 1)), Segment((2,), ())]


def test_the_segment_network_is_an_lstm():
    ours, theirs = SegmentLstm(2, 2, 3, 4).double(), torch.nn.LSTMCell(3, 4).double()
    with torch.no_grad():
        for layer, weight in ((ours.from_words, theirs.weight_ih), (ours.from_states, theirs.weight_hh)):
            take, keep, new, show = weight.chunk(4)
            layer.weight.copy_(torch.cat([take, keep, show, new]))
        ours.from_words.bias.zero_()
        theirs.bias_ih.zero_(), theirs.bias_hh.zero_()
    embedded, state, memory = torch.randn(5, 3).double(), *torch.randn(2, 5, 4).double()
    torch.testing.assert_close(
        ours(ours.from_words(embedded), state, memory), theirs(embedded, (state, memory))
    )


def test_segments_have_room_for_a_token():
    with pytest.raises(ValueError, match="max_segment_length is 0"):
        small_head(SwanHead, max_segment_length=0)
