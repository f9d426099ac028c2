"""Traces as SVG: the tree above the sentence, lines from its words to their new positions, the segments below.

The markup has only classes and geometry, no inline style: a page loads `picture.css`, a standalone file contains it.
Elements name their source tokens and output words (``data-tokens``, ``data-words``), so that a page can highlight them.
"""

from collections.abc import Sequence
from importlib.resources import files

from permalign.explain.render.markup import element, safe, shortened
from permalign.explain.render.svg_layout import GAP, MARGIN, ROW, Box, Column, Layout, heights, lay_out
from permalign.explain.render.terminal import node_text
from permalign.explain.trace.trace import Node, Trace

RULE_NAMES = {"S": "straight", "I": "inverted"}
ICONS = {
    "straight": "M-4 0H4M1.2 -2.8L4 0L1.2 2.8",
    "inverted": "M-4 -2.5H4M1.7 -4.8L4 -2.5L1.7 -.2M4 2.5H-4M-1.7 .2L-4 2.5L-1.7 4.8",
}
NODE_RADIUS = 9.0
LEAST_CERTAIN = 0.95
"""The probability of a node is written beside it if it is lower than this."""


def svg(trace: Trace, *, standalone: bool = True) -> str:
    """Draw a trace.

    Args:
        trace: the trace to draw.
        standalone: whether to include the style sheet, as a file of its own needs it: dark on white everywhere.
    """
    layout = lay_out(trace)
    groups = [
        _row_names(layout),
        element("g", _tree_markup(trace, layout), class_="tree"),
        element("g", _crossing_lines(trace, layout), class_="lines"),
        element("g", _source_words(trace, layout), class_="source"),
        element("g", _output_words(trace, layout), class_="segments"),
        element("g", _reordered_words(trace, layout), class_="reordered"),
    ]
    content = element("title", safe(_summary(trace))) + "".join(groups)
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
    """Read the style sheet of pictures, without the one for dark pages."""
    return (files("permalign.explain.render") / "static" / "picture.css").read_text(encoding="utf-8")


def _summary(trace: Trace) -> str:
    words = f"{' '.join(trace.source)} becomes {' '.join(trace.output) or 'nothing'}"
    return words if trace.reordered is None else f"{words}, read as: {' '.join(trace.reordered)}"


def _row_names(layout: Layout) -> str:
    """Write what each row shows."""
    rows = [("sentence", layout.source_y)]
    if layout.reordered is not None:
        rows.append(("reordered", layout.reordered_y))
    if layout.target:
        rows.append(("output", layout.target_y))
    texts = (element("text", safe(name), x=MARGIN, y=y, class_="row-name") for name, y in rows)
    return element("g", "".join(texts), aria_hidden="true")


def _tree_markup(trace: Trace, layout: Layout) -> str:
    """Draw the branches first, so that the nodes lie on top of them."""
    node_heights = heights(trace.nodes)
    branches, nodes = [], []
    side = {}  # of a leaf's label: -1 for the left, 1 for the right of its branch
    for index, node in enumerate(trace.nodes):
        x, y = layout.nodes[index]
        for child in node.children:
            to_x, to_y = layout.nodes[child]
            side[child] = -1 if to_x < x else 1
            branches.append(
                element(
                    "path",
                    class_="branch",
                    d=_path("M", x, y, "L", to_x, to_y),
                    data_height=node_heights[index],
                )
            )
        if node.rule is not None:
            nodes.append(_inner_node(node, (x, y), node_heights[index], _describe_split(trace, node)))
        elif node.end - node.start > 1 or node.label is not None:
            nodes.append(_leaf(node, trace.source, layout, (x, y), side.get(index, 1)))
    return element("g", "".join(branches), aria_hidden="true") + "".join(nodes)


def _describe_split(trace: Trace, node: Node) -> str:
    """Describe the children of a node in their new order."""
    children = [trace.nodes[child] for child in node.children]
    if node.rule == "I":
        children.reverse()
    return ", then ".join(f"“{' '.join(trace.source[child.start : child.end])}”" for child in children)


def _inner_node(node: Node, at: tuple[float, float], height: int, split: str) -> str:
    kind = RULE_NAMES[node.rule or "S"]
    confidence = (
        ""
        if node.probability is None
        else f", probability {node.probability:.2f}, {node.entropy or 0:.2f} bits"
    )
    label = "" if node.label is None else f" {node.label}"
    content = [
        element("title", safe(f"{kind}{label}: {split}{confidence}")),
        element("circle", r=NODE_RADIUS, class_="disc"),
        element("path", d=ICONS[kind], class_="icon"),
    ]
    if node.label is not None:
        content.append(element("text", safe(shortened(node.label)), x=-NODE_RADIUS - 4, class_="label"))
    if node.probability is not None and node.probability < LEAST_CERTAIN:
        content.append(element("text", f"{node.probability:.2f}"[1:], x=NODE_RADIUS + 4, class_="uncertain"))
    return element(
        "g",
        "".join(content),
        class_=f"node {kind}",
        transform=f"translate({at[0]:.1f} {at[1]:.1f})",
        data_height=height,
        data_tokens=" ".join(str(token) for token in range(node.start, node.end)),
        aria_hidden="true",
    )


def _leaf(node: Node, words: Sequence[str], layout: Layout, at: tuple[float, float], side: int) -> str:
    """Draw a bracket over the words of a leaf, and its label on the side away from its branch."""
    left, right = layout.source[node.start].left, layout.source[node.end - 1].right
    content = element("title", safe(node_text(node, words)))
    content += element("path", d=_path("M", left, at[1], "H", right), class_="bracket")
    if node.label is not None:
        classes = "label leaf" if side > 0 else "label"
        content += element(
            "text", safe(shortened(node.label)), x=at[0] + 6 * side, y=at[1] - 8, class_=classes
        )
    return element("g", content, class_="leaf", aria_hidden="true")


def _source_words(trace: Trace, layout: Layout) -> str:
    words = (
        _word(word, layout.source[token], layout.source_y, token, unknown=token in trace.unknown)
        for token, word in enumerate(trace.source)
    )
    return "".join(words)


def _word(word: str, box: Box, y: float, token: int, unknown: bool = False, **attributes: object) -> str:
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
    return element("g", content, class_=classes, data_tokens=token, **attributes)


def _crossing_lines(trace: Trace, layout: Layout) -> str:
    """Draw a line from each word to its new position."""
    if layout.reordered is None or trace.order is None:
        return ""
    crossing = _crossing_tokens(trace.order)
    top, bottom = layout.source_y + ROW / 2, layout.reordered_y - ROW / 2
    middle = (top + bottom) / 2
    paths = []
    for token in trace.order:
        x, to_x = layout.source[token].x, layout.reordered[token].x
        curve = _path("M", x, top, "C", x, middle, to_x, middle, to_x, bottom)
        kind = "line crosses" if token in crossing else "line"
        paths.append(element("path", class_=kind, d=curve, data_tokens=token, pathLength=1))
    return element("g", "".join(paths), aria_hidden="true")


def _crossing_tokens(order: Sequence[int]) -> set[int]:
    """Find the tokens whose line crosses another line: they change places with some other token.

    >>> sorted(_crossing_tokens([0, 2, 1, 3]))
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


def _reordered_words(trace: Trace, layout: Layout) -> str:
    """Draw the words at their new positions; ``data-from`` says where they came from, so that a page can move them."""
    if layout.reordered is None or trace.order is None:
        return ""
    words = []
    for token in trace.order:
        box = layout.reordered[token]
        offset = f"{layout.source[token].x - box.x:.1f} {layout.source_y - layout.reordered_y:.1f}"
        words.append(_word(trace.source[token], box, layout.reordered_y, token, data_from=offset))
    return element("g", "".join(words), aria_hidden="true")


def _output_words(trace: Trace, layout: Layout) -> str:
    """Draw the segments, or the plain output of a head without segments."""
    if layout.columns:
        return "".join(_segment(trace, layout, column) for column in layout.columns)
    words = (
        element(
            "text", safe(shortened(word)), x=layout.target[index].x, y=layout.target_y, class_="text written"
        )
        for index, word in enumerate(trace.written)
    )
    return "".join(words)


def _segment(trace: Trace, layout: Layout, column: Column) -> str:
    """Draw output words on a card, tied to the source words behind them."""
    sources = " ".join(trace.source[token] for token in column.source)
    targets = " ".join(trace.written[word] for word in column.target)
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
        shown = safe(shortened(trace.written[word]))
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
    """Draw a band between the two cards of a segment."""
    middle = (top + bottom) / 2
    (left, right), (to_left, to_right) = (above.left, above.right), (below.left, below.right)
    curve = _path(
        *("M", left, top, "C", left, middle, to_left, middle, to_left, bottom),
        *("L", to_right, bottom, "C", to_right, middle, right, middle, right, top, "Z"),
    )
    return element("path", d=curve, class_="ribbon")


def _path(*parts: str | float) -> str:
    return " ".join(part if isinstance(part, str) else f"{part:.1f}" for part in parts)
