"""Half precision and empty batches are refused in one line by every distribution, in every argument."""

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

pytestmark = pytest.mark.usefixtures("unchecked")

RULES, ROOT = torch.zeros(2, 2, 2, 2), torch.zeros(2)


def arguments(batch):
    """The scores of sentences of two words, by the name of their argument."""
    shapes = {
        "splits": (1, 2),
        "tokens": (2, 2),
        "emissions": (2, 2),
        "segments": (2, 2, 2),
        "phrase_segments": (3, 2, 2),
        "phrases": (1,),
        "emit": (2, 2),
        "words": (2, 2),
        "scores": (2, 2),
        "dense": (3, 3, 3, 2),
    }
    return {name: torch.zeros(batch, *shape) for name, shape in shapes.items()} | {
        "rules": RULES,
        "root": ROOT,
    }


CALLS = {
    "separable": (lambda splits: SeparablePermutation(splits), ["splits"]),
    "dense": (lambda dense: SeparablePermutation.from_dense(dense), ["dense"]),
    "tagging": (
        lambda splits, emissions: SeparablePermutation(splits).log_likelihood(emissions),
        ["emissions"],
    ),
    "labelled": (
        lambda rules, tokens, splits, root: LabelledPermutation(rules, tokens, splits, root_scores=root),
        ["rules", "tokens", "splits", "root"],
    ),
    "labelled tagging": (
        lambda rules, tokens, emissions: LabelledPermutation(rules, tokens).log_likelihood(emissions),
        ["emissions"],
    ),
    "synchronous": (
        lambda splits, segments: SynchronousPermutation(splits, segments),
        ["splits", "segments"],
    ),
    "phrases": (
        lambda splits, phrase_segments, phrases: SynchronousPermutation(
            splits, phrase_segments, phrase_scores=phrases
        ),
        ["splits", "phrase_segments", "phrases"],
    ),
    "labelled synchronous": (
        lambda rules, tokens, segments, splits, root: LabelledSynchronousPermutation(
            rules, tokens, segments, splits, root_scores=root
        ),
        ["rules", "tokens", "segments", "splits", "root"],
    ),
    "monotone": (lambda emit, words: MonotoneAlignment(emit, words), ["emit", "words"]),
    "segmental": (lambda segments: SegmentalAlignment(segments), ["segments"]),
    "sinkhorn": (lambda scores: sinkhorn_matrix(scores), ["scores"]),
    "matching": (lambda scores: best_matching(scores), ["scores"]),
}


def call(kind, given):
    """Build a distribution from those of the given arguments that it takes."""
    function = CALLS[kind][0]
    return function(**{name: given[name] for name in function.__code__.co_varnames})


def refusal(kind, given):
    with pytest.raises(ValueError, match=r"\w+") as caught:
        call(kind, given)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 400
    return message


@pytest.mark.parametrize("kind", CALLS)
def test_what_is_built_here_is_right(kind):
    assert call(kind, arguments(batch=1)) is not None


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("kind", CALLS)
def test_half_precision_is_refused(kind, dtype):
    half = {name: tensor.to(dtype) for name, tensor in arguments(batch=1).items()}
    assert f"dtype {dtype}, but exact inference needs torch.float32" in refusal(kind, half)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, (_, names) in CALLS.items() for name in names]
)
def test_a_single_argument_in_half_precision_is_refused(kind, name, dtype):
    given = arguments(batch=1)
    assert str(dtype) in refusal(kind, given | {name: given[name].to(dtype)})


@pytest.mark.parametrize("kind", CALLS)
def test_empty_batches_are_refused(kind):
    assert "is an empty batch. Pass at least one sentence." in refusal(kind, arguments(batch=0))
