"""Traces in words, as HTML: what a picture shows, for those who hear a page, and the figures for all."""

from permalign.explain.render.markup import isolated, safe
from permalign.explain.render.svg import NAMES
from permalign.explain.render.terminal import probability
from permalign.explain.trace.records import Node, Trace


def figures(trace: Trace) -> list[tuple[str, str, str]]:
    """How sure the model is: name, value and meaning of what is known."""
    sure = trace.confidence
    rows = [
        ("output", sure.output, "Probability of the output"),
        ("tree", sure.derivation, "Probability of the tree"),
        ("order", sure.order, "Probability of the order, summed over all its trees"),
    ]
    shown = [(name, probability(value), title) for name, value, title in rows if value is not None]
    if sure.entropy is not None:
        shown.append(
            ("entropy", f"{sure.entropy:.2f} bits", "Entropy of all trees: 0 bits is no doubt at all")
        )
    return shown


def confidence_list(trace: Trace) -> str:
    """How sure the model is, as a list of terms."""
    items = "".join(
        f'<div title="{safe(title)}"><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>'
        for name, value, title in figures(trace)
    )
    return f'<dl class="confidence">{items}</dl>' if items else ""


def in_words(trace: Trace) -> str:
    """Order, segments and tree as paragraphs and lists."""
    parts = []
    if trace.reordered is not None:
        parts.append(f"<p>Read in this order: {isolated(trace.reordered)}</p>")
    if trace.segments:
        items = "".join(
            f"<li>{isolated(trace.source[token] for token in segment.source) or 'nothing'} → "
            f"{isolated(trace.target[word] for word in segment.target) or 'nothing'}</li>"
            for segment in trace.segments
        )
        parts.append(f"<p>Segments:</p><ol>{items}</ol>")
    if trace.nodes:
        parts.append(f"<p>Tree:</p>{tree_list(trace)}")
    return "".join(parts)


def tree_list(trace: Trace) -> str:
    """The tree as lists within lists."""
    written: list[str] = []
    waiting: list[str | Node] = ["</li></ul>", trace.nodes[0], '<ul class="tree-list"><li>']
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            written.append(part)
            continue
        words = isolated(trace.source[part.start : part.end])
        label = "" if part.label is None else f" {safe(part.label)}"
        if part.rule is None:
            written.append(words + label)
            continue
        sure = "" if part.probability is None else f" ({part.probability:.2f}, {part.entropy or 0:.2f} bits)"
        written.append(f"{NAMES[part.rule]}{label}{sure}: {words}")
        waiting.append("</ul>")
        for child in reversed(part.children):
            waiting += ["</li>", trace.nodes[child], "<li>"]
        waiting.append("<ul>")
    return "".join(written)


def notes_list(trace: Trace) -> str:
    """What there is not and why, and what is not exact."""
    return "".join(f'<p class="note">{isolated(note.split(" "))}</p>' for note in trace.notes)
