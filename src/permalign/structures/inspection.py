"""Looking into a distribution over separable permutations: single spans, the tree of an order, sampled trees."""

from collections.abc import Sequence

import torch
from torch import Tensor

from permalign import kernels
from permalign.kernels.layout import split_index, split_offset
from permalign.shapes import Float
from permalign.structures.derivations import RULES, Derivation, Tree
from permalign.structures.restriction import LOG_ZERO, splits_of_order
from permalign.structures.separable import SeparablePermutation


def span_options(
    rules: Float[Tensor, "splits 2"], words: int, start: int, end: int, forbidden: str | None = None
) -> Float[Tensor, "middles 2"]:
    """How probable each middle and rule of one span is, given that it is a constituent; they sum to one.

    Args:
        rules: of one sentence, packed: probabilities of options (`SeparablePermutation.rule_probabilities`), or any
            weights of them, marginals for one.
        words: the room that ``rules`` has, n.
        start: where the span begins, with the next argument its end, as fenceposts.
        end: see there.
        forbidden: the rule that this span may not use (in normal form, its parent's if it is the left child).

    >>> weights = torch.tensor([[3.0, 1.0], [1.0, 1.0], [1.0, 0.0], [1.0, 2.0]])  # the splits of three words
    >>> span_options(weights, 3, 0, 3)
    tensor([[0.2500, 0.0000],
            [0.2500, 0.5000]])
    """
    width = end - start
    first = split_offset(words, width) + start * (width - 1)
    options = rules[first : first + width - 1].double()
    if forbidden is not None:
        allowed = torch.tensor([float(rule != forbidden) for rule in RULES], device=options.device)
        options = options * allowed
    return (options / options.sum().clamp(min=torch.finfo(options.dtype).tiny)).to(rules.dtype)


def derivation_of_order(distribution: SeparablePermutation, order: Sequence[int]) -> Derivation | None:
    """The most probable derivation of one order of a single sentence; None if no derivation has it. O(n^3).

    >>> uniform = SeparablePermutation(torch.zeros(1, 4, 2))
    >>> found = derivation_of_order(uniform, [2, 1, 0])
    >>> found.order, round(found.log_prob, 4)  # one of eight
    ((2, 1, 0), -2.0794)
    """
    _require_one(distribution)
    wanted = torch.tensor([list(order)], device=distribution.scores.device)
    total = float(distribution.log_prob(wanted).detach())
    if total == -torch.inf:
        return None
    scores = distribution.scores.detach().double().masked_fill(~splits_of_order(wanted), LOG_ZERO)
    restricted = SeparablePermutation(
        scores, distribution.lengths, distribution.normal_form, validate_args=False
    )
    (best,) = restricted.best_derivation()
    return Derivation(best.tree, best.order, min(0.0, best.log_prob + total))


def sample_derivations(
    distribution: SeparablePermutation, count: int, generator: torch.Generator | None = None
) -> list[Derivation]:
    """Exact samples of derivations of a single sentence: `SeparablePermutation.sample` with the trees. O(n^3).

    >>> uniform = SeparablePermutation(torch.zeros(1, 4, 2))
    >>> drawn = sample_derivations(uniform, 100, torch.Generator().manual_seed(0))
    >>> {round(one.log_prob, 4) for one in drawn}, len({one.tree for one in drawn})
    ({-2.0794}, 8)
    """
    _require_one(distribution)
    exact = distribution.double()
    with torch.no_grad():
        uniforms = torch.rand(
            (count, 1, max(exact.words - 1, 0)), generator=generator, dtype=torch.float64
        ).to(exact.scores.device)
        weights = exact.rule_probabilities().log()  # ratios within a span are all that a walk looks at
        nodes, _ = kernels.walk(weights, exact.lengths, uniforms, exact.normal_form)
        log_partition = exact.log_partition()
        return [_derivation(exact, chosen[0], float(log_partition)) for chosen in nodes]


def log_prob_of_tree(distribution: SeparablePermutation, tree: Tree) -> float:
    """The log-probability of one derivation of a single sentence. O(n^3).

    >>> uniform = SeparablePermutation(torch.zeros(1, 1, 2))
    >>> round(log_prob_of_tree(uniform, Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))), 4)
    -0.6931
    """
    _require_one(distribution)
    nodes = [
        (node.start, node.children[0].end, node.end, RULES.index(node.rule))
        for node in tree.nodes()
        if node.rule is not None
    ]
    chosen = torch.tensor(nodes, dtype=torch.int64, device=distribution.scores.device).view(-1, 4)
    exact = distribution.double()
    with torch.no_grad():
        return _derivation(exact, chosen, float(exact.log_partition())).log_prob


def _derivation(distribution: SeparablePermutation, nodes: Tensor, log_partition: float) -> Derivation:
    length = int(distribution.lengths[0])
    chosen = nodes[: length - 1]
    start, middle, end, rule = chosen.unbind(-1)
    scores = distribution.scores[0, split_index(distribution.words, start, middle, end), rule]
    tree = Tree.from_nodes(chosen.tolist(), length)
    return Derivation(tree, tree.order, min(0.0, float(scores.sum()) - log_partition))


def _require_one(distribution: SeparablePermutation) -> None:
    if distribution.batch_shape[0] != 1 or int(distribution.lengths[0]) != distribution.words:
        raise ValueError(
            f"the distribution has {distribution.batch_shape[0]} sentences with room for {distribution.words} words, "
            "but this looks at a single one without padding. Make a distribution of that sentence alone."
        )
