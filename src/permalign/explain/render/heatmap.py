"""Heat maps as SVG: where each token stands, and which token stands behind which output word."""

from collections.abc import Sequence

from permalign.explain.render.markup import element, safe, shortened, text_width
from permalign.explain.trace.trace import Trace

CELL = 22.0
SIZE = 13.0


def heatmaps(trace: Trace) -> str:
    """Return the matrices of a trace as HTML elements that are closed at first; empty if there are none."""
    parts = []
    if trace.matrix is not None and len(trace.source) > 1:
        positions = [str(position) for position in range(1, len(trace.matrix) + 1)]
        drawn = heatmap(trace.matrix, positions, trace.source, "position")
        parts.append(_details("Where each word stands", drawn))
    if trace.alignment is not None:
        drawn = heatmap(*alignment_table(trace), "output word")
        parts.append(_details("What stands behind each output word", drawn))
    return "".join(parts)


END = "(end of sentence)"


def alignment_table(trace: Trace) -> tuple[Sequence[Sequence[float]], Sequence[str], Sequence[str]]:
    """Return the alignment with the names of its rows and columns; the last column may be the end of the sentence.

    >>> alignment_table(Trace(("a",), ("b",), alignment=((0.25,),), at_end=(0.75,)))
    ([(0.25, 0.75)], ('b',), ('a', '(end of sentence)'))
    """
    rows = trace.alignment or ()
    if trace.at_end is None:
        return rows, trace.target, trace.source
    extended = [(*row, end) for row, end in zip(rows, trace.at_end, strict=True)]
    return extended, trace.target, (*trace.source, END)


def heatmap(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], row_kind: str
) -> str:
    """Draw a matrix of probabilities, darker where they are higher; the title of each square gives its value."""
    left = max(text_width(shortened(name)) for name in rows) * SIZE + 12
    top = max(text_width(shortened(name)) for name in columns) * SIZE + 12
    parts = []
    for row, name in enumerate(rows):
        y = top + CELL * row
        parts.append(element("text", safe(shortened(name)), x=left - 8, y=y + CELL / 2, class_="row"))
        for column, value in enumerate(values[row]):
            if value >= 0.005:
                parts.append(_square(left + CELL * column, y, value, f"{row_kind} {name}: {columns[column]}"))
    for column, name in enumerate(columns):
        at = f"translate({left + CELL * (column + 0.5):.1f} {top - 8:.1f}) rotate(-90)"
        parts.append(element("text", safe(shortened(name)), transform=at, class_="column"))
    width, height = left + CELL * len(columns), top + CELL * len(rows)
    frame = element("rect", x=left, y=top, width=width - left, height=height - top, class_="frame")
    return element(
        "svg",
        frame + "".join(parts),
        class_="permalign-heatmap",
        viewBox=f"0 0 {width + 2:.0f} {height + 2:.0f}",
        width=round(width + 2),
        height=round(height + 2),
        role="img",
        aria_label=f"{len(rows)} by {len(columns)} probabilities",
    )


def _square(x: float, y: float, value: float, name: str) -> str:
    title = element("title", safe(f"{name}, {value:.2f}"))
    inner = CELL - 2
    return element(
        "rect", title, x=x + 1, y=y + 1, width=inner, height=inner, rx=3, class_="cell", fill_opacity=value
    )


def _details(title: str, drawn: str) -> str:
    return f'<details><summary>{safe(title)}</summary><div class="scroller">{drawn}</div></details>'
