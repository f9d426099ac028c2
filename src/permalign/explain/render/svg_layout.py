"""The layout of a picture: words in three rows, with the tree above and the segments below."""

from collections.abc import Sequence
from dataclasses import dataclass

from permalign.explain.render.markup import shortened, text_width
from permalign.explain.trace.trace import Node, Trace

FONT_SIZE = 16.0
"""The font size."""
GAP = 20.0
"""The space between two words."""
BOLD = 1.1
"""How much wider than other letters the bold letters of the output are."""
MARGIN = 14.0
ROW_NAMES = 84.0
"""The width of the names of the rows, on the left."""
ROW = 30.0
"""The height of a row of words."""
CROSSING = 84.0
"""The height of the crossing lines."""
LINK = 30.0
"""The height of the ribbons between the two sides of a segment."""


@dataclass(frozen=True)
class Box:
    """The horizontal extent of a word or a group of words: its middle and its width."""

    x: float
    width: float

    @property
    def left(self) -> float:
        """The left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """The right edge."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Column:
    """A segment.

    Attributes:
        source: the indices of its source tokens.
        target: the indices of its output tokens.
        above: the box around its source tokens in the reordered row; None if it has none.
        below: the box around its output tokens; None if it has none.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    above: Box | None
    below: Box | None


@dataclass(frozen=True)
class Layout:
    """The coordinates of everything in a picture: x by token, y by row.

    Attributes:
        width: the width of the picture.
        height: the height of the picture.
        source: a box for each source token.
        reordered: a box in the reordered row for each source token, by its index; None without an order.
        target: a box for each output token.
        columns: the segments; empty if there are none.
        nodes: ``(x, y)`` of every node of the tree, by its index in the trace.
        source_y: the middle of the row of source tokens.
        reordered_y: the middle of the reordered row.
        target_y: the middle of the row of output tokens.
    """

    width: float
    height: float
    source: tuple[Box, ...]
    reordered: tuple[Box, ...] | None
    target: tuple[Box, ...]
    columns: tuple[Column, ...]
    nodes: tuple[tuple[float, float], ...]
    source_y: float
    reordered_y: float
    target_y: float


def lay_out(trace: Trace) -> Layout:
    """Compute the coordinates of everything in the picture of a trace."""
    left = MARGIN + ROW_NAMES
    source_widths = [_word_width(word) for word in trace.source]
    target_widths = [BOLD * _word_width(word) for word in trace.written]
    reordered, target, columns = _lower_rows(trace, source_widths, target_widths, left)
    lower_width = max((box.right for box in (*(reordered or ()), *target)), default=left) - left
    source = _row(source_widths, left, _wider_gap(source_widths, lower_width))
    right = max(box.right for box in (*source, *(reordered or ()), *target, Box(left, 0)))
    source, reordered, target, columns = _centred(right, source, reordered, target, columns)
    tree_height = _tree_height(trace.nodes)
    source_y = MARGIN + tree_height + ROW / 2
    reordered_y = source_y + (ROW + CROSSING if reordered is not None else 0.0)
    target_y = reordered_y + ROW + LINK
    return Layout(
        width=right + MARGIN,
        height=(target_y if target else reordered_y) + ROW / 2 + MARGIN,
        source=source,
        reordered=reordered,
        target=target,
        columns=columns,
        nodes=_node_positions(trace.nodes, source, source_y - ROW / 2),
        source_y=source_y,
        reordered_y=reordered_y,
        target_y=target_y,
    )


def _word_width(word: str) -> float:
    return max(text_width(shortened(word)) * FONT_SIZE, FONT_SIZE)


def _row(widths: Sequence[float], left: float, gap: float = GAP) -> tuple[Box, ...]:
    boxes = []
    for width in widths:
        boxes.append(Box(left + width / 2, width))
        left += width + gap
    return tuple(boxes)


def _wider_gap(widths: Sequence[float], available: float) -> float:
    """Return the gap that spreads a row over the width of the rows below, so that lines become straighter."""
    spare = available - sum(widths)
    return min(max(GAP, spare / max(len(widths) - 1, 1)), 3 * GAP)


def _lower_rows(
    trace: Trace, source_widths: Sequence[float], target_widths: Sequence[float], left: float
) -> tuple[tuple[Box, ...] | None, tuple[Box, ...], tuple[Column, ...]]:
    """Lay out the reordered row and the output; the two sides of a segment are centred below each other."""
    if trace.order is None:
        return None, _row(target_widths, left), ()
    segments = trace.segments
    if segments is None:
        boxes = _row([source_widths[token] for token in trace.order], left)
        by_token = dict(zip(trace.order, boxes, strict=True))
        reordered = tuple(by_token[token] for token in range(len(trace.source)))
        return reordered, _row(target_widths, left), ()
    sources: dict[int, Box] = {}
    targets: dict[int, Box] = {}
    columns = []
    for segment in segments:
        widths = [_group_width(source_widths, segment.source), _group_width(target_widths, segment.target)]
        middle = left + max(widths) / 2
        above = _place_group(sources, segment.source, source_widths, middle, widths[0])
        below = _place_group(targets, segment.target, target_widths, middle, widths[1])
        columns.append(Column(segment.source, segment.target, above, below))
        left += max(widths) + GAP
    reordered = tuple(sources.get(token, Box(left, 0.0)) for token in range(len(trace.source)))
    target = tuple(targets.get(word, Box(left, 0.0)) for word in range(len(trace.target)))
    return reordered, target, tuple(columns)


def _group_width(widths: Sequence[float], tokens: Sequence[int]) -> float:
    return sum(widths[token] for token in tokens) + GAP * max(len(tokens) - 1, 0)


def _place_group(
    boxes: dict[int, Box], tokens: Sequence[int], widths: Sequence[float], middle: float, width: float
) -> Box | None:
    """Add the boxes of a group of tokens around its middle, and return the box of the group."""
    if not tokens:
        return None
    boxes |= zip(tokens, _row([widths[token] for token in tokens], middle - width / 2), strict=True)
    return Box(middle, width)


def _centred(
    right: float,
    source: tuple[Box, ...],
    reordered: tuple[Box, ...] | None,
    target: tuple[Box, ...],
    columns: tuple[Column, ...],
) -> tuple[tuple[Box, ...], tuple[Box, ...] | None, tuple[Box, ...], tuple[Column, ...]]:
    """Centre the rows that are shorter than the widest one; the two sides of a segment move together."""
    shift = (right - max(box.right for box in source)) / 2
    source = _moved(source, shift)
    lower = max((box.right for box in (*(reordered or ()), *target)), default=right)
    if reordered is not None and columns:
        shift = (right - lower) / 2
        moved = tuple(
            Column(column.source, column.target, _move(column.above, shift), _move(column.below, shift))
            for column in columns
        )
        return source, _moved(reordered, shift), _moved(target, shift), moved
    if reordered is not None:
        reordered = _moved(reordered, (right - max(box.right for box in reordered)) / 2)
    if target:
        target = _moved(target, (right - max(box.right for box in target)) / 2)
    return source, reordered, target, columns


def _moved(boxes: Sequence[Box], shift: float) -> tuple[Box, ...]:
    return tuple(Box(box.x + shift, box.width) for box in boxes)


def _move(box: Box | None, shift: float) -> Box | None:
    return None if box is None else Box(box.x + shift, box.width)


def heights(nodes: Sequence[Node]) -> list[int]:
    """Return the height of each node above its deepest leaf; parents come before their children in the list.

    >>> heights([Node(0, 2, "S", None, (1, 2)), Node(0, 1, None), Node(1, 2, None)])
    [1, 0, 0]
    """
    node_heights = [0] * len(nodes)
    for index in reversed(range(len(nodes))):
        node_heights[index] = max((node_heights[child] + 1 for child in nodes[index].children), default=0)
    return node_heights


def _tree_height(nodes: Sequence[Node]) -> float:
    return _level_height(nodes) * max(heights(nodes), default=0) + (FONT_SIZE if nodes else 0.0)


def _level_height(nodes: Sequence[Node]) -> float:
    """Return the distance between two levels: less in a deep tree, so that a long sentence fits on a screen."""
    return min(40.0, max(15.0, 330.0 / max(1, *heights(nodes), 1)))


def _node_positions(
    nodes: Sequence[Node], source: Sequence[Box], bottom: float
) -> tuple[tuple[float, float], ...]:
    """Place each node above the middle of its children, as high as its subtree is deep."""
    level_height, node_heights = _level_height(nodes), heights(nodes)
    positions: list[tuple[float, float]] = [(0.0, 0.0)] * len(nodes)
    for index in reversed(range(len(nodes))):
        node = nodes[index]
        if node.children:
            x = (positions[node.children[0]][0] + positions[node.children[-1]][0]) / 2
        else:
            x = (source[node.start].left + source[node.end - 1].right) / 2
        positions[index] = (x, bottom - level_height * node_heights[index])
    return tuple(positions)
