"""A sentence as a model reads it: its token ids, its encoding, and the reorderer's distribution over its orders."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import torch
from torch import Tensor

from permalign.explain.trace.trace import rounded
from permalign.explain.trace.tree_nodes import NodeStatistics, node_statistics
from permalign.heads.base import Head
from permalign.heads.copying import CopySource
from permalign.models.base import Model
from permalign.models.transducer import Transducer, TransducerReading, copy_source
from permalign.reorderers.base import Reordering
from permalign.structures import OrderDistribution
from permalign.tasks.base import Example
from permalign.text.batching import Batch, pad
from permalign.text.codec import UNKNOWN_ID, Codec


@dataclass(frozen=True)
class EncodedSentence:
    """A sentence, and everything that depends on nothing but the sentence and the model.

    Attributes:
        model: the transducer that reads the sentence, in evaluation mode.
        words: the words as they were given.
        tokens: the tokens as the model reads them.
        reading: the sentence as the transducer has read it.
        model_notes: what a reader must know about the whole model, of which the transducer may be a part.
    """

    model: Transducer
    words: tuple[str, ...]
    tokens: tuple[str, ...]
    reading: TransducerReading
    model_notes: tuple[str, ...] = ()

    @property
    def source(self) -> Tensor:
        """The ids ``(1, n)`` of the tokens."""
        return self.reading.batch.source

    @property
    def lengths(self) -> Tensor:
        """The length n, ``(1,)``."""
        return self.reading.batch.source_lengths

    @property
    def states(self) -> Tensor:
        """The states ``(1, n, hidden)`` that the head reads, in the original order."""
        return self.reading.states

    @property
    def reordering(self) -> Reordering:
        """The result of the reorderer's own decoding."""
        return self.reading.reordering

    @property
    def copies(self) -> CopySource | None:
        """What the model can copy, in the original order; None for a model without a copy mechanism."""
        return copy_source(self.reading.batch)

    @property
    def target(self) -> Codec:
        """The vocabulary of its outputs: with a copy mechanism, also the sentence's own unknown words."""
        return self.model.target_vocabulary(self.words)

    def head_in_order(self, order: Tensor | None) -> Head:
        """Return the head for tokens in one or several orders, ``(orders, n)``, with what these tokens copy.

        Without an order the head reads the result of the reorderer, which may be a soft matching.
        """
        if self.copies is None:
            return self.model.head
        if order is None:
            order = self.reordering.order
        if order is None:
            return self.model.head.with_copies(self.copies.with_matrix(self.reordering.matrix))
        every = self.copies.select(torch.zeros(len(order), dtype=torch.long, device=order.device))
        return self.model.head.with_copies(every.in_order(order))

    @property
    def head_over_orders(self) -> Head:
        """The head for tokens in their original order, which sums over all orders."""
        return self.model.head.with_copies(self.copies)

    @property
    def distribution(self) -> OrderDistribution | None:
        """The distribution over orders; None if the reorderer does not have one."""
        return self.reordering.distribution

    @cached_property
    def exact_distribution(self) -> OrderDistribution:
        """The distribution over orders in double precision."""
        assert self.distribution is not None
        return self.distribution.double()

    @property
    def unknown(self) -> tuple[int, ...]:
        """The indices of tokens that are not in the model's vocabulary."""
        ids = self.source[0].tolist()
        return tuple(index for index, token_id in enumerate(ids) if token_id == UNKNOWN_ID)

    @cached_property
    def node_statistics(self) -> NodeStatistics | None:
        """Computes probabilities and entropies of a tree's nodes; computed once for all trees of the sentence."""
        if self.distribution is None:
            return None
        with torch.no_grad():
            return node_statistics(self.exact_distribution.option_weights()[0], self.distribution.length)

    @cached_property
    def entropy(self) -> float | None:
        """The entropy of the distribution over trees, in bits."""
        if self.distribution is None:
            return None
        with torch.no_grad():
            return max(0.0, float(self.exact_distribution.entropy()) / log(2))

    @cached_property
    def matrix(self) -> tuple[tuple[float, ...], ...] | None:
        """The expected permutation matrix, or that of a soft matching; None if the reorderer has neither."""
        with torch.no_grad():
            if self.distribution is not None:
                return rounded(self.exact_distribution.approximate_matrix()[0].tolist())
        soft = self.reordering.matrix
        return None if soft is None or self.reordering.order is not None else rounded(soft[0].tolist())

    @property
    def normal_form(self) -> bool:
        """Whether the distribution is over trees in normal form only."""
        return self.distribution is not None and self.distribution.normal_form

    @property
    def has_phrases(self) -> bool:
        """Whether leaves may be phrases of several words, which the distribution over orders does not know."""
        return self.model.options.head.max_phrase_length > 1

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader must know about the sentence and the model before looking at anything else."""
        notes = []
        if self.unknown:
            names = ", ".join(dict.fromkeys(self.tokens[index] for index in self.unknown))
            can_copy = "; it can copy them" if self.copies is not None else ""
            notes.append(
                f"These words are not in the model's vocabulary and are read as unknown{can_copy}: {names}."
            )
        kind = self.model.options.reorderer.kind
        if kind == "none":
            notes.append("This model does not reorder: there is no tree, and every word keeps its position.")
        elif kind == "local":
            notes.append("This model mixes neighbouring words: there is no tree and no order to show.")
        elif kind == "sinkhorn" and self.reordering.order is None:
            notes.append(
                "This model reorders by a soft matching: there is a matrix, but no tree and no single order."
            )
        elif kind == "sinkhorn":
            notes.append(
                "This model reorders by the best matching: there is an order, but no tree behind it."
            )
        elif self.reordering.order is None and self.reordering.matrix is not None:
            notes.append(
                "This model decodes by the expected permutation: there is a matrix, but no single order."
            )
        if kind == "labelled" and self.reordering.order is not None:
            notes.append(
                "The probability and the entropy of a node are those of its split and rule, summed over labels."
            )
        if self.has_phrases:
            notes.append(
                "In this model several words may produce output together, as a phrase. The matrix, the probabilities "
                "of nodes and orders, and all samples are those of trees over single words."
            )
        return (*notes, *self.model_notes)


def encode_sentence(model: Model, sentence: str | Sequence[str]) -> EncodedSentence:
    """Let a model read a sentence.

    Raises:
        ValueError: the sentence has no words.
    """
    words = tuple(sentence.split() if isinstance(sentence, str) else sentence)
    ids = model.source.encode(words)
    if not ids:
        raise ValueError("the sentence is empty, but a model needs at least one word.")
    model.eval()
    source, lengths = (tensor.to(model.device) for tensor in pad([ids]))
    batch = Batch(
        source, lengths, source[:, :0], torch.zeros_like(lengths), (Example(words, (), "explained"),), (0,)
    )
    with torch.no_grad():
        reading = model.primary.read(batch)
    return EncodedSentence(
        model.primary,
        words,
        tuple(model.source.tokenize(words)),
        reading,
        model.explanation_notes,
    )
