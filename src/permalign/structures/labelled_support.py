"""What a labelled grammar takes: shapes of its scores, and which of them must be finite."""

from collections.abc import Mapping

import torch
from torch import Tensor

from permalign.checks import require_finite, require_floats, require_range, shape_of
from permalign.kernels.layout import split_count, valid_splits


def require_scores(scores: Mapping[str, Tensor], lengths: Tensor, read_values: bool) -> None:
    """Scores of one grammar over one batch, ``(2, K, K, K)``, ``(batch, n, K)``, ``(batch, T, 2)`` and ``(K,)``."""
    require_floats(scores)
    tokens = scores["token_scores"]
    batch, words, labels = tokens.shape
    expected = {
        "rule_scores": ((2, labels, labels, labels), "[orientation, label, left label, right label]"),
        "split_scores": (
            (batch, split_count(words), 2),
            "(batch, T, 2) with T = (n^3 - n) / 6 for n words, as for SeparablePermutation",
        ),
        "root_scores": ((labels,), "one score for every label"),
    }
    for name, (shape, meaning) in expected.items():
        if tuple(scores[name].shape) != shape:
            raise ValueError(
                f"{name} has shape {shape_of(scores[name])}, but token_scores {shape_of(tokens)} holds {labels} "
                f"labels of {words} words, so it must be {shape}: {meaning}."
            )
    if not read_values:
        return
    require_range("lengths", lengths, "token_scores", tokens, words)
    present = torch.arange(words, device=lengths.device) < lengths[:, None]
    require_finite("token_scores", tokens, present)
    require_finite("split_scores", scores["split_scores"], valid_splits(words, lengths))
    for name in ("rule_scores", "root_scores"):
        require_finite(name, scores[name], torch.ones_like(scores[name], dtype=torch.bool))
