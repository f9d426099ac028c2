"""`SplitScorer` against its formula written out, and its dropout against what dropout must be."""

import pytest
import torch
from benchmarks.slow_twin import slow_twin
from tests.structures.contract import seeded

from permalign import SeparablePermutation, kernels
from permalign.kernels.numerics import dropout_scale
from permalign.reorderers import SplitScorer
from permalign.structures.brute_force import EnumeratedPermutation, packed_splits

pytestmark = pytest.mark.usefixtures("backend")


def scorer(width=6, hidden=10, dropout=0.0, dtype=torch.float64):
    torch.manual_seed(0)
    return SplitScorer(width, hidden, dropout).to(dtype)


def random_states(batch, words, width=6):
    return torch.randn(batch, words + 2, width, dtype=torch.float64, generator=seeded(words))


def literal_scores(layer, states):
    """The formula of the paper, split by split."""
    half = states.shape[-1] // 2
    forward, backward = states[..., :half], states[..., half:]

    def span(i, j):
        return torch.cat([forward[:, j] - forward[:, i], backward[:, i + 1] - backward[:, j + 1]], -1)

    rows = [
        layer.second(torch.relu(layer.first(torch.cat([span(i, j), span(j, k)], -1))))
        for i, j, k in packed_splits(states.shape[1] - 2)
    ]
    return torch.stack(rows, 1) if rows else states.new_zeros(len(states), 0, 2)


def test_layers_have_the_names_and_shapes_of_checkpoints():
    shapes = {name: tuple(tensor.shape) for name, tensor in scorer().state_dict().items()}
    assert shapes == {
        "first.weight": (10, 12),
        "first.bias": (10,),
        "second.weight": (2, 10),
        "second.bias": (2,),
    }


@pytest.mark.parametrize("words", [1, 2, 5, 9])
def test_values_and_gradients_equal_the_formula(words):
    layer = scorer()
    results = []
    for score in (layer, lambda states: literal_scores(layer, states)):
        layer.zero_grad()
        states = random_states(3, words).requires_grad_()
        scores = score(states)
        mixture = torch.randn(scores.shape, dtype=torch.float64, generator=seeded(1))
        total = (scores * mixture).sum() + 0 * states.sum()
        total.backward()
        gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
        results.append([scores, states.grad, {n: g for n, g in gradients.items() if words > 1}])
    torch.testing.assert_close(*results, rtol=1e-10, atol=1e-12)


def test_float32():
    layer, states = scorer(), random_states(2, 6)
    expected = literal_scores(layer, states)
    found = layer.float()(states.float())
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, expected, check_dtype=False, rtol=1e-4, atol=1e-5)


def test_what_comes_after_a_sentence_changes_nothing():
    layer, states = scorer(), random_states(2, 6)
    lengths = torch.tensor([4, 6])
    other = states.clone()
    other[0, 6:] = 77.0  # 4 words, BOS and EOS come first
    inside = torch.tensor([end <= 4 for _, _, end in packed_splits(6)])
    ours, theirs = layer(states, lengths), layer(other, lengths)
    assert torch.equal(ours, theirs)
    torch.testing.assert_close(ours[0, inside], literal_scores(layer, states[:1, :6])[0])
    torch.testing.assert_close(ours[1], literal_scores(layer, states[1:])[0])
    states.requires_grad_()
    layer(states, lengths).sum().backward()
    assert (states.grad[0, 6:] == 0).all()


def test_gradcheck():
    layer = scorer(width=4, hidden=5)
    states = random_states(2, 4, width=4).requires_grad_()
    parameters = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]
    names = [name for name, _ in layer.named_parameters()]

    def call(states, *tensors):
        return torch.func.functional_call(
            layer, dict(zip(names, tensors, strict=True)), (states, torch.tensor([4, 3]))
        )

    assert torch.autograd.gradcheck(call, (states, *parameters))


def test_the_papers_method_gives_the_same():
    layer, states = scorer(), random_states(2, 6)
    slow = slow_twin(states, layer.first, layer.second)
    fast = SeparablePermutation(layer(states))
    torch.testing.assert_close(slow.scores, layer(states))
    torch.testing.assert_close(slow.log_partition, fast.log_partition())
    torch.testing.assert_close(slow.expected_matrix, fast.expected_matrix())
    twin = EnumeratedPermutation(slow.scores)
    torch.testing.assert_close(slow.log_partition, twin.log_partition())
    torch.testing.assert_close(slow.expected_matrix, twin.expected_matrix())


class TestDropout:
    """Hidden units that are all one and weights that are powers of two show the mask in the scores."""

    batch, words, hidden = 4, 12, 64

    def masks(self, rate, seed=0):
        layer = SplitScorer(2, self.hidden, rate).double().train()
        with torch.no_grad():
            layer.first.weight.zero_()
            layer.first.bias.fill_(1)
            layer.second.bias.zero_()
            layer.second.weight.zero_()
            layer.second.weight[0, :32] = 2.0 ** torch.arange(32)
            layer.second.weight[1, 32:] = 2.0 ** torch.arange(32)
        torch.manual_seed(seed)
        scores = layer(torch.zeros(self.batch, self.words + 2, 2, dtype=torch.float64)).detach()
        return self.decode(scores, rate)

    def decode(self, scores, rate):
        sums = scores / dropout_scale(rate)[1]
        codes = sums.round().long()  # (batch, split, 2)
        torch.testing.assert_close(codes.double(), sums)
        bits = codes[..., None] >> torch.arange(32) & 1
        return bits.flatten(2).double()  # (batch, split, unit)

    @pytest.mark.parametrize("rate", [0.1, 0.25, 0.5])
    def test_keep_rate(self, rate):
        masks = self.masks(rate)
        spread = rate * (1 - rate)
        for kept in (masks.mean(), masks.mean((0, 1)), masks.mean((0, 2)), masks.mean((1, 2))):
            number = masks.numel() / kept.numel()
            assert ((kept - (1 - rate)).abs() < 5 * (spread / number) ** 0.5).all()
            if kept.numel() > 30:  # as scattered as independent draws, neither more nor less
                assert kept.var().item() * number == pytest.approx(spread, rel=6 * (2 / kept.numel()) ** 0.5)

    def test_splits_sentences_and_units_are_independent(self):
        masks = self.masks(0.5) - 0.5
        pairs = {
            "next split": (masks[:, 1:], masks[:, :-1]),
            "next sentence": (masks[1:], masks[:-1]),
            "next unit": (masks[..., 1:], masks[..., :-1]),
            "other half": (masks[..., 32:], masks[..., :32]),
        }
        for name, (one, other) in pairs.items():
            correlation = 4 * (one * other).mean().item()
            assert abs(correlation) < 5 / one.numel() ** 0.5, name

    def test_calls_differ_and_seeds_repeat(self):
        assert torch.equal(self.masks(0.5, seed=1), self.masks(0.5, seed=1))
        assert not torch.equal(self.masks(0.5, seed=1), self.masks(0.5, seed=2))
        layer, states = scorer(dropout=0.5).train(), random_states(2, 5)
        assert not torch.equal(layer(states), layer(states))

    def test_all_backends_draw_the_same_mask(self):
        masks = []
        for name in ("portable", "vectorized", "compiled"):
            with kernels.backend(name):
                masks.append(self.masks(0.3, seed=3))
        assert torch.equal(masks[0], masks[2])
        assert torch.equal(masks[1], masks[2])

    def test_the_mean_over_masks_is_the_score_without_dropout(self):
        layer, states = scorer(dropout=0.3).train(), random_states(1, 3).expand(4000, -1, -1)
        drawn = layer(states)
        mean, error = drawn.mean(0), drawn.std(0) / 4000**0.5
        assert ((mean - literal_scores(layer, states[:1])[0]).abs() < 5 * error).all()

    def test_no_dropout_when_evaluating(self):
        layer, states = scorer(dropout=0.5).eval(), random_states(2, 5)
        torch.testing.assert_close(layer(states), literal_scores(layer, states))

    def test_the_backward_pass_uses_the_same_mask(self):
        layer = scorer(width=4, hidden=7, dropout=0.4).train()
        states = random_states(2, 4, width=4).requires_grad_()
        names = [name for name, _ in layer.named_parameters()]
        parameters = [parameter.detach().clone().requires_grad_() for parameter in layer.parameters()]

        def call(states, *tensors):
            torch.manual_seed(11)
            return torch.func.functional_call(layer, dict(zip(names, tensors, strict=True)), (states,))

        assert torch.autograd.gradcheck(call, (states, *parameters))


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    @pytest.mark.parametrize("sizes", [(2, 7, 5), (2, 2, 6), (7, 6)])
    def test_states_of_the_wrong_shape(self, sizes):
        with pytest.raises(ValueError, match="states"):
            scorer()(torch.zeros(sizes, dtype=torch.float64))

    @pytest.mark.parametrize("lengths", [[4, 5], [0, 3], [3]])
    def test_lengths(self, lengths):
        with pytest.raises(ValueError, match="lengths"):
            scorer()(random_states(2, 4), torch.tensor(lengths))

    @pytest.mark.parametrize("dropout", [-0.1, 1.5])
    def test_dropout(self, dropout):
        with pytest.raises(ValueError, match="dropout"):
            SplitScorer(4, 8, dropout)

    def test_states_without_halves(self):
        with pytest.raises(ValueError, match="input_size"):
            SplitScorer(5, 8)


def test_nothing_in_the_padding_reaches_scores_or_gradients():
    layer, states = scorer(), random_states(2, 4)
    lengths = torch.tensor([2, 4])
    states[0, 4:] = torch.nan
    layer(states, lengths).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_autocast_leaves_scores_in_full_precision():
    layer, states = scorer(dtype=torch.float32), random_states(2, 4).float()
    expected = layer(states)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(layer(states), expected)
