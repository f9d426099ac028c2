"""One sentence as a model reads it, and what the model writes when its words stand in a given order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log

import torch
from torch import Tensor

from permalign.decoding.beam import beam_search
from permalign.explain.trace.records import Confidence, Judge, Trace, judge_of, nodes_of, rounded
from permalign.model import Transducer
from permalign.reorderers.base import Reordering
from permalign.reorderers.discrete_order import take_order
from permalign.structures import Derivation, OrderDistribution, Segment
from permalign.text.batching import pad
from permalign.text.codec import UNKNOWN_ID


@dataclass(frozen=True)
class EncodedSentence:
    """A sentence, and all that depends on it alone.

    Attributes:
        model: that reads it, in evaluation mode.
        words: as they were given.
        units: as the model reads them.
        source: ``(1, n)``, their numbers.
        lengths: ``(1,)``
        states: ``(1, n, width)``, what the head reads, in the original order.
        reordering: what the reorderer makes of it by its own decoding.
    """

    model: Transducer
    words: tuple[str, ...]
    units: tuple[str, ...]
    source: Tensor
    lengths: Tensor
    states: Tensor
    reordering: Reordering

    @property
    def distribution(self) -> OrderDistribution | None:
        """Over orders, where the reorderer has one."""
        return self.reordering.distribution

    @property
    def unknown(self) -> tuple[int, ...]:
        """The places of words the model does not know."""
        return tuple(place for place, number in enumerate(self.source[0].tolist()) if number == UNKNOWN_ID)

    @cached_property
    def judge(self) -> Judge | None:
        """Of a tree's nodes, where there is a distribution; found once for all trees of the sentence."""
        if self.distribution is None:
            return None
        with torch.no_grad():
            return judge_of(self.distribution.double().option_weights()[0], self.distribution.length)

    @cached_property
    def entropy(self) -> float | None:
        """Of all trees, in bits."""
        if self.distribution is None:
            return None
        with torch.no_grad():
            return max(0.0, float(self.distribution.double().entropy()) / log(2))

    @cached_property
    def matrix(self) -> tuple[tuple[float, ...], ...] | None:
        """Where each token stands, on average or by a soft matching; None where nothing of the kind is there."""
        with torch.no_grad():
            if self.distribution is not None:
                return rounded(self.distribution.double().expected_matrix()[0].tolist())
        soft = self.reordering.matrix
        return None if soft is None or self.reordering.order is not None else rounded(soft[0].tolist())

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the sentence and of its reorderer before looking at anything else."""
        notes = []
        if self.unknown:
            names = ", ".join(dict.fromkeys(self.units[place] for place in self.unknown))
            notes.append(f"Not in the model's vocabulary, and read as unknown: {names}.")
        kind = self.model.options.reorderer.kind
        if kind == "none":
            notes.append("This model does not reorder: there is no tree, and every word keeps its place.")
        elif kind == "local":
            notes.append("This model mixes neighbouring words: there is no tree and no order to show.")
        elif kind == "sinkhorn" and self.reordering.order is None:
            notes.append("This model reorders by a soft matching: a matrix, but no tree and no single order.")
        elif kind == "sinkhorn":
            notes.append("This model reorders by the best matching: an order, but no tree behind it.")
        elif self.reordering.order is None and self.reordering.matrix is not None:
            notes.append("This model decodes by the expected permutation: a matrix, but no single order.")
        if kind == "labelled" and self.reordering.order is not None:
            notes.append(
                "Nodes are judged summed over labels: by their split and rule, whatever they are called."
            )
        if self.has_phrases:
            notes.append(
                "Several words may write together here. The matrix, the probabilities of nodes and orders, and all "
                "that is sampled are of trees over single words."
            )
        if self.model.others:
            notes.append(
                f"{len(self.model.members)} models answer together: the answer and its probability are of all, "
                "everything else is of the first."
            )
        return tuple(notes)

    @property
    def has_phrases(self) -> bool:
        """Whether leaves may be phrases, which the distribution over orders knows nothing of."""
        return self.model.options.head.max_phrase_length > 1


def read(model: Transducer, sentence: str | Sequence[str]) -> EncodedSentence:
    """Let a model read a sentence.

    Raises:
        ValueError: there is no word in it.
    """
    words = tuple(sentence.split() if isinstance(sentence, str) else sentence)
    numbers = model.source.encode(words)
    if not numbers:
        raise ValueError("the sentence is empty, but a model needs at least one word.")
    model.eval()
    source, lengths = (tensor.to(model.device) for tensor in pad([numbers]))
    with torch.no_grad():
        states = model.embeddings(source)
        if (
            encoder := getattr(model, "encoder", None)
        ) is not None:  # words in context, before any reordering
            states = encoder(states, lengths)
        reordering = model.reorderer(source, lengths, states)
    return EncodedSentence(
        model, words, tuple(model.source.tokenize(words)), source, lengths, states, reordering
    )


@torch.no_grad()
def decode_in_order(
    sentence: EncodedSentence, order: Sequence[int], beam: int
) -> tuple[tuple[int, ...], float]:
    """What the head writes when the words stand in this order, and its log-probability given the order."""
    head, length = sentence.model.head, len(sentence.units)
    states = take_order(sentence.states, _row(order, sentence))
    possible = head.max_output_length(length)
    limit = 2 * length + 10 if possible is None else possible
    decoder = head.decoder(states, sentence.lengths)
    found = beam_search(decoder, [limit], beam, 1, None, head.preserves_length)[0]
    return (found[0].words, found[0].score) if found else ((), -torch.inf)


@dataclass(frozen=True)
class Aligned:
    """What a trace says of the way from source words to output words; see `Trace` for all three."""

    segments: tuple[Segment, ...] | None = None
    alignment: tuple[tuple[float, ...], ...] | None = None
    at_end: tuple[float, ...] | None = None


@torch.no_grad()
def aligned(sentence: EncodedSentence, order: Sequence[int] | None, output: Sequence[int]) -> Aligned:
    """Segments and alignment posteriors of an output, given the order; nothing for a head without alignments."""
    if order is None or not output:
        return Aligned()
    head, row = sentence.model.head, _row(order, sentence)
    states = take_order(sentence.states, row)
    target, target_lengths = (tensor.to(states.device) for tensor in pad([list(output)]))
    segments = head.segments(states, sentence.lengths, target, target_lengths, row)
    posteriors = head.alignment_posteriors(states, sentence.lengths, target, target_lengths)
    by_token = at_end = None
    if posteriors is not None:
        cells = posteriors[0].T  # (output word, position)
        by_token = rounded(cells[:, row[0].argsort()].tolist())
        if cells.shape[1] > len(order):
            (at_end,) = rounded([cells[:, len(order)].tolist()])
    return Aligned(None if segments is None else tuple(segments[0]), by_token, at_end)


def _row(order: Sequence[int], sentence: EncodedSentence) -> Tensor:
    return torch.tensor([list(order)], device=sentence.states.device)


@torch.no_grad()
def build_trace(
    sentence: EncodedSentence,
    derivation: Derivation | None,
    order: Sequence[int] | None,
    output: Sequence[int],
    output_log_prob: float | None,
) -> Trace:
    """Everything about one order of a sentence and one output."""
    distribution = sentence.distribution
    found = aligned(sentence, order, output)
    target = tuple(sentence.model.target.convert_ids_to_tokens(output))
    normal_form = distribution is not None and distribution.normal_form
    order_log_prob = tree_log_prob = None
    if distribution is not None and derivation is not None and not sentence.has_phrases:
        (tree_log_prob,) = distribution.tree_log_probs([derivation.tree])
    if distribution is not None and order is not None:
        order_log_prob = finite(float(distribution.double().log_prob(_row(order, sentence))))
    return Trace(
        source=sentence.units,
        target=target,
        order=None if order is None else tuple(order),
        nodes=() if derivation is None else nodes_of(derivation.tree, sentence.judge, normal_form),
        segments=found.segments,
        confidence=Confidence(
            output=finite(output_log_prob),
            derivation=finite(tree_log_prob),
            order=order_log_prob,
            entropy=None if sentence.has_phrases else sentence.entropy,
        ),
        unknown=sentence.unknown,
        matrix=sentence.matrix,
        alignment=found.alignment,
        at_end=found.at_end,
        notes=(*sentence.notes, *_alignment_notes(sentence, found, target)),
    )


def _alignment_notes(sentence: EncodedSentence, found: Aligned, target: Sequence[str]) -> tuple[str, ...]:
    if not target:
        return ("The output is empty.",)
    late = [word for word, share in zip(target, found.at_end or (), strict=False) if share >= 0.5]
    if late:
        return (
            f"Written at the end of the sentence, at no word of it: {' '.join(late)}. The segments tie this to the "
            "words read since the output before, which need not be behind it.",
        )
    if found.segments is None and sentence.reordering.order is not None:
        kind = sentence.model.options.head.kind.replace("_", " ")
        return (f"A head of the kind {kind} has no segments: every output word reads the whole sentence.",)
    return ()


def finite(log_prob: float | None) -> float | None:
    """A log-probability, or None for that of the impossible, which JSON cannot say."""
    return None if log_prob is None or log_prob == -torch.inf else min(0.0, log_prob)
