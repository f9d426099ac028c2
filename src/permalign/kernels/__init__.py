"""The recurrences made fast: compiled loops for CPU tensors, plain torch for all others.

This module is the one place that chooses between them. Each function below calls one of

- a torch operator in `permalign.kernels.operators`, which runs loops of `permalign.kernels.compiled`;
- a function in `permalign.kernels.vectorized`: plain torch, with a backward pass that is written by hand;
- a function in `permalign.kernels.portable`, where the recurrence is documented: plain torch that autograd records.

The tensors' device decides which, unless `backend` overrides it:

>>> import torch
>>> from permalign import kernels
>>> with kernels.backend("portable"):
...     kernels.inside(torch.zeros(1, 1, 2), torch.tensor([2]))[0].exp()
tensor([2.])

Importing this module registers the operators with torch, which a program saved by ``torch.export`` needs.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, get_args

import torch
from torch import Tensor

from permalign.kernels import operators, portable, vectorized
from permalign.kernels.layout import length_of, root_scores, span_count
from permalign.kernels.numerics import LOG_TWO, LOG_ZERO, needs_logs
from permalign.kernels.portable.pruned_synchronous import Pruning
from permalign.kernels.portable.synchronous import Walks
from permalign.precision import outside_autocast

__all__ = [
    "Backend",
    "Pruning",
    "Walks",
    "backend",
    "best_inside",
    "expected_matrix",
    "factorised_chart",
    "factorised_log_partition",
    "factorised_tagging_inside",
    "inside",
    "labelled_chart",
    "labelled_log_partition",
    "labelled_synchronous_inside",
    "labelled_synchronous_walk",
    "labelled_tagging_inside",
    "pruned_synchronous_inside",
    "rule_marginals",
    "span_one_hot",
    "span_softmax",
    "split_scores",
    "synchronous_bounds",
    "synchronous_inside",
    "synchronous_walk",
    "tagging_inside",
    "walk",
    "warm_up",
    "writing_weights",
]

Backend = Literal["auto", "compiled", "vectorized", "portable"]

GROUP_BYTES = 2**26
"""How large the charts of a group of pairs may be where only their sums are wanted."""

_backend: Backend = "auto"


@contextmanager
def backend(name: Backend) -> Iterator[None]:
    """Within this context, use a certain kind of kernels instead of letting the device decide (``auto``).

    ``compiled`` kernels need CPU tensors, for which they are the default. ``vectorized`` ones are the default on other
    devices. ``portable`` ones are slower and need more memory, but can be differentiated any number of times; they
    also stand in for vectorized kernels of recurrences that have none.

    The choice holds for the whole process, not just for one thread: it is a global variable, because ``torch.compile``
    cannot see one that belongs to a thread.

    Args:
        name: ``auto``, ``compiled``, ``vectorized`` or ``portable``.
    """
    global _backend
    if name not in get_args(Backend):
        raise ValueError(f"backend must be one of {', '.join(map(repr, get_args(Backend)))}, not {name!r}")
    before, _backend = _backend, name
    try:
        yield
    finally:
        _backend = before


def _compiled(tensor: Tensor) -> bool:
    """Whether the compiled kernels are to be used for this tensor."""
    if _backend == "compiled" and tensor.device.type != "cpu":
        raise ValueError(
            f"the compiled kernels need CPU tensors, but this one is on {tensor.device}; "
            "use kernels.backend('vectorized') or move it with .cpu()"
        )
    return _backend in ("auto", "compiled") and tensor.device.type == "cpu"


def _vectorized() -> bool:
    """Whether to use the vectorized kernels where the compiled ones are not used."""
    return _backend != "portable"


# --- Separable permutations -----------------------------------------------------------------------------------
# Except for walks, the normal form is always computed by portable kernels.


@outside_autocast
def inside(scores: Tensor, lengths: Tensor, normal_form: bool = False) -> tuple[Tensor, Tensor]:
    """Log-partition (batch,) and weights gamma (batch, T, 2); see `permalign.kernels.portable.separable.inside`."""
    if normal_form:
        return portable.separable.inside(scores, lengths, normal_form)
    if _compiled(scores):
        return operators.separable.inside(scores, lengths)
    return (vectorized if _vectorized() else portable).separable.inside(scores, lengths)


@outside_autocast
def best_inside(scores: Tensor, lengths: Tensor, normal_form: bool = False) -> tuple[Tensor, Tensor]:
    """The weight of the best derivation, and of the best one through each option (not differentiable)."""
    if _compiled(scores) and not normal_form:
        return operators.separable.best_inside(scores.detach(), lengths)
    return portable.separable.inside(scores.detach(), lengths, normal_form, maximise=True)


@outside_autocast
def span_softmax(logits: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """Normalise over the options of every span; see `permalign.kernels.portable.separable.span_softmax`."""
    if within_rule:
        return portable.separable.span_softmax(logits, lengths, within_rule)
    if _compiled(logits):
        return operators.separable.span_softmax(logits, lengths)
    return (vectorized if _vectorized() else portable).separable.span_softmax(logits, lengths)


@outside_autocast
def span_one_hot(weights: Tensor, lengths: Tensor, within_rule: bool = False) -> Tensor:
    """One at the heaviest option of every span, zero elsewhere (not differentiable)."""
    if _compiled(weights) and not within_rule:
        return operators.separable.span_one_hot(weights.detach(), lengths)
    return portable.separable.span_one_hot(weights, lengths, within_rule)


@outside_autocast
def rule_marginals(rules: Tensor, lengths: Tensor, given_rule: Tensor | None = None) -> Tensor:
    """How probable each option is in a derivation; see `permalign.kernels.portable.separable.rule_marginals`."""
    if given_rule is not None:
        return portable.separable.rule_marginals(rules, lengths, given_rule)
    if _compiled(rules):
        return operators.separable.rule_marginals(rules, lengths)
    return (vectorized if _vectorized() else portable).separable.rule_marginals(rules, lengths)


@outside_autocast
def expected_matrix(rules: Tensor, lengths: Tensor, given_rule: Tensor | None = None) -> Tensor:
    """The expected permutation matrix; see `permalign.kernels.portable.separable.expected_matrix`."""
    if given_rule is not None:
        return portable.separable.expected_matrix(rules, lengths, given_rule)
    if _compiled(rules):
        return operators.separable.expected_matrix(rules, lengths)[0]
    return (vectorized if _vectorized() else portable).separable.expected_matrix(rules, lengths)


@outside_autocast
def tagging_inside(scores: Tensor, emissions: Tensor, lengths: Tensor, normal_form: bool = False) -> Tensor:
    """Sum over derivations with emissions; see `permalign.kernels.portable.separable.tagging_inside`."""
    if normal_form:
        return portable.separable.tagging_inside(scores, emissions, lengths, normal_form)
    if _compiled(scores):
        return operators.separable.tagging_inside(scores, emissions, lengths)[0]
    return (vectorized if _vectorized() else portable).separable.tagging_inside(scores, emissions, lengths)


@outside_autocast
def walk(
    weights: Tensor, lengths: Tensor, uniforms: Tensor | None = None, normal_form: bool = False
) -> tuple[Tensor, Tensor]:
    """Nodes and orders of derivations chosen top-down; see `permalign.kernels.portable.separable.walk`."""
    if _compiled(weights):
        return operators.separable.walk(weights.detach(), lengths, uniforms, normal_form)
    return portable.separable.walk(weights, lengths, uniforms, normal_form)


# --- Labelled trees -------------------------------------------------------------------------------------------


@outside_autocast
def labelled_chart(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor, maximise: bool = False
) -> Tensor:
    """Log-weights of spans by label; see `permalign.kernels.portable.labelled.inside`.

    With ``maximise`` they are the weights of the best trees, which are not differentiable. Only these are computed by
    compiled kernels: the operator for sums has a chart of scaled probabilities, which only its backward pass can use.
    """
    if maximise:
        rules, tokens, splits = rules.detach(), tokens.detach(), splits.detach()
        if _compiled(tokens):
            return operators.labelled.best_inside(rules, tokens, splits, lengths)
    return portable.labelled.inside(rules, tokens, splits, lengths, needs_logs(rules, root), maximise)


@outside_autocast
def labelled_log_partition(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> Tensor:
    """The log of the summed weight of all labelled trees, ``(batch,)``."""
    if _compiled(tokens) and not _extreme(rules, root):
        return operators.labelled.inside(rules, root, tokens, splits, lengths)[0]
    chart = portable.labelled.inside(rules, tokens, splits, lengths, needs_logs(rules, root))
    return root_scores(chart, root, lengths).logsumexp(-1)


@outside_autocast
def labelled_tagging_inside(
    rules: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> Tensor:
    """Sum over labelled trees with emissions; see `permalign.kernels.portable.labelled.tagging_inside`."""
    if _compiled(tokens) and not _extreme(rules, root):
        return operators.labelled.tagging_inside(rules, root, tokens, splits, emissions, lengths)[0]
    logs = needs_logs(rules, root)
    return portable.labelled.tagging_inside(rules, root, tokens, splits, emissions, lengths, logs)


def _extreme(rules: Tensor | Sequence[Tensor], root: Tensor) -> bool:
    """Whether scores differ too much for double precision in probability space.

    While ``torch.compile`` traces a program, values are unknown; the operators check them again when they run.
    """
    return not torch.compiler.is_compiling() and needs_logs(rules, root, torch.float64)


# --- Labelled trees whose rules are products ------------------------------------------------------------------


@outside_autocast
def factorised_chart(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor, maximise: bool = False
) -> Tensor:
    """Log-weights of spans by label; see `permalign.kernels.portable.factorised.inside`, and `labelled_chart`."""
    if maximise:
        factors, tokens, splits = factors.detach(), tokens.detach(), splits.detach()
        if _compiled(tokens):
            return operators.factorised.best_inside(factors, tokens, splits, lengths)
    logs = needs_logs(factors.unbind(1), root)
    return portable.factorised.inside(factors, tokens, splits, lengths, logs, maximise)


@outside_autocast
def factorised_log_partition(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, lengths: Tensor
) -> Tensor:
    """The log of the summed weight of all labelled trees, ``(batch,)``, whose rules are products."""
    if _compiled(tokens) and not _extreme(factors.unbind(1), root):
        return operators.factorised.inside(factors, root, tokens, splits, lengths)[0]
    logs = needs_logs(factors.unbind(1), root)
    chart = portable.factorised.inside(factors, tokens, splits, lengths, logs)
    return root_scores(chart, root, lengths).logsumexp(-1)


@outside_autocast
def factorised_tagging_inside(
    factors: Tensor, root: Tensor, tokens: Tensor, splits: Tensor, emissions: Tensor, lengths: Tensor
) -> Tensor:
    """Sum over labelled trees with emissions; see `permalign.kernels.portable.factorised.tagging_inside`."""
    if _compiled(tokens) and not _extreme(factors.unbind(1), root):
        return operators.factorised.tagging_inside(factors, root, tokens, splits, emissions, lengths)[0]
    logs = needs_logs(factors.unbind(1), root)
    return portable.factorised.tagging_inside(factors, root, tokens, splits, emissions, lengths, logs)


# --- Derivations that write an output -------------------------------------------------------------------------


@outside_autocast
def synchronous_inside(
    scores: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, normal_form: bool = False
) -> Tensor:
    """Sum over derivations that write an output; see `permalign.kernels.portable.synchronous.inside`."""
    if _compiled(scores) and not normal_form:
        pairs = (scores, segments, lengths, target_lengths)
        return _sum_in_groups(
            lambda *group: operators.synchronous.inside(*group, False)[0],
            pairs,
            span_count(length_of(scores)) * segments.shape[2] ** 2,
        )
    return portable.synchronous.inside(scores, segments, lengths, target_lengths, normal_form)[0]


@outside_autocast
def synchronous_walk(
    scores: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
    normal_form: bool = False,
) -> Walks:
    """The best derivations of outputs, or samples by ``uniforms`` (samples, batch, n - 1); not differentiable."""
    scores, segments = scores.detach(), segments.detach()
    if _compiled(scores) and not normal_form:
        best = uniforms is None
        _, chart = operators.synchronous.inside(scores, segments, lengths, target_lengths, best)
        return Walks(*operators.synchronous.walk(scores, segments, chart, lengths, target_lengths, uniforms))
    return portable.synchronous.walk(scores, segments, lengths, target_lengths, uniforms, normal_form)


@outside_autocast
def synchronous_bounds(
    rules: Tensor, segments: Tensor, lengths: Tensor, target_lengths: Tensor, threshold: float
) -> Pruning:
    """Which cells of charts of outputs to keep; see `permalign.kernels.portable.pruned_synchronous.bound_cells`.

    ``rules`` are the probabilities of the options of every span (`span_softmax`). Nothing here is differentiable.
    """
    arguments = (
        rule_marginals(rules.detach(), lengths),
        segments.detach(),
        lengths,
        target_lengths,
        threshold,
    )
    if _compiled(rules):
        return Pruning(*operators.pruned_synchronous.bound_cells(*arguments))
    return portable.pruned_synchronous.bound_cells(*arguments)


@outside_autocast
def pruned_synchronous_inside(
    rules: Tensor, segments: Tensor, pruning: Pruning, lengths: Tensor, target_lengths: Tensor
) -> Tensor:
    """Sum over kept cells; see `permalign.kernels.portable.pruned_synchronous.inside`. In double precision."""
    if _compiled(rules):
        scales_and_rows = pruning.token_scales, pruning.output_scales, pruning.rows
        return _sum_in_groups(
            lambda *group: operators.pruned_synchronous.inside(*group)[0],
            (rules, segments, *scales_and_rows, lengths, target_lengths),
            span_count(segments.shape[1]) * segments.shape[2] ** 2,
        )
    return portable.pruned_synchronous.inside(rules, segments, pruning, lengths, target_lengths)


@outside_autocast
def labelled_synchronous_inside(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
) -> Tensor:
    """Sum over labelled trees that write an output; see `permalign.kernels.portable.labelled_synchronous.inside`."""
    pairs = (tokens, splits, segments, lengths, target_lengths)
    if _compiled(tokens) and not _extreme(rules, root):
        return _sum_in_groups(
            lambda *group: operators.labelled_synchronous.inside(rules, root, *group)[0],
            pairs,
            span_count(tokens.shape[1])
            * segments.shape[2] ** 2
            * (operators.labelled.padded(tokens.shape[2]) + 1),
        )
    return portable.labelled_synchronous.inside(rules, root, *pairs)[0].logsumexp(-1).to(tokens.dtype)


@outside_autocast
def labelled_synchronous_walk(
    rules: Tensor,
    root: Tensor,
    tokens: Tensor,
    splits: Tensor,
    segments: Tensor,
    lengths: Tensor,
    target_lengths: Tensor,
    uniforms: Tensor | None = None,
) -> Walks:
    """Labelled derivations of an output: the best, or drawn by ``uniforms`` (samples, batch, n); not differentiable."""
    rules, root, tokens, splits, segments = (
        part.detach() for part in (rules, root, tokens, splits, segments)
    )
    pairs = (tokens, splits, segments, lengths, target_lengths)
    if _compiled(tokens) and uniforms is None:
        chart = operators.labelled_synchronous.best_inside(rules, *pairs)
    elif _compiled(tokens) and not _extreme(rules, root):
        _, values, scales = operators.labelled_synchronous.inside(rules, root, *pairs)
        chart = values[..., : tokens.shape[2]].log().add_(LOG_TWO * scales[..., None]).clamp_(min=LOG_ZERO)
    else:
        cells = portable.labelled_synchronous.inside(rules, root, *pairs, maximise=uniforms is None)[1]
        chart = torch.cat(cells, dim=1)
    fenceposts, labels = segments.shape[2], tokens.shape[2]
    return portable.labelled_synchronous.walk(
        chart.view(len(lengths), -1, fenceposts, fenceposts, labels),
        rules,
        root,
        splits,
        lengths,
        target_lengths,
        segments.shape[3] - 1,
        uniforms,
    )


def _sum_in_groups(log_sum: Callable[..., Tensor], pairs: tuple[Tensor, ...], chart_size: int) -> Tensor:
    """The log-sums of a batch of pairs; without gradients, of a few pairs at a time, because no chart has to be kept.

    Args:
        log_sum: computes the log-sums of a group of pairs.
        pairs: its arguments, whose first axis is the batch.
        chart_size: how many numbers the chart of one pair holds.
    """
    if torch.is_grad_enabled() or torch.compiler.is_compiling():
        return log_sum(*pairs)
    size = max(torch.get_num_threads(), GROUP_BYTES // (8 * chart_size))
    groups = [[part[start : start + size] for part in pairs] for start in range(0, len(pairs[0]), size)]
    return log_sum(*pairs) if len(groups) < 2 else torch.cat([log_sum(*group) for group in groups])


# --- Scoring splits -------------------------------------------------------------------------------------------


@outside_autocast
def split_scores(
    projections: Tensor,
    hidden_bias: Tensor,
    weight: Tensor,
    bias: Tensor,
    lengths: Tensor,
    seed: Tensor,
    dropout: float = 0.0,
) -> Tensor:
    """Score all splits from projected fenceposts; see `permalign.kernels.portable.scoring.split_scores`."""
    arguments = (projections, hidden_bias, weight, bias, lengths, seed, dropout)
    if _compiled(projections):
        return operators.scoring.split_scores(*arguments)
    return (vectorized if _vectorized() else portable).scoring.split_scores(*arguments)


# --- Monotone alignments --------------------------------------------------------------------------------------


@outside_autocast
def writing_weights(
    cells: Tensor, steps: Tensor, weight: Tensor, bias: Tensor, arrived: Tensor, lengths: Tensor
) -> Tensor:
    """The weights of cells that write the next token; see `permalign.kernels.portable.monotone.writing_weights`."""
    arguments = (cells, steps, weight, bias, arrived, lengths)
    return (operators if _compiled(cells) else portable).monotone.writing_weights(*arguments)


# --- Compiling beforehand -------------------------------------------------------------------------------------


def warm_up() -> None:
    """Compile (or load from disk) every kernel in both precisions, so that nothing has to be compiled later."""
    for dtype in (torch.float32, torch.float64):
        lengths, seed = torch.tensor([3]), torch.tensor(0)
        projections = torch.zeros(1, 4, 2, 2, dtype=dtype, requires_grad=True)
        weight, bias = torch.zeros(2, 2, dtype=dtype), torch.zeros(2, dtype=dtype)
        scores = split_scores(projections, bias, weight, bias, lengths, seed, dropout=0.5)
        log_partition, gamma = inside(scores, lengths)
        rules = span_softmax(gamma, lengths)
        likelihood = tagging_inside(scores, torch.zeros(1, 3, 3, dtype=dtype), lengths)
        total = expected_matrix(rules, lengths).sum() + rule_marginals(rules, lengths).sum()
        rules, root, tokens = (torch.zeros(shape, dtype=dtype) for shape in ((2, 2, 2, 2), (2,), (1, 3, 2)))
        grammar = (rules.requires_grad_(), root, tokens, scores)
        total = total + labelled_log_partition(*grammar, lengths).sum()
        total = total + labelled_tagging_inside(*grammar, torch.zeros(1, 3, 3, dtype=dtype), lengths).sum()
        labelled_chart(*grammar, lengths, maximise=True)
        # with two labels, the factors of rules have the shape of rules
        total = total + factorised_log_partition(*grammar, lengths).sum()
        total = total + factorised_tagging_inside(*grammar, torch.zeros(1, 3, 3, dtype=dtype), lengths).sum()
        factorised_chart(*grammar, lengths, maximise=True)
        (total + log_partition.sum() + likelihood.sum()).backward()
        best_inside(scores, lengths)
        span_one_hot(scores, lengths)
        walk(gamma, lengths)
        cells, arrived = torch.zeros(1, 3, 2, dtype=dtype), torch.zeros(1, 1, 3, dtype=dtype)
        writing_weights(cells, cells[:, :1], weight[0], bias[:1], arrived, lengths)
        segments = torch.zeros(1, 3, 3, 3, dtype=dtype, requires_grad=True)
        synchronous_inside(scores.detach(), segments, lengths, torch.tensor([2])).sum().backward()
        synchronous_walk(scores, segments, lengths, torch.tensor([2]))
        pair = (scores.detach(), segments, lengths, torch.tensor([2]))
        labelled_synchronous_inside(rules, root, tokens, *pair).sum().backward()
        labelled_synchronous_walk(rules, root, tokens, *pair)
    rules, segments = span_softmax(scores.detach(), lengths), segments.detach().requires_grad_()
    pruning = synchronous_bounds(rules, segments, lengths, torch.tensor([2]), 0.0)
    pruned_synchronous_inside(rules, segments, pruning, lengths, torch.tensor([2])).sum().backward()
