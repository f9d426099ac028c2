"""Segments: the contract of segmental heads, every segmentation of an output, and sums over all orders."""

import itertools

import pytest
import torch
from tests.heads.contract import (
    INPUT_SIZE,
    Neighbours,
    follow,
    random_outputs,
    random_sentences,
)
from tests.heads.reference import output_states
from tests.heads.segmental_contract import SegmentalContract, small_head
from tests.structures.contract import seeded

from permalign import SeparablePermutation
from permalign.errors import UsageError
from permalign.heads.segments import SegmentsHead
from permalign.heads.ssnt import SsntHead
from permalign.kernels.layout import split_count
from permalign.structures import Segment
from permalign.structures.brute_force import EnumeratedPhrasePermutation, all_trees
from permalign.text.codec import BEGIN_ID, END_ID, PADDING_ID


class SegmentsContract(SegmentalContract):
    kind = SegmentsHead

    @staticmethod
    def segment_log_prob(head, cells, cell, before, tokens, smoothing):
        scores, total = head.word_scores, 0.0
        history = before if scores.history == "output" else []
        for size, token in enumerate([*tokens, END_ID]):
            if size == head.max_segment_length:
                break  # stops by itself
            state = output_states(scores.context, [*history, *tokens[:size]], cells)[-1]
            logits = scores.of_cells(cell) + scores.of_steps(state)
            logits = logits.index_fill(0, torch.tensor([PADDING_ID, BEGIN_ID]), -torch.inf)
            log_probs = logits.log_softmax(-1)
            mean = log_probs[log_probs.isfinite()].mean()
            total = total + (1 - smoothing) * log_probs[token] + smoothing * mean
        return total


class TestWholeSegment(SegmentsContract):
    pass


class TestLastToken(SegmentsContract):
    def head(self, **options):
        return super().head(**{"context": 1, "num_layers": 2} | options)


class TestWholeOutput(SegmentsContract):
    def head(self, **options):
        return super().head(**{"history": "output"} | options)


class TestLastTwoTokensOfOutput(SegmentsContract):
    longest = 3
    output_lengths = (6, 2, 7)

    def head(self, **options):
        return super().head(**{"history": "output", "context": 2} | options)


class TestAttention(SegmentsContract):
    def head(self, **options):
        return super().head(**{"attention": True, "encoder": Neighbours(INPUT_SIZE, 6)} | options)


class TestAttentionAfterWholeOutput(SegmentsContract):
    def head(self, **options):
        return super().head(**{"attention": True, "scaled_attention": True, "history": "output"} | options)


class TestInputFeeding(TestAttentionAfterWholeOutput):
    def head(self, **options):
        return super().head(**{"input_feeding": True} | options)


class TestTwoTokensWithEncoder(SegmentsContract):
    """Not every cell can start everywhere: the others must have room for the rest."""

    longest = 2
    output_lengths = (6, 2, 7)

    def head(self, **options):
        return super().head(**{"encoder": Neighbours(INPUT_SIZE, 6), "context": 2} | options)


def orders_of(n, batch=1, normal_form=False):
    scores = torch.randn(batch, split_count(n), 2, dtype=torch.float64, generator=seeded(n))
    return SeparablePermutation(scores, normal_form=normal_form)


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("history", ["segment", "output"])
@pytest.mark.parametrize("context", [1, "full"])
@pytest.mark.parametrize(("n", "longest"), [(1, 3), (2, 2), (4, 1)])
@torch.no_grad()
def test_decoder_and_likelihood_agree_and_all_outputs_sum_to_one(n, longest, context, history, attention):
    options = {"context": context, "history": history, "attention": attention}
    head = small_head(SegmentsHead, max_segment_length=longest, **options)
    states, lengths = random_sentences([n])
    totals = torch.zeros(2, dtype=torch.float64)  # in the order given, and over all orders
    for m in range(n * longest + 1):
        outputs = torch.tensor(list(itertools.product([1, 4, 5], repeat=m)), dtype=torch.int64)
        count = len(outputs)
        copies = states.expand(count, -1, -1), lengths.expand(count)
        pairs = (*copies, outputs, torch.full((count,), m))
        expected = head.log_likelihood(*pairs)
        decoder = head.decoder(*copies)
        for tokens in outputs.T:
            decoder.extend(torch.arange(count), tokens)
        torch.testing.assert_close(decoder.scores()[:, END_ID], expected)
        over_orders = head.log_likelihood_over_orders(orders_of(n).expand((count,)), *pairs)
        totals += torch.stack([expected.exp().sum(), over_orders.exp().sum()])
    torch.testing.assert_close(totals, torch.ones_like(totals))  # there are no longer outputs
    assert (decoder.scores()[:, [1, 4, 5]] == -torch.inf).all()


@pytest.mark.parametrize("attention", [False, True])
@pytest.mark.parametrize("history", ["segment", "output"])
@pytest.mark.parametrize("normal_form", [False, True])
@torch.no_grad()
def test_sums_over_orders_are_mixtures_of_sums_in_each_order(normal_form, history, attention):
    head, n = small_head(SegmentsHead, history=history, attention=attention), 4
    states, lengths = random_sentences([n])
    pair = torch.tensor([[4, 1, 5]]), torch.tensor([3])
    distribution = orders_of(n, normal_form=normal_form)
    orders = {tree.order for tree in all_trees(0, n)}
    mixture = [
        distribution.log_prob(torch.tensor([order]))
        + head.log_likelihood(states[:, list(order)], lengths, *pair)
        for order in orders
    ]
    expected = torch.stack(mixture).logsumexp(0)
    torch.testing.assert_close(
        head.log_likelihood_over_orders(distribution, states, lengths, *pair), expected
    )
    (best,) = head.derivations_over_orders(distribution, states, lengths, *pair)
    assert best.log_prob <= expected.item()
    assert sorted(token for segment in best.segments for token in segment.source) == list(range(n))
    assert [token for segment in best.segments for token in segment.target] == [0, 1, 2]


@pytest.mark.parametrize("max_phrase_length", [2, 3])
@pytest.mark.parametrize("normal_form", [False, True])
@torch.no_grad()
def test_sums_over_orders_with_phrases_equal_brute_force(normal_form, max_phrase_length):
    """Leaves are computed by hand: tokens as they are, phrases by the convolution of their length."""
    head, n = small_head(SegmentsHead, max_phrase_length=max_phrase_length), 3
    states, lengths = random_sentences([n])
    output = [4, 1, 5]
    pair = torch.tensor([output]), torch.tensor([3])
    distribution = orders_of(n, normal_form=normal_form)
    cells = [states[0, token] for token in range(n)]
    for convolution in head.phrases.reading:
        length = convolution.kernel_size[0]
        cells += [
            (
                torch.einsum("ocw,wc->o", convolution.weight, states[0, start : start + length])
                + convolution.bias
            ).tanh()
            for start in range(n - length + 1)
        ]
    segments = torch.full((1, len(cells), 4, head.max_segment_length + 1), -torch.inf, dtype=torch.float64)
    for leaf, cell in enumerate(cells):
        for start in range(4):
            for size in range(min(head.max_segment_length, 3 - start) + 1):
                tokens = output[start : start + size]
                segments[0, leaf, start, size] = SegmentsContract.segment_log_prob(
                    head, cells, cell, output[:start], tokens, 0.0
                )
    scores = torch.stack([head.phrases.weighing(cell)[0] for cell in cells[n:]])[None]
    enumerated = EnumeratedPhrasePermutation(
        distribution.scores, segments, scores, lengths, pair[1], max_phrase_length, normal_form
    )
    found = head.log_likelihood_over_orders(distribution, states, lengths, *pair)
    torch.testing.assert_close(found, enumerated.log_likelihood())
    (best,), (other,) = (
        head.derivations_over_orders(distribution, states, lengths, *pair),
        enumerated.best_derivation(),
    )
    assert [(segment.source, segment.target) for segment in best.segments] == other.segments
    assert best.log_prob == pytest.approx(other.log_prob)


@pytest.mark.parametrize(("n", "longest"), [(1, 2), (2, 2), (4, 1)])
@torch.no_grad()
def test_outputs_of_tokens_and_phrases_sum_to_one(n, longest):
    head = small_head(SegmentsHead, max_segment_length=longest, max_phrase_length=3)
    states, lengths = random_sentences([n])
    total = torch.zeros((), dtype=torch.float64)
    for m in range(n * longest + 1):
        outputs = torch.tensor(list(itertools.product([1, 4, 5], repeat=m)), dtype=torch.int64)
        count = len(outputs)
        pairs = (states.expand(count, -1, -1), lengths.expand(count), outputs, torch.full((count,), m))
        total += head.log_likelihood_over_orders(orders_of(n).expand((count,)), *pairs).exp().sum()
    torch.testing.assert_close(total, torch.ones_like(total))


@torch.no_grad()
def test_in_one_order_tokens_write_by_themselves():
    head, plain = (
        small_head(SegmentsHead, max_phrase_length=2),
        small_head(SegmentsHead),
    )
    plain.load_state_dict(head.state_dict(), strict=False)
    pair = (*random_sentences([3]), torch.tensor([[4, 1, 5]]), torch.tensor([3]))
    torch.testing.assert_close(head.log_likelihood(*pair), plain.log_likelihood(*pair))


@torch.no_grad()
def test_trees_with_phrases_before_any_output():
    """The first tree is the best, the others differ, and their leaves are read as cells."""
    head, (states, lengths) = small_head(SegmentsHead, max_phrase_length=2), random_sentences([5, 2])
    distribution = orders_of(5, batch=2)
    distribution = SeparablePermutation(distribution.scores, lengths)
    ranked = head.phrase_derivations(distribution, states, lengths, 4)
    assert [len(trees) for trees in ranked] == [4, 3]  # two tokens: straight, inverted, a phrase
    assert all(len({tree.leaves for tree in trees}) == len(trees) for trees in ranked)
    for trees in ranked:
        assert trees[0].log_prob == max(tree.log_prob for tree in trees)
    again = head.phrase_derivations(distribution, states, lengths, 4)
    assert again == ranked
    for count in (1, 2):
        fewer = head.phrase_derivations(distribution, states, lengths, count)
        assert [len(trees) for trees in fewer] == [count, count]
        assert [trees[0] for trees in fewer] == [trees[0] for trees in ranked]
    read, leaves = head.leaf_states(states, [trees[0] for trees in ranked])
    phrases, _ = head.phrases(states)
    for row, trees in enumerate(ranked):
        assert leaves[row] == len(trees[0].leaves)
        for position, (start, end) in enumerate(trees[0].leaves):
            cell = states[row, start] if end - start == 1 else phrases[row, start]
            torch.testing.assert_close(read[row, position], cell)
    assert small_head(SegmentsHead).phrase_derivations(distribution, states, lengths, 4) is None


@pytest.mark.parametrize("scale", [1.0, 6.0, 30.0])
def test_mass_is_conserved_along_a_long_prefix(scale):
    head = small_head(SegmentsHead, scale, torch.float32)
    states, lengths = random_sentences([20])
    (output,), _ = random_outputs([30])
    output = torch.where(output == 6, 4, output)
    scores = follow(head.decoder(states.float(), lengths), output.tolist())
    taken = scores[torch.arange(30), output]
    torch.testing.assert_close(scores[1:].logsumexp(-1), taken, rtol=1e-5, atol=1e-4)


def test_a_token_that_cannot_be_written_has_no_continuation():
    decoder = small_head(SegmentsHead).decoder(*random_sentences([2]))
    decoder.extend(torch.tensor([0]), torch.tensor([END_ID]))
    assert (decoder.scores() == -torch.inf).all()


@torch.no_grad()
def test_segments_follow_the_order():
    head = small_head(SegmentsHead, 0.0, input_size=1)
    head.word_scores.of_cells.weight[END_ID] = -20.0  # a positive state writes on, a negative one stops
    states = torch.tensor([[[-1.0], [1.0], [-1.0]]]).double()
    pair = torch.tensor([[4, 5]]), torch.tensor([2])
    [segments] = head.segments(states, torch.tensor([3]), *pair, torch.tensor([[2, 0, 1]]))
    assert segments == [Segment((2,), ()), Segment((0,), (0, 1)), Segment((1,), ())]
    [segments] = head.segments(states, torch.tensor([3]), *pair, None)
    assert segments == [Segment((0,), ()), Segment((1,), (0, 1)), Segment((2,), ())]


def test_heads_that_read_the_whole_sentence_have_no_sum_over_orders():
    head = SsntHead(input_size=INPUT_SIZE, vocab_size=6, embedding_dim=3, hidden_size=5)
    states, lengths = random_sentences([2])
    pair = (states.float(), lengths, torch.tensor([[4]]), torch.tensor([1]))
    with pytest.raises(ValueError, match="SsntHead reads the whole reordered sentence"):
        head.log_likelihood_over_orders(orders_of(2), *pair)
    assert head.derivations_over_orders(orders_of(2), *pair) is None


def test_the_words_of_a_token_are_the_outputs_of_a_sentence_of_one_token():
    head = small_head(SegmentsHead, max_segment_length=1)
    states, lengths = random_sentences([3, 2])
    log_probs = head.word_log_probs(states, lengths)
    for sentence, length in enumerate(lengths.tolist()):
        for token in range(length):
            alone = states[sentence, token].expand(1, 1, -1), torch.tensor([1])
            for word in (4, 5):
                written = head.log_likelihood(*alone, torch.tensor([[word]]), torch.tensor([1]))
                torch.testing.assert_close(log_probs[sentence, token, word], written[0])
            nothing = head.log_likelihood(*alone, torch.zeros(1, 1, dtype=torch.int64), torch.tensor([0]))
            torch.testing.assert_close(log_probs[sentence, token, END_ID], nothing[0])
            assert (log_probs[sentence, token, [PADDING_ID, BEGIN_ID]] == -torch.inf).all()


@pytest.mark.parametrize(
    "options",
    [{"max_segment_length": 2}, {"history": "output"}, {"max_phrase_length": 2}, {"copy_mechanism": True}],
)
def test_only_words_that_are_written_by_themselves_have_probabilities(options):
    head = small_head(SegmentsHead, **{"max_segment_length": 1} | options)
    with pytest.raises(UsageError, match="every source token writes at most one word by itself"):
        head.word_log_probs(*random_sentences([2]))


def test_an_encoder_and_phrases_exclude_each_other():
    with pytest.raises(ValueError, match="max_phrase_length is 2, but the head has an encoder"):
        small_head(SegmentsHead, encoder=torch.nn.Identity(), max_phrase_length=2)


def test_attention_and_phrases_exclude_each_other():
    with pytest.raises(ValueError, match="max_phrase_length is 2, but the head has attention"):
        small_head(SegmentsHead, attention=True, max_phrase_length=2)


@pytest.mark.parametrize("longest", [1, 2, 9])
@pytest.mark.parametrize(
    ("words", "outputs", "labels"), [(1, 2, 1), (2, 0, 1), (3, 2, 1), (4, 3, 2), (5, 1, 3), (4, 5, 1)]
)
def test_the_cost_of_a_sum_over_orders_counts_pairs_of_children(words, outputs, labels, longest):
    def is_possible(width, size):
        return size <= width * longest and outputs - size <= (words - width) * longest

    splits = [
        (i, j, k, p, r, q)
        for i, j, k in itertools.combinations(range(words + 1), 3)  # start, split and end
        for p, r, q in itertools.combinations_with_replacement(range(outputs + 1), 3)
        if is_possible(k - i, q - p) and is_possible(j - i, r - p) and is_possible(k - j, q - r)
    ]
    cells = [
        (i, k, p, q)
        for i, k in itertools.combinations(range(words + 1), 2)
        for p, q in itertools.combinations_with_replacement(range(outputs + 1), 2)
        if is_possible(k - i, q - p)
    ]
    head = small_head(SegmentsHead, max_segment_length=longest)
    pairs = len(splits) * labels**2 + len(cells) * labels**3
    assert head.cost_over_orders(words, outputs, labels) == 2 * pairs  # straight and inverted


def test_input_feeding_needs_the_history_of_the_whole_output():
    with pytest.raises(ValueError, match="history must be 'output'"):
        TestAttention().head(history="segment", input_feeding=True)


@pytest.mark.parametrize("options", [{}, {"attention": True}, {"attention": True, "input_feeding": True}])
@torch.no_grad()
def test_segments_do_not_depend_on_the_order_of_the_cells(options):
    head = TestWholeOutput().build(**options)
    states, lengths = random_sentences([4, 4])
    target, target_lengths = random_outputs([5, 3])
    order = torch.tensor([2, 0, 3, 1])
    expected = head.segment_log_probs(states, lengths, target, target_lengths)[:, order]
    found = head.segment_log_probs(states[:, order], lengths, target, target_lengths)
    torch.testing.assert_close(found, expected)
