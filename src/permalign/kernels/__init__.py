"""The recurrences, made fast: compiled for CPU tensors, plain torch for all others.

Which of the two runs is chosen by the tensor's device; `backend` forces the choice:

>>> import torch
>>> from permalign import kernels
>>> with kernels.backend("portable"):
...     kernels.inside(torch.zeros(1, 1, 2), torch.tensor([2]))[0].exp()
tensor([2.])
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import torch
from torch import Tensor

from permalign.kernels import (
    labelled,
    labelled_synchronous,
    portable,
    portable_synchronous,
    synchronous_walks,
)

Backend = Literal["auto", "cpu", "portable"]

_backend: Backend = "auto"


@contextmanager
def backend(name: Backend) -> Iterator[None]:
    """Within this context, use the compiled kernels (``cpu``), plain torch (``portable``) or choose (``auto``).

    The choice holds for the whole process (a plain global, which ``torch.compile`` can see), not for one thread.
    """
    global _backend
    if name not in ("auto", "cpu", "portable"):
        raise ValueError(f"backend must be 'auto', 'cpu' or 'portable', not {name!r}")
    before, _backend = _backend, name
    try:
        yield
    finally:
        _backend = before


def _compiled(tensor: Tensor) -> bool:
    if _backend == "cpu" and tensor.device.type != "cpu":
        raise ValueError(
            f"the compiled kernels need CPU tensors, but this one is on {tensor.device}; "
            "use kernels.backend('portable') or move it with .cpu()"
        )
    return _backend != "portable" and tensor.device.type == "cpu"


def inside(scores: Tensor, lengths: Tensor, normal_form: bool = False) -> tuple[Tensor, Tensor]:
    """Log-partition (batch,) and weights gamma (batch, T, 2); see `permalign.kernels.portable.inside`."""
    if _compiled(scores) and not normal_form:
        from permalign.kernels import cpu

        return cpu.inside(scores, lengths)
    return portable.inside(scores, lengths, normal_form)


def best_inside(scores: Tensor, lengths: Tensor, normal_form: bool = False) -> tuple[Tensor, Tensor]:
    """The weight of the best derivation, and of the best one through each option (not differentiable)."""
    if _compiled(scores) and not normal_form:
        from permalign.kernels import cpu

        return cpu.best_inside(scores.detach(), lengths)
    return portable.inside(scores.detach(), lengths, normal_form, maximise=True)


def span_softmax(logits: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """Normalise over the options of every span; see `permalign.kernels.portable.span_softmax`."""
    if _compiled(logits) and not within_rule:
        from permalign.kernels import cpu

        return cpu.span_softmax(logits, lengths)
    return portable.span_softmax(logits, lengths, within_rule)


def span_one_hot(weights: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """One at the heaviest option of every span (not differentiable)."""
    if _compiled(weights) and not within_rule:
        from permalign.kernels import cpu

        return cpu.span_one_hot(weights.detach(), lengths)
    return portable.span_one_hot(weights, lengths, within_rule)


def rule_marginals(rules: Tensor, lengths: Tensor, within: Tensor | None = None) -> Tensor:
    """How often a derivation uses each rule; see `permalign.kernels.portable.rule_marginals`."""
    if _compiled(rules) and within is None:
        from permalign.kernels import cpu

        return cpu.rule_marginals(rules, lengths)
    return portable.rule_marginals(rules, lengths, within)


def expected_matrix(rules: Tensor, lengths: Tensor, within: Tensor | None = None) -> Tensor:
    """The expected permutation matrix; see `permalign.kernels.portable.expected_matrix`."""
    if _compiled(rules) and within is None:
        from permalign.kernels import cpu

        return cpu.expected_matrix(rules, lengths)[0]
    return portable.expected_matrix(rules, lengths, within)


def tagging_inside(scores: Tensor, emissions: Tensor, lengths: Tensor, normal_form: bool = False) -> Tensor:
    """Sum over derivations with emissions; see `permalign.kernels.portable.tagging_inside`."""
    if _compiled(scores) and not normal_form:
        from permalign.kernels import cpu

        return cpu.tagging_inside(scores, emissions, lengths)[0]
    return portable.tagging_inside(scores, emissions, lengths, normal_form)


def walk(
    weights: Tensor, lengths: Tensor, uniforms: Tensor | None = None, normal_form: bool = False
) -> tuple[Tensor, Tensor]:
    """Nodes and orders of derivations chosen top-down; see `permalign.kernels.portable.walk`."""
    if _compiled(weights):
        from permalign.kernels import cpu

        return cpu.walk(weights.detach(), lengths, uniforms, normal_form)
    return portable.walk(weights, lengths, uniforms, normal_form)


def synchronous_inside(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    normal_form: bool = False,
) -> Tensor:
    """Sum over derivations that write an output; see `permalign.kernels.portable_synchronous.inside`."""
    if _compiled(scores) and not normal_form:
        from permalign.kernels import cpu_synchronous

        return cpu_synchronous.synchronous_inside(scores, segments, lengths, target_lengths, False)[0]
    return portable_synchronous.inside(scores, segments, lengths, target_lengths, normal_form)[0]


def synchronous_walk(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
    normal_form: bool = False,
) -> synchronous_walks.Walks:
    """Derivations of an output: the best, or drawn by ``uniforms`` (samples, batch, n - 1); not differentiable."""
    scores, segments, best = scores.detach(), segments.detach(), uniforms is None
    longest = segments.shape[3] - 1
    if _compiled(scores) and not normal_form:
        from permalign.kernels import cpu_synchronous

        _, chart = cpu_synchronous.synchronous_inside(scores, segments, lengths, target_lengths, best)
        pair = (segments, chart, lengths, target_lengths)
        return synchronous_walks.Walks(*cpu_synchronous.synchronous_walk(scores, *pair, uniforms))
    _, cells = portable_synchronous.inside(scores, segments, lengths, target_lengths, normal_form, best)
    masked = portable.mask_padding(scores, lengths).double()
    options = synchronous_walks.PlainOptions.of(cells, masked, normal_form)
    roots = torch.where(target_lengths <= lengths * longest, -1, -2)
    roots = roots.expand(1 if uniforms is None else uniforms.shape[0], -1)
    return synchronous_walks.walk(
        options, roots, lengths, target_lengths, portable.words_of(scores), uniforms
    )


def labelled_synchronous_inside(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> Tensor:
    """Sum over labelled trees that write an output; see `permalign.kernels.labelled_synchronous`."""
    grammar, pair = (rules, root, tokens, splits), (segments, lengths, target_lengths)
    if _compiled(tokens) and not _extreme(rules, root):
        from permalign.kernels import cpu_labelled_synchronous

        return cpu_labelled_synchronous.labelled_synchronous_inside(*grammar, *pair)[0]
    return labelled_synchronous.inside(*grammar, *pair)[0].logsumexp(-1).to(tokens.dtype)


def labelled_chart(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor, maximise: bool = False
) -> Tensor:
    """Log weights of spans by label (the best ones are not differentiable); see `permalign.kernels.labelled.inside`."""
    if maximise:
        rules, tokens, splits = rules.detach(), tokens.detach(), splits.detach()
        if _compiled(tokens):
            from permalign.kernels import cpu_labelled

            return cpu_labelled.labelled_best_inside(rules, tokens, splits, lengths)
    return labelled.inside(rules, tokens, splits, lengths, labelled.needs_logs(rules, root), maximise)


def labelled_log_partition(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> Tensor:
    """The log of the summed weight of all labelled trees, ``(batch,)``."""
    if _compiled(tokens) and not _extreme(rules, root):
        from permalign.kernels import cpu_labelled

        return cpu_labelled.labelled_inside(rules, root, tokens, splits, lengths)[0]
    chart = labelled.inside(rules, tokens, splits, lengths, labelled.needs_logs(rules, root))
    return labelled.root_scores(chart, root, lengths).logsumexp(-1)


def labelled_tagging_inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> Tensor:
    """Sum over labelled trees with emissions; see `permalign.kernels.labelled.tagging_inside`."""
    if _compiled(tokens) and not _extreme(rules, root):
        from permalign.kernels import cpu_labelled

        return cpu_labelled.labelled_tagging_inside(rules, root, tokens, splits, emissions, lengths)[0]
    logs = labelled.needs_logs(rules, root)
    return labelled.tagging_inside(rules, root, tokens, splits, emissions, lengths, logs)


def _extreme(rules: Tensor, root: Tensor) -> bool:
    """Whether double precision in probability space would not do; compilers leave the check to the operators."""
    return not torch.compiler.is_compiling() and labelled.needs_logs(rules, root, torch.float64)


def split_scores(
    start: Tensor,
    middle: Tensor,
    end: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """Score all splits from projected fenceposts; see `permalign.kernels.portable.split_scores`."""
    if _compiled(start):
        from permalign.kernels import cpu_scoring

        return cpu_scoring.split_scores(start, middle, end, weight, bias, lengths, seed, dropout)
    return portable.split_scores(start, middle, end, weight, bias, lengths, seed, dropout)


def warm_up() -> None:
    """Compile (or load from disk) every kernel in both precisions, so that nothing compiles later."""
    for dtype in (torch.float32, torch.float64):
        lengths, seed = torch.tensor([3]), torch.tensor(0)
        posts = torch.zeros(1, 4, 2, dtype=dtype, requires_grad=True)
        weight, bias = torch.zeros(2, 2, dtype=dtype), torch.zeros(2, dtype=dtype)
        scores = split_scores(posts, posts, posts, weight, bias, lengths, seed, dropout=0.5)
        log_partition, gamma = inside(scores, lengths)
        rules = span_softmax(gamma, lengths)
        likelihood = tagging_inside(scores, torch.zeros(1, 3, 3, dtype=dtype), lengths)
        total = expected_matrix(rules, lengths).sum() + rule_marginals(rules, lengths).sum()
        rules, root, tokens = (torch.zeros(shape, dtype=dtype) for shape in ((2, 2, 2, 2), (2,), (1, 3, 2)))
        grammar = (rules.requires_grad_(), root, tokens, scores)
        total = total + labelled_log_partition(*grammar, lengths).sum()
        total = total + labelled_tagging_inside(*grammar, torch.zeros(1, 3, 3, dtype=dtype), lengths).sum()
        labelled_chart(*grammar, lengths, maximise=True)
        (total + log_partition.sum() + likelihood.sum()).backward()
        best_inside(scores, lengths)
        span_one_hot(scores, lengths)
        walk(gamma, lengths)
        segments = torch.zeros(1, 3, 3, 3, dtype=dtype, requires_grad=True)
        synchronous_inside(scores.detach(), segments, lengths, torch.tensor([2])).sum().backward()
        synchronous_walk(scores, segments, lengths, torch.tensor([2]))
        pair = (scores.detach(), segments, lengths, torch.tensor([2]))
        labelled_synchronous_inside(rules, root, tokens, *pair).sum().backward()
