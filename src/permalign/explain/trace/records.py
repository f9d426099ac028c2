"""A trace of one sentence: everything that is shown of it, as plain data.

Text, pictures, pages and the explorer's JSON are all made from an `Trace`, and from nothing else.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import log
from typing import Any

import torch
from torch import Tensor

from permalign.showing import ShownInNotebooks
from permalign.structures import Segment, Tree
from permalign.structures.derivations import RULES, Rule
from permalign.structures.splits import span_options


@dataclass(frozen=True)
class Node:
    """A node of the tree over the source tokens ``start..end-1``.

    Attributes:
        start: its first token.
        end: behind its last token.
        rule: S (straight: its parts stay in order), I (inverted: they swap), None for a leaf.
        label: what else the grammar calls it; None where nodes have no names.
        children: the places of its parts in `Trace.nodes`, left part first; none for a leaf.
        probability: how probable this split and rule are, given that the span is a constituent; of all labels together.
        entropy: how undecided the span's options are, in bits.
    """

    start: int
    end: int
    rule: Rule | None
    label: str | None = None
    children: tuple[int, ...] = ()
    probability: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class Confidence:
    """How sure a model is; natural logarithms of probabilities, None for what it does not have.

    Attributes:
        output: of the output.
        derivation: of the tree.
        order: of the order, summed over its trees.
        entropy: of all trees, in bits: 0 if there is no doubt.
    """

    output: float | None = None
    derivation: float | None = None
    order: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class Trace(ShownInNotebooks):
    """What a model makes of one sentence.

    Attributes:
        source: the words as the model read them (pieces of words, if it reads those).
        target: the output's words likewise.
        target_given: whether the output was given, and tree, order and confidence are those after having seen it.
        order: the source word at each place after reordering; None where there is no discrete order.
        nodes: the tree behind the order in pre-order, its root first; empty where there is none.
        segments: the source words behind each piece of the output; None where nothing leads back to source words.
        confidence: how probable all this is.
        unknown: the places of source words the model does not know.
        matrix: ``[position][token]``, how probable it is that the token stands there; None without a distribution.
        alignment: ``[output word][token]``, how probable it is that the token stands behind the word, given the order
            (given the output alone, where a note says so); None where the head has no alignments.
        at_end: for each output word, how probable it is that it was written behind the last source word, at the end of
            the sentence; with it a row of `alignment` sums to one. None where a head writes at words alone.
        notes: what there is not and why, and what is not exact.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    target_given: bool = False
    order: tuple[int, ...] | None = None
    nodes: tuple[Node, ...] = ()
    segments: tuple[Segment, ...] | None = None
    confidence: Confidence = Confidence()
    unknown: tuple[int, ...] = ()
    matrix: tuple[tuple[float, ...], ...] | None = None
    alignment: tuple[tuple[float, ...], ...] | None = None
    at_end: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()

    @property
    def reordered(self) -> tuple[str, ...] | None:
        """The source words in their new order."""
        return None if self.order is None else tuple(self.source[token] for token in self.order)

    def to_json(self) -> dict[str, Any]:
        """Plain lists, strings and numbers."""
        return asdict(self)


@dataclass(frozen=True)
class DecodingVariant:
    """One way to decode.

    Attributes:
        name: greedy, viterbi or permutation.
        meaning: what it looks for.
        trace: what comes of it.
    """

    name: str
    meaning: str
    trace: Trace


@dataclass(frozen=True)
class Comparison:
    """The same sentence decoded in several ways.

    Attributes:
        variants: greedy, Viterbi, and the most probable permutation.
        gap: by how much another order's probability could exceed the last one's; 0 when it is proven best.
        trees_differ: whether the trees are not all the same, labels included.
        orders_differ: whether the orders are not all the same.
        outputs_differ: whether the outputs are not all the same.
    """

    variants: tuple[DecodingVariant, ...]
    gap: float
    trees_differ: bool
    orders_differ: bool
    outputs_differ: bool

    @classmethod
    def of(cls, variants: Sequence[DecodingVariant], gap: float) -> "Comparison":
        """A comparison that has seen what differs."""
        traces = [variant.trace for variant in variants]
        shapes = {
            tuple((node.start, node.end, node.rule, node.label) for node in one.nodes) for one in traces
        }
        orders, outputs = {one.order for one in traces}, {one.target for one in traces}
        return cls(tuple(variants), gap, len(shapes) > 1, len(orders) > 1, len(outputs) > 1)

    def to_json(self) -> dict[str, Any]:
        """Plain lists, strings and numbers."""
        return asdict(self)


Judge = Callable[[Tree, Rule | None], tuple[float, float]]
"""From a node and the rule it may not use to its option's probability and its span's entropy in bits."""


def judge_of(weights: Tensor, length: int) -> Judge:
    """A judge of the nodes of a sentence of that length, by the weights ``(splits, 2)`` of all spans' options."""

    def judge(node: Tree, forbidden: Rule | None) -> tuple[float, float]:
        options = span_options(weights, length, node.start, node.end, forbidden).double()
        middle = node.children[0].end - node.start - 1
        rule = RULES.index(node.rule) if node.rule is not None else 0
        entropy = -torch.special.xlogy(options, options).sum() / log(2)
        return round(float(options[middle, rule]), 6), round(abs(float(entropy)), 6)

    return judge


def nodes_of(tree: Tree, judge: Judge | None = None, normal_form: bool = False) -> tuple[Node, ...]:
    """A tree as a flat list of nodes, its root first; without recursion, for a sentence may be long.

    >>> tree = Tree(0, 2, "I", (Tree(0, 1), Tree(1, 2)))
    >>> [(node.rule, node.children) for node in nodes_of(tree)]
    [('I', (1, 2)), (None, ()), (None, ())]
    """
    flat = list(tree.nodes())
    place = {(node.start, node.end): number for number, node in enumerate(flat)}
    banned: dict[tuple[int, int], Rule | None] = {}
    nodes = []
    for node in flat:
        if normal_form and node.children:
            left = node.children[0]
            banned[left.start, left.end] = node.rule
        judged: tuple[float | None, float | None] = (None, None)
        if judge is not None and len(node.children) == 2:
            judged = judge(node, banned.get((node.start, node.end)))
        nodes.append(
            Node(
                start=node.start,
                end=node.end,
                rule=node.rule,
                label=_label(node),
                children=tuple(place[child.start, child.end] for child in node.children),
                probability=judged[0],
                entropy=judged[1],
            )
        )
    return tuple(nodes)


def _label(node: Tree) -> str | None:
    """The name of a node, in trees that have names."""
    label = getattr(node, "label", None)
    return None if label is None else str(label)


def rounded(matrix: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Probabilities with as many digits as anybody looks at."""
    return tuple(tuple(round(min(max(value, 0.0), 1.0), 5) for value in row) for row in matrix)
