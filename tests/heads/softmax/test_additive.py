"""`additive_word_log_probs` against a full softmax for every pair of a cell and a step."""

import pytest
import torch
from tests.structures.contract import seeded

from permalign.heads import additive_word_log_probs
from permalign.heads.softmax.additive import Exponentials, log_mixture

pytestmark = pytest.mark.usefixtures("backend")

BATCH, CELLS, STEPS, VOCAB_SIZE = 2, 3, 4, 7
TARGETS = torch.randint(VOCAB_SIZE, (BATCH, STEPS), generator=seeded())


def full_softmax(cell_logits, step_logits, targets):
    logits = cell_logits[:, :, None] + step_logits[:, None]  # (batch, cell, step, vocabulary)
    index = targets[:, None, :, None].expand(-1, logits.shape[1], -1, 1)
    return logits.log_softmax(-1).gather(-1, index).squeeze(-1)


def random_logits(scale=1.0, dtype=torch.float64):
    generator = seeded(1)
    return [
        (scale * torch.randn(BATCH, rows, VOCAB_SIZE, dtype=torch.float64, generator=generator)).to(dtype)
        for rows in (CELLS, STEPS)
    ]


def both(cells, steps, targets=TARGETS):
    """Return values and gradients of the additive and of the full softmax, the latter in float64."""
    results = []
    for function, dtype in ((additive_word_log_probs, cells.dtype), (full_softmax, torch.float64)):
        leaves = [tensor.detach().to(dtype).clone().requires_grad_() for tensor in (cells, steps)]
        value = function(*leaves, targets)
        mixture = torch.randn(value.shape, dtype=torch.float64, generator=seeded(2)).to(dtype)
        torch.where(value.isfinite(), value * mixture, 0).sum().backward()
        results.append([value, *(leaf.grad for leaf in leaves)])
    return results


def assert_same(pair, **tolerance):
    torch.testing.assert_close(*pair, check_dtype=False, **tolerance)


def test_values_and_gradients():
    assert_same(both(*random_logits()), rtol=1e-10, atol=1e-12)


def test_float32():
    ours, theirs = both(*random_logits(dtype=torch.float32))
    assert {tensor.dtype for tensor in ours} == {torch.float32}
    assert_same((ours, theirs), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "scale"), [(torch.float32, 100.0), (torch.float32, 1e4), (torch.float64, 1e6)]
)
def test_large_logits(dtype, scale):
    cells, steps = random_logits(scale, dtype)
    ours, theirs = both(cells, steps)
    assert all(tensor.isfinite().all() for tensor in ours)
    assert_same((ours, theirs), rtol=1e-5, atol=scale * 1e-6 if dtype == torch.float32 else 1e-6)


@pytest.mark.parametrize(("dtype", "depth"), [(torch.float32, 200.0), (torch.float64, 2000.0)])
def test_where_the_product_underflows(dtype, depth):
    """The cell prefers one token, the step another, and every product of their exponentials is zero."""
    cells, steps = random_logits(dtype=dtype)
    cells[0, 1, 1:] -= depth
    steps[0, 2, :-1] -= depth
    assert (cells[0, 1].softmax(-1) * steps[0, 2].softmax(-1)).sum() == 0
    assert_same(both(cells, steps), rtol=1e-5, atol=1e-4 if dtype == torch.float32 else 1e-9)


def test_where_every_product_underflows():
    cells, steps = random_logits(dtype=torch.float32)
    cells[..., 1:] -= 300
    steps[..., :-1] -= 300
    assert_same(both(cells, steps), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tokens_that_only_the_last_cell_may_write(dtype):
    cells, steps = random_logits(dtype=dtype)
    end = VOCAB_SIZE - 1
    cells[:, :-1, end] = -torch.inf
    targets = TARGETS.clone()
    targets[:, -1] = end
    ours, theirs = both(cells, steps, targets)
    assert (ours[0][:, :-1, -1] == -torch.inf).all()
    assert ours[0][:, -1].isfinite().all()
    assert all(gradient.isfinite().all() for gradient in ours[1:])
    assert_same((ours, theirs), rtol=1e-5, atol=1e-5)


def test_masks_and_underflow_together():
    cells, steps = random_logits(dtype=torch.float32)
    cells[:, :-1, -1] = -torch.inf
    steps[:, :, :-1] -= 250  # every step prefers the token that only the last cell may write
    ours, theirs = both(cells, steps)
    assert all(gradient.isfinite().all() for gradient in ours[1:])
    assert_same((ours, theirs), rtol=1e-5, atol=1e-4)


def test_gradients_of_impossible_tokens_are_not_nan():
    cells, steps = random_logits()
    cells[:, :-1, 0] = -torch.inf
    leaves = [cells.requires_grad_(), steps.requires_grad_()]
    value = additive_word_log_probs(*leaves, torch.zeros_like(TARGETS))
    value[:, -1].sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in leaves)


def test_gradcheck():
    leaves = tuple(tensor.requires_grad_() for tensor in random_logits())
    assert torch.autograd.gradcheck(lambda *logits: additive_word_log_probs(*logits, TARGETS), leaves)


def test_tokens_of_a_cell_and_step_sum_to_one():
    cells, steps = random_logits()
    total = sum(
        additive_word_log_probs(cells, steps, torch.full_like(TARGETS, token)).exp()
        for token in range(VOCAB_SIZE)
    )
    torch.testing.assert_close(total, torch.ones_like(total))


def test_arguments_are_not_modified():
    cells, steps = random_logits()
    copies = [cells.clone(), steps.clone()]
    additive_word_log_probs(cells, steps, TARGETS)
    assert torch.equal(cells, copies[0])
    assert torch.equal(steps, copies[1])
    assert not cells.requires_grad


@pytest.mark.parametrize("depth", [0.0, 300.0, 3000.0])
def test_mixtures_of_cells(depth):
    """Where the cells with weight do not have a token, its probability underflows unless it is computed apart."""
    cells, _ = random_logits()
    cells[:, 0, :3] -= depth
    weights = torch.randn(BATCH, 2, CELLS, dtype=torch.float64, generator=seeded(2))
    weights[:, :, 1:] -= depth
    expected = (weights[..., None] + cells[:, None]).logsumexp(2)
    found = log_mixture(weights, Exponentials.of(cells), torch.ones(VOCAB_SIZE, dtype=torch.bool))
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("unchecked")
class TestBadInput:
    def test_vocabularies_that_differ(self):
        cells, steps = random_logits()
        with pytest.raises(ValueError, match="step_logits"):
            additive_word_log_probs(cells, steps[..., :-1], TARGETS)

    def test_batches_that_differ(self):
        cells, steps = random_logits()
        with pytest.raises(ValueError, match="must agree in batch"):
            additive_word_log_probs(cells[:1], steps, TARGETS)

    def test_targets_of_the_wrong_shape(self):
        with pytest.raises(ValueError, match="targets"):
            additive_word_log_probs(*random_logits(), TARGETS[:, :-1])

    @pytest.mark.parametrize("token", [-1, VOCAB_SIZE])
    def test_targets_outside_the_vocabulary(self, token):
        with pytest.raises(ValueError, match="targets"):
            additive_word_log_probs(*random_logits(), torch.full_like(TARGETS, token))

    def test_targets_that_are_not_integers(self):
        with pytest.raises(ValueError, match="targets"):
            additive_word_log_probs(*random_logits(), TARGETS.float())

    def test_dtypes_that_differ(self):
        cells, steps = random_logits()
        with pytest.raises(ValueError, match="float32"):
            additive_word_log_probs(cells, steps.float(), TARGETS)
