"""Building the trace of one order of a sentence and one output."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from permalign.decoding.beam import beam_search
from permalign.explain.trace.encoded_sentence import EncodedSentence
from permalign.explain.trace.records import Confidence, Trace, rounded
from permalign.explain.trace.tree_nodes import flatten_tree
from permalign.reorderers.discrete_order import take_order
from permalign.structures import Derivation, Segment
from permalign.text.batching import pad


@torch.no_grad()
def decode_in_order(
    sentence: EncodedSentence, order: Sequence[int], beam: int
) -> tuple[tuple[int, ...], float]:
    """Return the ids that the head writes when it reads the tokens in this order, and their log-probability."""
    head, length = sentence.model.head, len(sentence.tokens)
    states = take_order(sentence.states, _order_tensor(order, sentence))
    max_length = head.max_output_length(length)
    if max_length is None:
        max_length = 2 * length + 10
    decoder = head.decoder(states, sentence.lengths)
    hypotheses = beam_search(decoder, [max_length], beam, 1, None, head.preserves_length)[0]
    return (hypotheses[0].tokens, hypotheses[0].score) if hypotheses else ((), -torch.inf)


@torch.no_grad()
def build_trace(
    sentence: EncodedSentence,
    derivation: Derivation | None,
    order: Sequence[int] | None,
    output: Sequence[int],
    output_log_prob: float | None,
) -> Trace:
    """Collect everything there is to say about one order of a sentence and one output.

    Args:
        sentence: the sentence.
        derivation: the tree behind the order; None if there is none.
        order: the indices of the source tokens after reordering; None if there is no discrete order.
        output: the ids of the output.
        output_log_prob: the log-probability of the output; None if it is unknown.
    """
    distribution = sentence.distribution
    aligned = _align(sentence, order, output)
    target = tuple(sentence.model.target.convert_ids_to_tokens(output))
    order_log_prob = tree_log_prob = None
    if distribution is not None and order is not None:
        order_log_prob = finite(float(distribution.double().log_prob(_order_tensor(order, sentence))))
    if distribution is not None and derivation is not None and not sentence.has_phrases:
        (tree_log_prob,) = distribution.tree_log_probs([derivation.tree])
    return Trace(
        source=sentence.tokens,
        target=target,
        order=None if order is None else tuple(order),
        nodes=()
        if derivation is None
        else flatten_tree(derivation.tree, sentence.node_statistics, sentence.normal_form),
        segments=aligned.segments,
        confidence=Confidence(
            output=finite(output_log_prob),
            derivation=finite(tree_log_prob),
            order=order_log_prob,
            entropy=None if sentence.has_phrases else sentence.entropy,
        ),
        unknown=sentence.unknown,
        matrix=sentence.matrix,
        alignment=aligned.alignment,
        at_end=aligned.at_end,
        notes=(*sentence.notes, *_alignment_notes(sentence, aligned, target)),
    )


@dataclass(frozen=True)
class _Aligned:
    """How the output follows from the source; the attributes are those of `Trace`."""

    segments: tuple[Segment, ...] | None = None
    alignment: tuple[tuple[float, ...], ...] | None = None
    at_end: tuple[float, ...] | None = None


def _align(sentence: EncodedSentence, order: Sequence[int] | None, output: Sequence[int]) -> _Aligned:
    """Compute segments and alignment posteriors of an output given the order, if the head has alignments."""
    if order is None or not output:
        return _Aligned()
    head, orders = sentence.model.head, _order_tensor(order, sentence)
    states = take_order(sentence.states, orders)
    target, target_lengths = (tensor.to(states.device) for tensor in pad([list(output)]))
    segments = head.segments(states, sentence.lengths, target, target_lengths, orders)
    posteriors = head.alignment_posteriors(states, sentence.lengths, target, target_lengths)
    alignment = at_end = None
    if posteriors is not None:
        by_position = posteriors[0].T  # (output token, position)
        alignment = rounded(by_position[:, orders[0].argsort()].tolist())  # (output token, source token)
        if by_position.shape[1] > len(order):  # one more column: the end of the sentence
            (at_end,) = rounded([by_position[:, len(order)].tolist()])
    return _Aligned(None if segments is None else tuple(segments[0]), alignment, at_end)


def _order_tensor(order: Sequence[int], sentence: EncodedSentence) -> Tensor:
    """Return an order as a batch of one."""
    return torch.tensor([list(order)], device=sentence.states.device)


def _alignment_notes(sentence: EncodedSentence, aligned: _Aligned, target: Sequence[str]) -> tuple[str, ...]:
    if not target:
        return ("The output is empty.",)
    late = [word for word, share in zip(target, aligned.at_end or (), strict=False) if share >= 0.5]
    if late:
        return (
            f"Written at the end of the sentence, and not at any of its words: {' '.join(late)}. The segments attach "
            "these output words to the source words read since the previous output, which need not be their source.",
        )
    if aligned.segments is None and sentence.reordering.order is not None:
        kind = sentence.model.options.head.kind.replace("_", " ")
        return (
            f"A head of the kind {kind} has no segments: every output word depends on the whole sentence.",
        )
    return ()


def finite(log_prob: float | None) -> float | None:
    """Replace the log-probability of an impossible event by None, because JSON has no infinity."""
    return None if log_prob is None or log_prob == -torch.inf else min(0.0, log_prob)
