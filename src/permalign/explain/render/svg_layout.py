"""Where things stand in a picture: words in three rows, the tree above them, segments below."""

from collections.abc import Sequence
from dataclasses import dataclass

from permalign.explain.render.markup import shortened, text_width
from permalign.explain.trace.records import Node, Trace

SIZE = 16.0
"""Of letters."""
GAP = 20.0
"""Between words."""
BOLD = 1.1
"""How much wider than others the output's letters are."""
MARGIN = 14.0
LABELS = 84.0
"""Room for the names of the rows, on the left."""
ROW = 30.0
"""Height of a row of words."""
CROSSING = 84.0
"""Height of the crossing lines."""
LINK = 30.0
"""Height of the ribbons between a segment's two sides."""


@dataclass(frozen=True)
class Box:
    """A word or a group of words: its middle and its width."""

    x: float
    width: float

    @property
    def left(self) -> float:
        """Its left edge."""
        return self.x - self.width / 2

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Column:
    """A segment: the boxes of its source words in the reordered row, and of its output words."""

    source: tuple[int, ...]
    target: tuple[int, ...]
    above: Box | None
    below: Box | None


@dataclass(frozen=True)
class Layout:
    """Places of everything; x by token or output word, y by row.

    Attributes:
        width: of the picture.
        height: of the picture.
        source: a box for each source word.
        reordered: a box for each source word in the reordered row, by token; None without an order.
        target: a box for each output word.
        columns: the segments; none where there are none.
        nodes: ``(x, y)`` of every node of the tree, by its place in the trace.
        source_y: the middle of the row.
        reordered_y: likewise.
        target_y: likewise.
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
    """Find a place for everything."""
    left = MARGIN + LABELS
    source_widths = [_width(word) for word in trace.source]
    target_widths = [BOLD * _width(word) for word in trace.target]
    reordered, target, columns = _lower_rows(trace, source_widths, target_widths, left)
    room = max((box.right for box in (*(reordered or ()), *target)), default=left) - left
    source = _row(source_widths, left, _wider_gap(source_widths, room))
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
        nodes=_tree(trace.nodes, source, source_y - ROW / 2, tree_height),
        source_y=source_y,
        reordered_y=reordered_y,
        target_y=target_y,
    )


def _width(word: str) -> float:
    return max(text_width(shortened(word)) * SIZE, SIZE)


def _row(widths: Sequence[float], left: float, gap: float = GAP) -> tuple[Box, ...]:
    boxes = []
    for width in widths:
        boxes.append(Box(left + width / 2, width))
        left += width + gap
    return tuple(boxes)


def _wider_gap(widths: Sequence[float], room: float) -> float:
    """What spreads a row over the room that the rows below take, within reason: lines become straighter."""
    spare = room - sum(widths)
    return min(max(GAP, spare / max(len(widths) - 1, 1)), 3 * GAP)


def _lower_rows(
    trace: Trace, source_widths: Sequence[float], target_widths: Sequence[float], left: float
) -> tuple[tuple[Box, ...] | None, tuple[Box, ...], tuple[Column, ...]]:
    """The reordered row and the output; a segment's two sides stand below each other."""
    if trace.order is None:
        return None, _row(target_widths, left), ()
    segments = trace.segments
    if segments is None:
        placed = _row([source_widths[token] for token in trace.order], left)
        by_token = dict(zip(trace.order, placed, strict=True))
        reordered = tuple(by_token[token] for token in range(len(trace.source)))
        return reordered, _row(target_widths, left), ()
    sources: dict[int, Box] = {}
    targets: dict[int, Box] = {}
    columns = []
    for segment in segments:
        wide = [_group(source_widths, segment.source), _group(target_widths, segment.target)]
        middle = left + max(wide) / 2
        above = _fill(sources, segment.source, source_widths, middle, wide[0])
        below = _fill(targets, segment.target, target_widths, middle, wide[1])
        columns.append(Column(segment.source, segment.target, above, below))
        left += max(wide) + GAP
    reordered = tuple(sources.get(token, Box(left, 0.0)) for token in range(len(trace.source)))
    target = tuple(targets.get(word, Box(left, 0.0)) for word in range(len(trace.target)))
    return reordered, target, tuple(columns)


def _group(widths: Sequence[float], members: Sequence[int]) -> float:
    return sum(widths[member] for member in members) + GAP * max(len(members) - 1, 0)


def _fill(
    boxes: dict[int, Box], members: Sequence[int], widths: Sequence[float], middle: float, wide: float
) -> Box | None:
    """Boxes for the members of a group around its middle, and the box of the group."""
    if not members:
        return None
    boxes |= zip(members, _row([widths[member] for member in members], middle - wide / 2), strict=True)
    return Box(middle, wide)


def _centred(
    right: float,
    source: tuple[Box, ...],
    reordered: tuple[Box, ...] | None,
    target: tuple[Box, ...],
    columns: tuple[Column, ...],
) -> tuple[tuple[Box, ...], tuple[Box, ...] | None, tuple[Box, ...], tuple[Column, ...]]:
    """Rows that are shorter than the widest one move to the middle; a segment's two sides together."""
    shift = (right - max(box.right for box in source)) / 2
    source = _moved(source, shift)
    lower = max((box.right for box in (*(reordered or ()), *target)), default=right)
    if reordered is not None and columns:
        shift = (right - lower) / 2
        moved = tuple(
            Column(one.source, one.target, _move(one.above, shift), _move(one.below, shift))
            for one in columns
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
    """How far each node is above its deepest leaf; children stand behind their parents in the list.

    >>> heights([Node(0, 2, "S", None, (1, 2)), Node(0, 1, None), Node(1, 2, None)])
    [1, 0, 0]
    """
    found = [0] * len(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        found[place] = max((found[child] + 1 for child in nodes[place].children), default=0)
    return found


def _tree_height(nodes: Sequence[Node]) -> float:
    return _level(nodes) * max(heights(nodes), default=0) + (SIZE if nodes else 0.0)


def _level(nodes: Sequence[Node]) -> float:
    """Between a node and its children: less in a deep tree, so that a long sentence fits on a screen."""
    return min(40.0, max(15.0, 330.0 / max(1, *heights(nodes), 1)))


def _tree(
    nodes: Sequence[Node], source: Sequence[Box], bottom: float, height: float
) -> tuple[tuple[float, float], ...]:
    """A node stands above the middle of its children, as high as its subtree is deep."""
    level, found = _level(nodes), heights(nodes)
    places: list[tuple[float, float]] = [(0.0, 0.0)] * len(nodes)
    for place in range(len(nodes) - 1, -1, -1):
        node = nodes[place]
        if node.children:
            x = (places[node.children[0]][0] + places[node.children[-1]][0]) / 2
        else:
            x = (source[node.start].left + source[node.end - 1].right) / 2
        places[place] = (x, bottom - level * found[place])
    return tuple(places)
