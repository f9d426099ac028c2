"""A trace described in words, as HTML: for people who use a screen reader, what the picture shows to others."""

from permalign.explain.render.markup import isolated, safe
from permalign.explain.render.svg import RULE_NAMES
from permalign.explain.render.terminal import probability
from permalign.explain.trace.trace import Node, Trace


def confidence_rows(trace: Trace) -> list[tuple[str, str, str]]:
    """Return the name, the value and the meaning of each probability that is known."""
    confidence = trace.confidence
    rows = [
        ("of the output", confidence.output, "1 means no doubt"),
        ("of the tree", confidence.derivation, "1 means that no other tree is possible"),
        ("of the order", confidence.order, "Summed over all trees that produce the order"),
    ]
    known = [(name, value, title) for name, value, title in rows if value is not None]
    shown = [
        (name if index else f"probability {name}", probability(value), title)
        for index, (name, value, title) in enumerate(known)
    ]
    if confidence.entropy is not None:
        shown.append(
            (
                "entropy over trees",
                f"{confidence.entropy:.2f} bits",
                "0 bits means no doubt",
            )
        )
    return shown


def confidence_list(trace: Trace) -> str:
    """Return the confidence of the model as an HTML list."""
    items = "".join(
        f'<div title="{safe(title)}"><dt>{safe(name)}</dt><dd>{safe(value)}</dd></div>'
        for name, value, title in confidence_rows(trace)
    )
    return f'<dl class="confidence">{items}</dl>' if items else ""


def describe(trace: Trace) -> str:
    """Describe order, segments and tree in paragraphs and lists."""
    parts = []
    if trace.reordered is not None:
        parts.append(f"<p>Read in this order: {isolated(trace.reordered)}</p>")
    if trace.segments:
        items = "".join(
            f"<li>{isolated(trace.source[token] for token in segment.source) or 'nothing'} → "
            f"{isolated(trace.written[word] for word in segment.target) or 'nothing'}</li>"
            for segment in trace.segments
        )
        parts.append(f"<p>Segments:</p><ol>{items}</ol>")
    if trace.nodes:
        parts.append(f"<p>Tree:</p>{tree_list(trace)}")
    return "".join(parts)


def tree_list(trace: Trace) -> str:
    """Return the tree as nested HTML lists; without recursion, because a tree may be deep."""
    html: list[str] = []
    pending: list[str | Node] = ["</li></ul>", trace.nodes[0], '<ul class="tree-list"><li>']
    while pending:
        item = pending.pop()
        if isinstance(item, str):
            html.append(item)
            continue
        words = isolated(trace.source[item.start : item.end])
        label = "" if item.label is None else f" {safe(item.label)}"
        if item.rule is None:
            html.append(words + label)
            continue
        confidence = (
            "" if item.probability is None else f" ({item.probability:.2f}, {item.entropy or 0:.2f} bits)"
        )
        html.append(f"{RULE_NAMES[item.rule]}{label}{confidence}: {words}")
        pending.append("</ul>")
        for child in reversed(item.children):
            pending += ["</li>", trace.nodes[child], "<li>"]
        pending.append("<ul>")
    return "".join(html)


def notes_list(trace: Trace) -> str:
    """Return the notes as HTML paragraphs."""
    return "".join(f'<p class="note">{isolated(note.split(" "))}</p>' for note in trace.notes)
