"""Traces as SVG: the tree over the sentence, its words on their way to a new order, the segments below.

Markup has classes and geometry alone, no inline style: a page brings `picture.css`, a file of its own carries it.
What belongs to a token or an output word says so (``data-tokens``, ``data-words``), so that a page can light it up.
"""

from collections.abc import Sequence
from importlib.resources import files

from permalign.explain.render.markup import element, safe, shortened
from permalign.explain.render.svg_layout import GAP, MARGIN, ROW, Box, Column, Layout, heights, lay_out
from permalign.explain.render.terminal import name_of
from permalign.explain.trace.records import Node, Trace

NAMES = {"S": "straight", "I": "inverted"}
ICONS = {
    "straight": "M-4 0H4M1.2 -2.8L4 0L1.2 2.8",
    "inverted": "M-4 -2.5H4M1.7 -4.8L4 -2.5L1.7 -.2M4 2.5H-4M-1.7 .2L-4 2.5L-1.7 4.8",
}
RADIUS = 9.0
DOUBT = 0.95
"""A node less probable than that has its probability written beside it."""


def svg(trace: Trace, *, standalone: bool = True) -> str:
    """The picture of a trace; standalone with its style (dark on white, whatever the system), as a file needs it."""
    layout = lay_out(trace)
    parts = [
        _names(trace, layout),
        element("g", _tree(trace, layout), class_="tree"),
        element("g", _lines(trace, layout), class_="lines"),
        element("g", "".join(_source(trace, layout)), class_="source"),
        element("g", _segments(trace, layout), class_="segments"),
        element("g", _reordered(trace, layout), class_="reordered"),
    ]
    content = element("title", safe(_summary(trace))) + "".join(parts)
    if standalone:
        content = element("style", style()) + content
    return element(
        "svg",
        content,
        xmlns="http://www.w3.org/2000/svg",
        class_="permalign-picture",
        viewBox=f"0 0 {layout.width:.0f} {layout.height:.0f}",
        width=round(layout.width),
        height=round(layout.height),
        role="group",
        aria_label=_summary(trace),
    )


def style() -> str:
    """The style sheet of pictures, without that for pages that turn dark."""
    return (files("permalign.explain.render") / "static" / "picture.css").read_text(encoding="utf-8")


def _summary(trace: Trace) -> str:
    words = f"{' '.join(trace.source)} becomes {' '.join(trace.target) or 'nothing'}"
    return words if trace.reordered is None else f"{words}, read as: {' '.join(trace.reordered)}"


def _names(trace: Trace, layout: Layout) -> str:
    """What each row is."""
    rows = [("sentence", layout.source_y)]
    if layout.reordered is not None:
        rows.append(("reordered", layout.reordered_y))
    if layout.target:
        rows.append(("output", layout.target_y))
    texts = (element("text", safe(name), x=MARGIN, y=y, class_="row-name") for name, y in rows)
    return element("g", "".join(texts), aria_hidden="true")


def _tree(trace: Trace, layout: Layout) -> str:
    """Branches first, so that nodes lie on them; then nodes from the leaves up, as the tree grows."""
    found = heights(trace.nodes)
    branches, nodes, away = [], [], {}
    for place, node in enumerate(trace.nodes):
        x, y = layout.nodes[place]
        for child in node.children:
            to_x, to_y = layout.nodes[child]
            away[child] = -1 if to_x < x else 1
            branches.append(
                element(
                    "path", class_="branch", d=_path("M", x, y, "L", to_x, to_y), data_height=found[place]
                )
            )
        if node.rule is not None:
            nodes.append(_node(node, trace.source, (x, y), found[place], _split(trace, node)))
        elif node.end - node.start > 1 or node.label is not None:
            nodes.append(_leaf(node, trace.source, layout, (x, y), away.get(place, 1)))
    return element("g", "".join(branches), aria_hidden="true") + "".join(nodes)


def _split(trace: Trace, node: Node) -> str:
    """The two parts of a node, as they come to stand."""
    parts = [trace.nodes[child] for child in node.children]
    if node.rule == "I":
        parts.reverse()
    return ", then ".join(f"“{' '.join(trace.source[part.start : part.end])}”" for part in parts)


def _node(node: Node, words: Sequence[str], at: tuple[float, float], height: int, split: str) -> str:
    kind = NAMES[node.rule or "S"]
    sure = (
        ""
        if node.probability is None
        else f", probability {node.probability:.2f}, {node.entropy or 0:.2f} bits"
    )
    label = "" if node.label is None else f" {node.label}"
    content = [
        element("title", safe(f"{kind}{label}: {split}{sure}")),
        element("circle", r=RADIUS, class_="disc"),
        element("path", d=ICONS[kind], class_="icon"),
    ]
    if node.label is not None:
        content.append(element("text", safe(shortened(node.label)), x=-RADIUS - 4, class_="label"))
    if node.probability is not None and node.probability < DOUBT:
        content.append(element("text", f"{node.probability:.2f}"[1:], x=RADIUS + 4, class_="doubt"))
    return element(
        "g",
        "".join(content),
        class_=f"node {kind}",
        transform=f"translate({at[0]:.1f} {at[1]:.1f})",
        data_height=height,
        data_tokens=" ".join(str(token) for token in range(node.start, node.end)),
        aria_hidden="true",
    )


def _leaf(node: Node, words: Sequence[str], layout: Layout, at: tuple[float, float], away: int) -> str:
    """A bracket over the words of a leaf that has several, or its name: on the side where no branch comes from."""
    left, right = layout.source[node.start].left, layout.source[node.end - 1].right
    content = element("title", safe(name_of(node, words)))
    content += element("path", d=_path("M", left, at[1], "H", right), class_="bracket")
    if node.label is not None:
        side = "label leaf" if away > 0 else "label"
        content += element("text", safe(shortened(node.label)), x=at[0] + 6 * away, y=at[1] - 8, class_=side)
    return element("g", content, class_="leaf", aria_hidden="true")


def _source(trace: Trace, layout: Layout) -> list[str]:
    return [
        _word(word, layout.source[token], layout.source_y, token, unknown=token in trace.unknown)
        for token, word in enumerate(trace.source)
    ]


def _word(word: str, box: Box, y: float, token: int, unknown: bool = False, **more: object) -> str:
    title = f"{word} (not in the vocabulary)" if unknown else word
    content = element("title", safe(title)) if unknown or word != shortened(word) else ""
    content += element(
        "rect",
        x=box.left - GAP / 2 + 2,
        y=y - ROW / 2,
        width=box.width + GAP - 4,
        height=ROW,
        rx=6,
        class_="back",
    )
    content += element("text", safe(shortened(word)), x=box.x, y=y, class_="text")
    classes = "word unknown" if unknown else "word"
    return element("g", content, class_=classes, data_tokens=token, **more)


def _lines(trace: Trace, layout: Layout) -> str:
    """From each word to its new place."""
    if layout.reordered is None or trace.order is None:
        return ""
    crossing = _crossing(trace.order)
    top, bottom = layout.source_y + ROW / 2, layout.reordered_y - ROW / 2
    middle = (top + bottom) / 2
    paths = []
    for token in trace.order:
        x, to_x = layout.source[token].x, layout.reordered[token].x
        curve = _path("M", x, top, "C", x, middle, to_x, middle, to_x, bottom)
        kind = "line crosses" if token in crossing else "line"
        paths.append(element("path", class_=kind, d=curve, data_tokens=token, pathLength=1))
    return element("g", "".join(paths), aria_hidden="true")


def _crossing(order: Sequence[int]) -> set[int]:
    """Tokens whose line crosses another one: some token that came before now stands behind, or the reverse.

    >>> sorted(_crossing([0, 2, 1, 3]))
    [1, 2]
    """
    crossing, highest = set(), -1
    for token in order:
        if token < highest:
            crossing.add(token)
        highest = max(highest, token)
    lowest = len(order)
    for token in reversed(order):
        if token > lowest:
            crossing.add(token)
        lowest = min(lowest, token)
    return crossing


def _reordered(trace: Trace, layout: Layout) -> str:
    """The words at their new places; how far they came is noted, so that a page can let them move."""
    if layout.reordered is None or trace.order is None:
        return ""
    words = []
    for token in trace.order:
        box = layout.reordered[token]
        away = f"{layout.source[token].x - box.x:.1f} {layout.source_y - layout.reordered_y:.1f}"
        words.append(_word(trace.source[token], box, layout.reordered_y, token, data_from=away))
    return element("g", "".join(words), aria_hidden="true")


def _segments(trace: Trace, layout: Layout) -> str:
    if layout.columns:
        return "".join(_segment(trace, layout, column) for column in layout.columns)
    words = (
        element(
            "text", safe(shortened(word)), x=layout.target[place].x, y=layout.target_y, class_="text written"
        )
        for place, word in enumerate(trace.target)
    )
    return "".join(words)


def _segment(trace: Trace, layout: Layout, column: Column) -> str:
    """Output words on a card, tied to the source words behind them."""
    sources = " ".join(trace.source[token] for token in column.source)
    targets = " ".join(trace.target[word] for word in column.target)
    content = element("title", safe(f"{sources or 'nothing'} → {targets or 'nothing'}"))
    top, bottom = layout.reordered_y, layout.target_y
    if column.above is not None:
        content += _card(column.above, top, "card above")
    if column.below is not None:
        content += _card(column.below, bottom, "card below")
    if column.above is not None and column.below is not None:
        content += _ribbon(column.above, column.below, top + ROW / 2, bottom - ROW / 2)
    for word in column.target:
        box = layout.target[word]
        shown = safe(shortened(trace.target[word]))
        content += element("text", shown, x=box.x, y=bottom, class_="text written", data_words=word)
    silent = not column.target
    return element(
        "g",
        content,
        class_="segment silent" if silent else "segment",
        tabindex=None if silent else 0,
        role="img",
        aria_label=f"{targets or 'no output'}, from {sources or 'no word'}",
        data_tokens=" ".join(map(str, column.source)),
    )


def _card(box: Box, y: float, kind: str) -> str:
    edge = GAP / 2 - 3
    return element(
        "rect",
        x=box.left - edge,
        y=y - ROW / 2,
        width=box.width + 2 * edge,
        height=ROW,
        rx=7,
        class_=kind,
    )


def _ribbon(above: Box, below: Box, top: float, bottom: float) -> str:
    """A band between the two cards of a segment, narrower at its waist."""
    middle = (top + bottom) / 2
    (left, right), (to_left, to_right) = (above.left, above.right), (below.left, below.right)
    curve = _path(
        *("M", left, top, "C", left, middle, to_left, middle, to_left, bottom),
        *("L", to_right, bottom, "C", to_right, middle, right, middle, right, top, "Z"),
    )
    return element("path", d=curve, class_="ribbon")


def _path(*parts: str | float) -> str:
    return " ".join(part if isinstance(part, str) else f"{part:.1f}" for part in parts)
