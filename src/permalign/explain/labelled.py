"""Derivations with labels, of a single sentence: drawn with their labels, and how probable one is."""

import torch
from torch import Tensor

from permalign import kernels
from permalign.kernels.portable.labelled import walk
from permalign.structures import Derivation, LabelledPermutation, Tree
from permalign.structures.derivations import RULES
from permalign.structures.labelled_search import weighed_derivations


@torch.no_grad()
def sample_labelled(
    distribution: LabelledPermutation, count: int, generator: torch.Generator | None = None
) -> list[Derivation]:
    """Exact samples of labelled derivations: `LabelledPermutation.sample` with the trees. O(n^3 K^3).

    >>> uniform = LabelledPermutation(torch.zeros(2, 2, 2, 2), torch.zeros(1, 2, 2))
    >>> drawn = sample_labelled(uniform, 100, torch.Generator().manual_seed(0))
    >>> {round(one.log_prob, 4) for one in drawn}, len({one.tree for one in drawn})  # 2 rules, 3 labels of two kinds
    ({-2.7726}, 16)
    """
    exact = distribution.double()
    uniforms = torch.rand((count, 1, exact.words), generator=generator, dtype=torch.float64)
    chart = kernels.labelled_chart(*_parts(exact), exact.lengths, False)
    nodes, leaves, _ = walk(
        chart,
        exact.rule_scores,
        exact.root_scores,
        exact.split_scores,
        exact.lengths,
        uniforms.to(chart.device),
    )
    total = exact.log_partition()
    return [_weighed(exact, *chosen, total) for chosen in zip(nodes, leaves, strict=True)]


@torch.no_grad()
def labelled_log_prob(distribution: LabelledPermutation, tree: Tree) -> float:
    """The log-probability of one labelled derivation. O(n^3 K^3).

    >>> uniform = LabelledPermutation(torch.zeros(2, 2, 2, 2), torch.zeros(1, 2, 2))
    >>> round(labelled_log_prob(uniform, uniform.best_derivation()[0].tree), 4)
    -2.7726
    """
    nodes = [
        (node.start, node.children[0].end, node.end, RULES.index(node.rule), node.label)
        for node in tree.nodes()
        if node.rule is not None
    ]
    leaves = sorted((node.start, node.label) for node in tree.nodes() if node.rule is None)
    device = distribution.token_scores.device
    inner = torch.tensor(nodes, dtype=torch.int64, device=device).view(1, -1, 5)
    labels = torch.tensor([[label for _, label in leaves]], device=device)
    exact = distribution.double()
    return _weighed(exact, inner, labels, exact.log_partition()).log_prob


def _weighed(exact: LabelledPermutation, nodes: Tensor, leaves: Tensor, total: Tensor) -> Derivation:
    (one,) = weighed_derivations(*_parts(exact), nodes, leaves, exact.lengths, total)
    return one


def _parts(exact: LabelledPermutation) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return exact.rule_scores, exact.root_scores, exact.token_scores, exact.split_scores
