"""The tagging head: a token at each position, and the table of emissions that exact objectives sum over."""

import itertools

import pytest
import torch
from tests.heads.contract import (
    INPUT_SIZE,
    VOCAB_SIZE,
    HeadContract,
    Neighbours,
    random_outputs,
    random_sentences,
)
from torch.nn.functional import one_hot

from permalign import Segment, SeparablePermutation
from permalign.heads.tagging import TaggingHead
from permalign.text.codec import END_ID


class TestTagging(HeadContract):
    output_lengths = HeadContract.lengths
    writes_end = False

    def head(self, **options):
        return TaggingHead(**{"input_size": INPUT_SIZE, "vocab_size": VOCAB_SIZE, **options})


class TestTaggingInContext(TestTagging):
    def head(self, **options):
        return super().head(**{"encoder": Neighbours(INPUT_SIZE, 6), **options})


@pytest.fixture
def head():
    return TestTagging().build()


def test_a_row_ends_after_its_last_position_and_only_there(head):
    states, lengths = random_sentences([1, 2])
    decoder = head.decoder(states, lengths)
    assert (decoder.scores()[:, END_ID] == -torch.inf).all()
    first = decoder.scores()[:, 5]
    decoder.extend(torch.tensor([0, 1]), torch.tensor([5, 5]))
    finished, unfinished = decoder.scores()
    assert finished[END_ID] == first[0]
    assert finished.isfinite().sum() == 1
    assert unfinished[END_ID] == -torch.inf
    decoder.extend(torch.tensor([0, 1]), torch.tensor([5, 6]))
    assert (decoder.scores()[0] == -torch.inf).all()
    assert decoder.scores()[1].isfinite().nonzero().tolist() == [[END_ID]]


def test_emissions_are_those_of_each_position(head):
    states, lengths = random_sentences([3])
    logits = states[0] @ head.softmax.linear.weight.T + head.softmax.linear.bias
    logits[:, [0, 2, END_ID]] = -torch.inf
    expected = logits.exp() / logits.exp().sum(-1, keepdim=True)
    torch.testing.assert_close(head.emissions(states, lengths)[0].exp(), expected)


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_target_emissions_sum_to_likelihoods_of_reordered_states(head, smoothing):
    states, lengths = random_sentences([3, 2])
    target, _ = random_outputs([3, 2], room=4)
    table = head.target_emissions(states, lengths, target, lengths, smoothing)
    assert table.isfinite().all()
    for row, n in enumerate([3, 2]):
        for order in itertools.permutations(range(n)):
            expected = head.log_likelihood(
                states[[row]][:, list(order)], lengths[[row]], target[[row]], lengths[[row]], smoothing
            )
            found = sum(table[row, token, position] for position, token in enumerate(order))
            torch.testing.assert_close(found, expected[0])


def test_the_exact_objective_sums_over_all_orders(head):
    states, lengths = random_sentences([3])
    target, _ = random_outputs([3])
    orders = SeparablePermutation(torch.randn(1, 4, 2, dtype=torch.float64))
    table = head.target_emissions(states, lengths, target, lengths)
    expected = torch.stack(
        [
            orders.log_prob(torch.tensor([order]))[0]
            + head.log_likelihood(one_hot(torch.tensor([order])).double() @ states, lengths, target, lengths)[
                0
            ]
            for order in itertools.permutations(range(3))
        ]
    ).logsumexp(0)
    torch.testing.assert_close(orders.log_likelihood(table)[0], expected)


def test_a_pair_of_different_lengths_is_named(head):
    states, lengths = random_sentences([2, 3])
    target, target_lengths = random_outputs([2, 4])
    message = "pair 1 has 3 source tokens and 4 output tokens, .*one token for each source token; use ssnt"
    for method in (head.log_likelihood, head.target_emissions):
        with pytest.raises(ValueError, match=message):
            method(states, lengths, target, target_lengths)


def test_segments_pair_every_output_token_with_its_source_token(head):
    states, lengths = random_sentences([3, 2])
    target, _ = random_outputs([3, 2])
    order = torch.tensor([[2, 0, 1], [1, 0, 2]])
    assert head.segments(states, lengths, target, lengths, order) == [
        [Segment((2,), (0,)), Segment((0,), (1,)), Segment((1,), (2,))],
        [Segment((1,), (0,)), Segment((0,), (1,))],
    ]
    assert head.segments(states, lengths, target, lengths, None) is None


@pytest.mark.parametrize(("words", "labels"), [(1, 1), (2, 3), (7, 1), (7, 4)])
def test_the_cost_of_sums_over_orders_counts_pairs_of_children(head, words, labels):
    spans = list(itertools.combinations(range(words + 1), 2))
    middles = list(itertools.combinations(range(words + 1), 3))
    rules_and_positions = 2 * words
    pairs = len(middles) * labels**2 + len(spans) * labels**3
    assert head.cost_over_orders(words, words, labels) == rules_and_positions * pairs
