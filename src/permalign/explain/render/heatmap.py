"""Heat maps as SVG: where each token goes, and which token each output word comes from."""

from collections.abc import Sequence

from permalign.explain.render.markup import element, safe, shortened, text_width
from permalign.explain.trace.trace import Trace

CELL = 36.0
SIZE = 13.0
SLANT = 0.71
"""The sine and cosine of the angle at which the names of columns are written, 45 degrees."""
WRITTEN = 0.05
"""The value of a square is written into it if it is at least this."""
DARK = 0.55
"""The value from which on a square is so dark that its value is written in white."""


def heatmaps(trace: Trace) -> str:
    """Return the matrices of a trace as HTML elements that are closed at first; empty if there are none."""
    parts = []
    if trace.matrix is not None and len(trace.source) > 1:
        positions = [str(position) for position in range(1, len(trace.matrix) + 1)]
        drawn = heatmap(trace.matrix, positions, trace.source, "position")
        caption = (
            "Each number is the probability that reordering puts the word at the top of its column into the position "
            "at the left of its row."
        )
        parts.append(_details("Where each word goes", caption, drawn))
    if trace.alignment is not None:
        drawn = heatmap(*alignment_table(trace), "output")
        caption = (
            "Each number is the probability that the output word at the left of its row comes from the word at the top "
            "of its column."
        )
        parts.append(_details("Where each output word comes from", caption, drawn))
    return "".join(parts)


END = "(end of sentence)"


def alignment_table(trace: Trace) -> tuple[Sequence[Sequence[float]], Sequence[str], Sequence[str]]:
    """Return the alignment with the names of its rows and columns; the last column may be the end of the sentence.

    >>> alignment_table(Trace(("a",), ("b",), alignment=((0.25,),), at_end=(0.75,)))
    ([(0.25, 0.75)], ('b',), ('a', '(end of sentence)'))
    """
    rows = trace.alignment or ()
    if trace.at_end is None:
        return rows, trace.written, trace.source
    extended = [(*row, end) for row, end in zip(rows, trace.at_end, strict=True)]
    return extended, trace.written, (*trace.source, END)


def heatmap(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], row_kind: str
) -> str:
    """Draw a matrix of probabilities: each square has its value in it, and is darker the higher it is."""
    widths = [text_width(shortened(name)) * SIZE for name in columns]
    left = max(text_width(shortened(name)) for name in (*rows, row_kind)) * SIZE + 16
    top = SLANT * max(widths) + 22
    width, height = left + CELL * len(columns), top + CELL * len(rows)
    overhang = max(
        left + CELL * (column + 0.5) + SLANT * name_width + 10 for column, name_width in enumerate(widths)
    )
    parts = [element("text", safe(row_kind), x=left - 10, y=top - 12, class_="row kind")]
    for column, name in enumerate(columns):
        at = f"translate({left + CELL * (column + 0.5):.1f} {top - 10:.1f}) rotate(-45)"
        parts.append(element("text", safe(shortened(name)), transform=at, class_="column"))
    for row, name in enumerate(rows):
        y = top + CELL * row
        parts.append(element("text", safe(shortened(name)), x=left - 10, y=y + CELL / 2, class_="row"))
        for column, value in enumerate(values[row]):
            parts.append(_square(left + CELL * column, y, value, f"{row_kind} {name}: {columns[column]}"))
    return element(
        "svg",
        "".join(parts),
        class_="permalign-heatmap",
        viewBox=f"0 0 {max(width, overhang) + 2:.0f} {height + 2:.0f}",
        width=round(max(width, overhang) + 2),
        height=round(height + 2),
        role="img",
        aria_label=f"{len(rows)} by {len(columns)} probabilities",
    )


def _square(x: float, y: float, value: float, name: str) -> str:
    """Draw a square with its value; one that is almost zero stays empty."""
    title = element("title", safe(f"{name}, {value:.2f}"))
    box = {"x": x + 1, "y": y + 1, "width": CELL - 2, "height": CELL - 2, "rx": 5}
    content = title + element("rect", class_="empty", **box)
    if value >= 0.005:
        content += element("rect", class_="cell", fill_opacity=value, **box)
    if value >= WRITTEN:
        shown = "1" if value >= 0.995 else f"{value:.2f}"[1:]
        kind = "value dark" if value >= DARK else "value"
        content += element("text", shown, x=x + CELL / 2, y=y + CELL / 2, class_=kind)
    return element("g", content)


def _details(title: str, caption: str, drawn: str) -> str:
    return (
        f'<details><summary>{safe(title)}</summary><p class="caption">{safe(caption)}</p>'
        f'<div class="scroller">{drawn}</div></details>'
    )
