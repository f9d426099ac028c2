"""Copying: the contract of every head that does, probabilities by definition, and sums over all orders."""

import itertools

import pytest
import torch
from tests.heads import test_attention, test_tagging
from tests.heads.contract import INPUT_SIZE, VOCAB_SIZE, random_sentences
from tests.heads.copy_contract import OWN_WORD, CopyContract, copy_source
from tests.heads.segments import test_segments
from tests.heads.ssnt import test_ssnt
from tests.heads.swan import test_swan
from tests.structures.contract import seeded

from permalign import SeparablePermutation
from permalign.heads.copying import CopySource
from permalign.heads.segments import SegmentsHead
from permalign.heads.tagging import TaggingHead
from permalign.kernels.layout import split_count
from permalign.reorderers.discrete_order import take_order
from permalign.structures.brute_force import EnumeratedMonotoneAlignment
from permalign.text.codec import END_ID, PADDING_ID


class TestSsnt(CopyContract, test_ssnt.TestLastTwoTokens):
    pass


class TestSsntWithMixtures(CopyContract, test_ssnt.TestWithEncoder):
    soft = True


class TestSsntWhoseEndCellOnlyEnds(CopyContract, test_ssnt.TestEndCellThatOnlyEnds):
    pass


class TestSwanWithMixtures(CopyContract, test_swan.TestWholePrefix):
    soft = True


class TestSegments(CopyContract, test_segments.TestWholeSegment):
    pass


class TestSegmentsWithMixtures(CopyContract, test_segments.TestLastTwoTokensOfOutput):
    soft = True


class TestTaggingWithMixtures(CopyContract, test_tagging.TestTaggingInContext):
    soft = True


class TestAttentionWithMixtures(CopyContract, test_attention.TestDeepAttention):
    soft = True


@torch.no_grad()
def test_a_word_is_written_or_copied_by_definition():
    """The probability of each token at each cell and step, and then the sum over all alignments, one by one."""
    copying = TestSsntWithMixtures().build()
    head, (states, lengths) = copying.head, random_sentences([3])
    source = copy_source(states, lengths, soft=True)
    target = torch.tensor([[4, OWN_WORD, 5]])
    cells = torch.cat([states[0], head.end_cell[None]])
    cells = head.encoder(cells[None], lengths + 1)[0]
    steps, tokens = head.context(target)[0], [4, OWN_WORD, 5, END_ID]
    emit, write = torch.empty(2, 4, 4, dtype=torch.float64)
    gate = head.copy_gate
    for i, j in itertools.product(range(4), range(4)):
        emit[i, j] = head.emit((head.emit_cells(cells[i]) + head.emit_steps(steps[j])).relu())
        logits = head.word_scores.of_cells(cells[i]) + head.word_scores.of_steps(steps[j])
        choices = [1, *range(END_ID + 1, VOCAB_SIZE)] + ([END_ID] if i == 3 else [])
        probs = torch.zeros(VOCAB_SIZE + 1, dtype=torch.float64)
        probs[choices] = logits[choices].softmax(0)
        copied = torch.zeros(VOCAB_SIZE + 1, dtype=torch.float64)
        if i < 3:
            for token, share in zip(source.ids[0].tolist(), source.matrix[0, i], strict=True):
                copied[token] += share * (token != PADDING_ID)
        copy = 1 - (gate.of_cells(cells[i]) + gate.of_steps(steps[j])).sigmoid()
        mixture = (1 - copy * copied.sum()) * probs + copy * copied
        torch.testing.assert_close(mixture.sum(), torch.ones(()).double())
        write[i, j] = mixture[tokens[j]].log()
    both = torch.tensor([4]), torch.tensor([4])
    expected = EnumeratedMonotoneAlignment(emit[None], write[None], *both).log_likelihood()
    value = copying.log_likelihood(states, lengths, target, torch.tensor([3]))
    torch.testing.assert_close(value, expected)


def build_for_orders(kind):
    torch.manual_seed(5)
    options = {"input_size": INPUT_SIZE, "vocab_size": VOCAB_SIZE, "copy_mechanism": True}
    if kind is SegmentsHead:
        options |= {"embedding_dim": 3, "hidden_size": 5, "max_segment_length": 2}
    return kind(**options).double().eval()


@pytest.mark.parametrize("kind", [SegmentsHead, TaggingHead])
@torch.no_grad()
def test_sums_over_orders_move_words_and_what_they_copy_together(kind):
    head, (states, lengths) = build_for_orders(kind), random_sentences([3])
    source = copy_source(states, lengths, soft=False)
    target, target_lengths = torch.tensor([[OWN_WORD, 5, 4]]), torch.tensor([3])
    scores = torch.randn(1, split_count(3), 2, dtype=torch.float64, generator=seeded(3))
    distribution = SeparablePermutation(scores)
    by_order = []
    for order in itertools.permutations(range(3)):
        tokens = torch.tensor([order])
        in_order = head.with_copies(source.in_order(tokens))
        likelihood = in_order.log_likelihood(take_order(states, tokens), lengths, target, target_lengths)
        by_order.append(distribution.log_prob(tokens) + likelihood)
    summed = head.with_copies(source).log_likelihood_over_orders(
        distribution, states, lengths, target, target_lengths
    )
    torch.testing.assert_close(summed, torch.stack(by_order).logsumexp(0))
    if kind is SegmentsHead:
        (best,) = head.with_copies(source).derivations_over_orders(
            distribution, states, lengths, target, target_lengths
        )
        (copied_by,) = [segment.source for segment in best.segments if 0 in segment.target]
        assert source.ids[0, copied_by[0]] == OWN_WORD


@torch.no_grad()
def test_phrases_copy_nothing():
    torch.manual_seed(5)
    head = SegmentsHead(
        input_size=INPUT_SIZE,
        vocab_size=VOCAB_SIZE,
        embedding_dim=3,
        hidden_size=5,
        max_segment_length=2,
        max_phrase_length=2,
        copy_mechanism=True,
    )
    head = head.double().eval()
    states, lengths = random_sentences([2])
    source = CopySource(torch.tensor([[4, OWN_WORD]]))
    scores = torch.zeros(1, split_count(2), 2, dtype=torch.float64)
    distribution = SeparablePermutation(scores)
    (trees,) = head.with_copies(source).phrase_derivations(distribution, states, lengths, 5)
    assert {len(tree.leaves) for tree in trees} == {1, 2}  # a phrase, and both orders of two words
    for tree in trees:
        cells, leaves = head.leaf_states(states, [tree])
        copies = head.leaf_copies(source, [tree])
        written = [source.ids[0, start] if end - start == 1 else PADDING_ID for start, end in tree.leaves]
        assert copies.ids.tolist() == [written]
        found = head.with_copies(copies).decoder(cells, leaves).scores()[0]
        assert (found.shape[0] > OWN_WORD and found[OWN_WORD].isfinite()) == (len(tree.leaves) == 2)
