"""Traces as plain data: everything that is shown about a sentence.

Text, pictures, pages and the JSON of the explorer are all made from a `Trace`, and from nothing else.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from permalign.notebooks import ShownInNotebooks
from permalign.structures import Segment
from permalign.structures.derivations import Rule
from permalign.text.tokenizers import JOINER


@dataclass(frozen=True)
class Node:
    """A node of the tree over the source tokens ``start..end-1``.

    Attributes:
        start: the index of its first token.
        end: one past the index of its last token.
        rule: S (straight: its two children stay in order), I (inverted: they swap), or None for a leaf.
        label: the name of its nonterminal; None in grammars without labels.
        children: the indices of its children in `Trace.nodes`, the left one first; empty for a leaf.
        probability: the probability of this split and rule, given that the span is a constituent, summed over labels.
        entropy: the entropy of all splits and rules of the span, in bits.
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
    """How confident a model is: natural log-probabilities, or None where the model does not have them.

    Attributes:
        output: the log-probability of the output.
        derivation: the log-probability of the tree.
        order: the log-probability of the order, summed over its trees.
        entropy: the entropy of the distribution over trees, in bits; 0 if there is no doubt.
    """

    output: float | None = None
    derivation: float | None = None
    order: float | None = None
    entropy: float | None = None


@dataclass(frozen=True)
class Trace(ShownInNotebooks):
    """How a model gets from one sentence to one output.

    Attributes:
        source: the tokens as the model reads them: words, or subwords.
        target: the tokens of the output.
        target_given: whether the output was given by the caller; tree, order and confidence then take it into account.
        order: the index of the source token at each position after reordering; None if there is no discrete order.
        nodes: the tree behind the order in pre-order, root first; empty if there is none.
        segments: the source tokens behind each segment of the output; None if the head does not have segments.
        confidence: how probable the output, the tree and the order are.
        unknown: the indices of source tokens that the model does not know.
        matrix: ``[position][token]``, the probability that the token stands at the position; None if the reorderer has
            no distribution.
        alignment: ``[output token][token]``, the probability that the source token stands behind the output token,
            given the order (given only the output where a note says so); None if the head has no alignments.
        at_end: for each output token, the probability that it was written after the last source token, at the end of
            the sentence; together with it a row of `alignment` sums to one. None if a head does not write there.
        copied: for each output token, the probability that it was copied from the source; None for a model without a
            copy mechanism.
        notes: what is missing and why, and what is not exact.
        words: the words of the output, if they are not its tokens: those of characters, of subwords and of tokens that
            are joined without a space; otherwise None.
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
    copied: tuple[float, ...] | None = None
    notes: tuple[str, ...] = ()
    words: tuple[str, ...] | None = None

    @property
    def output(self) -> tuple[str, ...]:
        """The words of the output."""
        return self.target if self.words is None else self.words

    @property
    def written(self) -> tuple[str, ...]:
        """The tokens of the output without the marks of missing spaces, which many fonts do not have."""
        return tuple(token.replace(JOINER, "") or token for token in self.target)

    @property
    def reordered(self) -> tuple[str, ...] | None:
        """The source tokens in their new order."""
        return None if self.order is None else tuple(self.source[token] for token in self.order)

    def to_json(self) -> dict[str, Any]:
        """Return the trace as plain lists, strings and numbers."""
        return asdict(self)


@dataclass(frozen=True)
class DecodingVariant:
    """A sentence decoded in one of several ways.

    Attributes:
        name: greedy, viterbi or permutation.
        meaning: what this way of decoding looks for.
        trace: the result.
    """

    name: str
    meaning: str
    trace: Trace


@dataclass(frozen=True)
class Comparison(ShownInNotebooks):
    """The same sentence decoded in several ways.

    Attributes:
        variants: the results of greedy decoding, of Viterbi decoding, and of the search for the most probable order.
        gap: by how much the probability of another order could exceed that of the last variant's order; 0 if that
            order is proven to be the most probable one.
        trees_differ: whether some trees differ, labels included.
        orders_differ: whether some orders differ.
        outputs_differ: whether some outputs differ.
    """

    variants: tuple[DecodingVariant, ...]
    gap: float
    trees_differ: bool
    orders_differ: bool
    outputs_differ: bool

    @classmethod
    def of(cls, variants: Sequence[DecodingVariant], gap: float) -> "Comparison":
        """Compare variants, and note what differs."""
        traces = [variant.trace for variant in variants]
        trees = {
            tuple((node.start, node.end, node.rule, node.label) for node in trace.nodes) for trace in traces
        }
        orders, outputs = {trace.order for trace in traces}, {trace.target for trace in traces}
        return cls(tuple(variants), gap, len(trees) > 1, len(orders) > 1, len(outputs) > 1)

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain lists, strings and numbers."""
        return asdict(self)


def rounded(matrix: Sequence[Sequence[float]]) -> tuple[tuple[float, ...], ...]:
    """Round probabilities to five digits, and clip rounding errors beyond 0 and 1."""
    # most entries of a large matrix are zero after rounding, which a comparison finds out sooner
    return tuple(
        tuple([0.0 if value < 4e-6 else round(min(value, 1.0), 5) for value in row]) for row in matrix
    )
