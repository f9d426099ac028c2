"""The nodes of a tree as a flat list, with their probabilities and entropies."""

from collections.abc import Callable
from math import log

import torch
from torch import Tensor

from permalign.explain.trace.trace import Node
from permalign.structures import Tree
from permalign.structures.derivations import RULES, Rule
from permalign.structures.splits import span_options

NodeStatistics = Callable[[Tree, Rule | None], tuple[float, float]]
"""Maps a node and the rule it may not use to the probability of its split and rule, and its span's entropy in bits."""


def node_statistics(weights: Tensor, length: int) -> NodeStatistics:
    """Compute probabilities and entropies of nodes from the weights of all splits and rules.

    Args:
        weights: ``(splits, 2)``, the weight of each rule at each split of each span.
        length: the length of the sentence.
    """

    def statistics(node: Tree, forbidden: Rule | None) -> tuple[float, float]:
        options = span_options(weights, length, node.start, node.end, forbidden).double()
        split = node.children[0].end - node.start - 1
        rule = RULES.index(node.rule) if node.rule is not None else 0
        entropy = -torch.special.xlogy(options, options).sum() / log(2)
        return round(float(options[split, rule]), 6), round(abs(float(entropy)), 6)

    return statistics


def flatten_tree(
    tree: Tree, statistics: NodeStatistics | None = None, normal_form: bool = False
) -> tuple[Node, ...]:
    """Flatten a tree into a list of nodes, root first; without recursion, because a sentence may be long.

    Args:
        tree: the tree.
        statistics: computes the probability and the entropy of each inner node; None leaves both out.
        normal_form: whether a left child may not use the rule of its parent.

    >>> tree = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> [(node.rule, node.children) for node in flatten_tree(tree)]
    [('I', (1, 2)), (None, ()), (None, ())]
    """
    subtrees = list(tree.nodes())
    index = {(subtree.start, subtree.end): number for number, subtree in enumerate(subtrees)}
    forbidden: dict[tuple[int, int], Rule | None] = {}
    nodes = []
    for subtree in subtrees:
        if normal_form and subtree.children:
            left = subtree.children[0]
            forbidden[left.start, left.end] = subtree.rule
        probability: float | None = None
        entropy: float | None = None
        if statistics is not None and len(subtree.children) == 2:
            probability, entropy = statistics(subtree, forbidden.get((subtree.start, subtree.end)))
        nodes.append(
            Node(
                start=subtree.start,
                end=subtree.end,
                rule=subtree.rule,
                label=_label(subtree),
                children=tuple(index[child.start, child.end] for child in subtree.children),
                probability=probability,
                entropy=entropy,
            )
        )
    return tuple(nodes)


def _label(tree: Tree) -> str | None:
    """Return the label of a tree's root; None in trees without labels."""
    label = getattr(tree, "label", None)
    return None if label is None else str(label)
