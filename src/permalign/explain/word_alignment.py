"""Word alignments of given pairs of sentences and outputs, in the format of Pharaoh."""

from collections.abc import Sequence
from dataclasses import dataclass

from permalign.explain.trace.encoded_sentence import encode_sentence
from permalign.explain.trace.forced_target import explain_target
from permalign.explain.trace.trace import Trace
from permalign.heads.attention import AttentionHead
from permalign.heads.syntactic_attention import SyntacticAttentionHead
from permalign.models.base import Model
from permalign.text.word_spans import word_spans


@dataclass(frozen=True)
class WordAlignment:
    """Which source words each word of an output comes from.

    Attributes:
        links: pairs of the index of a source word and that of an output word, from 0, sorted by output word.
        posteriors: ``[output word][source word]``, the probability that the source word wrote the output word, given
            both sentences; empty if there is no alignment. A row sums to less than one if a part of the output word was
            written at the end of the sentence, and not by any of its words.
        problem: why there is no alignment: the model cannot write this output; None if there is one.

    >>> alignment = WordAlignment(((1, 0), (0, 1)), ((0.1, 0.9), (0.8, 0.2)))
    >>> alignment.pharaoh(), alignment.pharaoh(posteriors=True)
    ('1-0 0-1', '1-0:0.9000 0-1:0.8000')
    """

    links: tuple[tuple[int, int], ...]
    posteriors: tuple[tuple[float, ...], ...]
    problem: str | None = None

    def pharaoh(self, posteriors: bool = False) -> str:
        """The links as ``source-output``, separated by spaces; with posteriors, each followed by its probability."""
        if not posteriors:
            return " ".join(f"{source}-{output}" for source, output in self.links)
        return " ".join(
            f"{source}-{output}:{self.posteriors[output][source]:.4f}" for source, output in self.links
        )


def align(
    model: Model,
    source: str | Sequence[str],
    target: str | Sequence[str],
    max_operations: float | None = None,
) -> WordAlignment:
    """Align the words of a sentence with those of a given output.

    The order of the source words is the best one given both sentences; `explain_target` says how far that is exact.

    - A head of the kind ``ssnt`` links an output word with the source word that wrote it with the highest posterior
      probability, unless the end of the sentence wrote it with a higher one.
    - The other heads link an output word with the source word (or phrase) of its segment in the best alignment.
    - Subwords are merged: two words are linked if any of their subwords are. Their posterior is the sum over the
      source subwords, and the mean over the output subwords.

    Args:
        model: a model with alignments and a discrete order.
        source: a text, split at white space, or a sequence of words.
        target: the output, likewise.
        max_operations: how many operations sums over all orders may take; None for any number.

    Raises:
        ValueError: the model has no alignments.
        TooCostlyError: sums over all orders would take more operations than allowed; they have not begun.
    """
    words = source.split() if isinstance(source, str) else list(source)
    outputs = target.split() if isinstance(target, str) else list(target)
    require_alignments(model)
    try:
        encoded = encode_sentence(model, words)
        trace = explain_target(encoded, outputs, max_operations)
    except ValueError as error:
        return WordAlignment((), (), str(error))
    if trace.order is None:
        raise ValueError(
            "this model does not choose an order of the words but mixes them, so that a position has no single source "
            "word. Use a reorderer of the kind none, separable or labelled, with a decoding other than marginal."
        )
    source_words, output_words = word_spans(model.source, words), word_spans(encoded.target, outputs)
    links = {
        (source_word, output_word)
        for source_token, output_token in _token_links(trace)
        for source_word in source_words[source_token]
        for output_word in output_words[output_token]
    }
    posteriors = _merge(trace.alignment or (), source_words, output_words, len(words), len(outputs))
    return WordAlignment(tuple(sorted(links, key=lambda link: (link[1], link[0]))), posteriors)


def require_alignments(model: Model) -> None:
    """Require a head whose output words come from single source words.

    Raises:
        ValueError: the head is one of attention.
    """
    if isinstance(model.primary.head, AttentionHead | SyntacticAttentionHead):
        raise ValueError(
            f"a head of the kind {model.primary.options.head.kind} has no alignments: every output word depends on the "
            "whole sentence, and attention weights do not say which source word it comes from. Use a head of the kind "
            "ssnt, swan, segments or tagging."
        )


def _token_links(trace: Trace) -> list[tuple[int, int]]:
    """The links of tokens: pairs of a source token and an output token."""
    if trace.at_end is None or trace.alignment is None:
        return [
            (source, output)
            for segment in trace.segments or ()
            for source in segment.source
            for output in segment.target
        ]
    links = []
    for output, (shares, end) in enumerate(zip(trace.alignment, trace.at_end, strict=True)):
        source = max(range(len(shares)), key=shares.__getitem__)
        if shares[source] > end:
            links.append((source, output))
    return links


def _merge(
    alignment: Sequence[Sequence[float]],
    source_words: Sequence[range],
    output_words: Sequence[range],
    num_sources: int,
    num_outputs: int,
) -> tuple[tuple[float, ...], ...]:
    """Merge posteriors of tokens to those of words."""
    merged = [[0.0] * num_sources for _ in range(num_outputs)]
    parts = [sum(word in span for span in output_words) for word in range(num_outputs)]
    for shares, of_output in zip(alignment, output_words, strict=False):
        for share, of_source in zip(shares, source_words, strict=True):
            for output in of_output:
                for source in of_source:
                    merged[output][source] += share / parts[output]
    return tuple(tuple(min(1.0, value) for value in row) for row in merged) if alignment else ()
