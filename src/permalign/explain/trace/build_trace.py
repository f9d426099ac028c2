"""Building the trace of one order of a sentence and one output."""

from collections.abc import Sequence

import torch

from permalign.decoding.beam import beam_search
from permalign.explain.trace.alignment import align, alignment_notes, copied_shares, order_tensor
from permalign.explain.trace.encoded_sentence import EncodedSentence
from permalign.explain.trace.trace import Confidence, Trace
from permalign.explain.trace.tree_nodes import flatten_tree
from permalign.reorderers.discrete_order import take_order
from permalign.structures import Derivation, Segment


@torch.no_grad()
def decode_in_order(
    sentence: EncodedSentence, order: Sequence[int], beam: int
) -> tuple[tuple[int, ...], float]:
    """Return the ids that the head writes when it reads the tokens in this order, and their log-probability."""
    orders, length = order_tensor(order, sentence), len(sentence.tokens)
    head, states = sentence.head_in_order(orders), take_order(sentence.states, orders)
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
    segments: tuple[Segment, ...] | None = None,
) -> Trace:
    """Collect everything there is to say about one order of a sentence and one output.

    Args:
        sentence: the sentence.
        derivation: the tree behind the order; None if there is none.
        order: the indices of the source tokens after reordering; None if there is no discrete order.
        output: the ids of the output.
        output_log_prob: the log-probability of the output; None if it is unknown.
        segments: the segments of the output, if they are known.
    """
    distribution = sentence.distribution
    aligned = align(sentence, order, output, segments)
    target, words = tuple(sentence.target.convert_ids_to_tokens(output)), sentence.target.decode(output)
    order_log_prob = tree_log_prob = None
    if distribution is not None and order is not None:
        order_log_prob = finite(float(sentence.exact_distribution.log_prob(order_tensor(order, sentence))))
    if distribution is not None and derivation is not None and not sentence.has_phrases:
        (tree_log_prob,) = sentence.exact_distribution.tree_log_probs([derivation.tree])
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
        copied=copied_shares(sentence, order, output),
        notes=(*sentence.notes, *alignment_notes(sentence, aligned, target)),
        words=None if words == target else words,
    )


def finite(log_prob: float | None) -> float | None:
    """Replace the log-probability of an impossible event by None, because JSON has no infinity."""
    return None if log_prob is None or log_prob == -torch.inf else min(0.0, log_prob)
