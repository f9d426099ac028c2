"""Log-probabilities in single precision stay right, and negative, for large scores; still larger ones are refused."""

import pytest
import torch

from permalign import (
    LabelledPermutation,
    MonotoneAlignment,
    SegmentalAlignment,
    SeparablePermutation,
    SynchronousPermutation,
)
from permalign.structures import LabelledSynchronousPermutation
from permalign.structures.sinkhorn import best_matching, sinkhorn_matrix

N, WORDS, LABELS = 4, 3, 2


def make(kind, scale, dtype):
    """The log-likelihoods of some outputs, or the log-probabilities of orders, and the scores they depend on."""
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        return torch.randn(shape, generator=generator)

    splits = (draw(3, 10, 2) * scale).to(dtype).requires_grad_()
    emissions = draw(3, N, N).to(dtype).log_softmax(-1)
    segments = draw(3, N, WORDS + 1, 3).to(dtype).log_softmax(-1)
    rules, tokens = draw(2, LABELS, LABELS, LABELS).to(dtype), (draw(3, N, LABELS) * scale).to(dtype)
    if kind == "synchronous":
        return SynchronousPermutation(splits, segments).log_likelihood(), splits
    if kind == "labelled synchronous":
        return LabelledSynchronousPermutation(rules, tokens, segments, splits).log_likelihood(), splits
    orders = {
        "separable": lambda: SeparablePermutation(splits),
        "normal form": lambda: SeparablePermutation(splits, normal_form=True),
        "labelled": lambda: LabelledPermutation(rules, tokens, splits),
    }[kind]()
    return torch.stack(
        [orders.log_likelihood(emissions), orders.log_prob(torch.arange(N).repeat(3, 1))]
    ), splits


KINDS = ["separable", "normal form", "labelled", "synchronous", "labelled synchronous"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e10])
def test_single_precision_agrees_with_double(kind, scale, backend):
    found, _ = make(kind, scale, torch.float32)
    expected, _ = make(kind, scale, torch.float64)
    assert found.dtype == torch.float32
    assert (found <= 1e-3).all()
    torch.testing.assert_close(found.double(), expected, rtol=1e-3, atol=0.02)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [1e3, 1e10])
def test_gradients_stay_finite(kind, scale, backend):
    found, scores = make(kind, scale, torch.float32)
    (gradient,) = torch.autograd.grad(found.clamp(min=-1e20).sum(), scores)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_beside_which_others_are_lost_are_refused(kind, dtype):
    with pytest.raises(ValueError, match=r"at most 1e\+12.*forbid the others"):
        make(kind, 1e30, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("forbidden", [-1e10, -1e30, -1e38])
def test_what_is_forbidden_by_a_huge_negative_score_has_no_weight(dtype, forbidden, backend):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(4, 20, 2, generator=generator, dtype=dtype)  # of sentences of five words
    mask = torch.rand(4, 20, 2, generator=generator) < 0.15
    emissions = torch.randn(4, 5, 5, generator=generator, dtype=dtype).log_softmax(-1)

    def found(value):
        leaves = scores.clone().requires_grad_()
        orders = SeparablePermutation(leaves.masked_fill(mask, value))
        likelihood = orders.log_likelihood(emissions)
        (gradient,) = torch.autograd.grad(
            (orders.log_partition() + likelihood + orders.entropy()).sum(), leaves
        )
        return orders.log_partition(), likelihood, orders.entropy(), orders.expected_matrix(), gradient

    for result, expected in zip(found(forbidden), found(-400.0), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


# --- Alignments and matchings -------------------------------------------------------------------------------------

CELLS, STEPS, LONGEST = 4, 5, 2


def alignment_scores(dtype, scale=1.0, seed=0):
    """Scores of the arguments of all alignments, of three pairs; the same numbers in every precision."""
    generator = torch.Generator().manual_seed(seed)
    shapes = {
        "emit_logits": (3, CELLS, STEPS),
        "word_log_probs": (3, CELLS, STEPS),
        "segment_log_probs": (3, CELLS, STEPS + 1, LONGEST + 1),
        "scores": (3, N, N),
    }
    return {name: (torch.randn(s, generator=generator) * scale).to(dtype) for name, s in shapes.items()}


ALIGNMENTS = {
    "monotone": (MonotoneAlignment, ("emit_logits", "word_log_probs")),
    "segmental": (SegmentalAlignment, ("segment_log_probs",)),
}


def align(kind, scores):
    """The alignment, and the scores that it depends on, which ask for gradients."""
    make, names = ALIGNMENTS[kind]
    leaves = [scores[name].clone().requires_grad_() for name in names]
    return make(*leaves), leaves


@pytest.mark.parametrize("kind", ALIGNMENTS)
@pytest.mark.parametrize("scale", [1.0, 1e3, 1e6, 1e10])
def test_alignments_in_single_precision_agree_with_double(kind, scale):
    single, leaves = align(kind, alignment_scores(torch.float32, scale))
    double, _ = align(kind, alignment_scores(torch.float64, scale))
    found = single.log_likelihood()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), double.log_likelihood(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(single.posteriors().double(), double.posteriors(), rtol=1e-5, atol=1e-5)
    for gradient in torch.autograd.grad(found.sum(), leaves):
        assert gradient.isfinite().all()


FORBIDDEN = [
    (kind, name, value)
    for kind, (_, names) in ALIGNMENTS.items()
    for name in names
    for value in (-1e10, -1e30, -1e38, *([] if name == "emit_logits" else [-torch.inf]))
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("kind", "name", "forbidden"), FORBIDDEN)
def test_what_an_alignment_is_forbidden_has_no_weight(kind, name, forbidden, dtype):
    scores = alignment_scores(dtype, seed=1)
    mask = torch.rand(scores[name].shape, generator=torch.Generator().manual_seed(1)) < 0.15

    def found(value):
        alignment, leaves = align(kind, scores | {name: scores[name].masked_fill(mask, value)})
        likelihood = alignment.log_likelihood()
        gradients = torch.autograd.grad(likelihood.sum(), leaves)
        return likelihood, alignment.posteriors(), alignment.best_alignment().log_prob, *gradients

    for result, expected in zip(found(forbidden), found(-400.0), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ALIGNMENTS)
@pytest.mark.parametrize("forbidden", [-1e30, -1e38, -torch.inf])
def test_an_output_that_no_alignment_may_write_is_impossible(kind, forbidden):
    name = ALIGNMENTS[kind][1][-1]
    scores = alignment_scores(torch.float32)
    scores[name][1] = forbidden
    alignment, leaves = align(kind, scores)
    likelihood = alignment.log_likelihood()
    assert likelihood[1] == -torch.inf
    assert likelihood[[0, 2]].isfinite().all()
    for gradient in torch.autograd.grad(likelihood.sum(), leaves):
        assert gradient.isfinite().all()
    assert (alignment.posteriors()[1] == 0).all()


@pytest.mark.parametrize("scale", [1e3, 1e10])
def test_relaxed_matchings_of_large_scores_are_stochastic(scale):
    scores = alignment_scores(torch.float32, scale)["scores"].requires_grad_()
    matrix = sinkhorn_matrix(scores)
    (gradient,) = torch.autograd.grad(matrix.square().sum(), scores)
    assert gradient.isfinite().all()
    torch.testing.assert_close(matrix.sum(1), torch.ones(3, N))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("forbidden", [-1e10, -1e30, -1e38])
def test_what_a_matching_is_forbidden_has_no_weight(dtype, forbidden):
    scores = alignment_scores(dtype)["scores"]
    mask = (torch.rand(scores.shape, generator=torch.Generator().manual_seed(3)) < 0.3) & ~torch.eye(N).bool()

    def found(value):
        leaves = scores.clone().requires_grad_()
        matrix = sinkhorn_matrix(leaves.masked_fill(mask, value))
        (gradient,) = torch.autograd.grad(matrix.square().sum(), leaves)
        return matrix, gradient, best_matching(scores.masked_fill(mask, value))

    for result, expected in zip(found(forbidden), found(-400.0), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)


# --- What is refused in any argument ------------------------------------------------------------------------------

LOG_PROBS = {"emissions", "word_log_probs", "segment_log_probs"}
"""Arguments that may be -inf."""


def call(kind, name, value):
    """Compute something from zeros, except for the first number of the argument of this name."""

    def zeros(argument, *shape):
        tensor = torch.zeros(shape)
        if argument == name:
            tensor.view(-1)[0] = value
        return tensor

    splits = zeros("split_scores", 1, 1, 2)
    segments = zeros("segment_log_probs", 1, 3 if kind == "phrases" else 2, 2, 2)
    rules, tokens = zeros("rule_scores", 2, 2, 2, 2), zeros("token_scores", 1, 2, 2)
    root, emissions = zeros("root_scores", 2), zeros("emissions", 1, 2, 2)
    return {
        "separable": lambda: SeparablePermutation(splits).log_likelihood(emissions),
        "labelled": lambda: LabelledPermutation(rules, tokens, splits, None, root).log_likelihood(emissions),
        "synchronous": lambda: SynchronousPermutation(splits, segments).log_likelihood(),
        "phrases": lambda: SynchronousPermutation(
            splits, segments, phrase_scores=zeros("phrase_scores", 1, 1)
        ).log_likelihood(),
        "labelled synchronous": lambda: LabelledSynchronousPermutation(
            rules, tokens, segments, splits, root_scores=root
        ).log_likelihood(),
        "monotone": lambda: MonotoneAlignment(
            zeros("emit_logits", 1, 2, 2), zeros("word_log_probs", 1, 2, 2)
        ).log_likelihood(),
        "segmental": lambda: SegmentalAlignment(segments).log_likelihood(),
        "sinkhorn": lambda: sinkhorn_matrix(zeros("scores", 1, 2, 2)),
        "matching": lambda: best_matching(zeros("scores", 1, 2, 2)),
    }[kind]()


ARGUMENTS = [
    (kind, name)
    for kind, names in {
        "separable": ["split_scores", "emissions"],
        "labelled": ["rule_scores", "token_scores", "split_scores", "root_scores", "emissions"],
        "synchronous": ["split_scores", "segment_log_probs"],
        "phrases": ["phrase_scores", "segment_log_probs"],
        "labelled synchronous": ["rule_scores", "token_scores", "split_scores", "segment_log_probs"],
        "monotone": ["emit_logits", "word_log_probs"],
        "segmental": ["segment_log_probs"],
        "sinkhorn": ["scores"],
        "matching": ["scores"],
    }.items()
    for name in names
]


@pytest.mark.parametrize("value", [1e13, 1e30, 1e38, torch.inf, torch.nan])
@pytest.mark.parametrize(("kind", "name"), ARGUMENTS)
def test_what_is_too_large_or_no_number_is_refused_in_one_line(kind, name, value):
    with pytest.raises(ValueError, match=f"{name.removeprefix('split_')}.* is (1e|9|1|inf|nan)") as caught:
        call(kind, name, value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [-1e12, -1e30, -1e38, -torch.inf])
@pytest.mark.parametrize(("kind", "name"), ARGUMENTS)
def test_what_is_very_negative_is_right_or_minus_infinity_is_refused(kind, name, value):
    if value == -torch.inf and name not in LOG_PROBS:
        with pytest.raises(ValueError, match=r"must be finite.* is -inf") as caught:
            call(kind, name, value)
        assert "\n" not in str(caught.value)
        return
    expected = call(kind, name, -400.0)
    torch.testing.assert_close(call(kind, name, value), expected)
