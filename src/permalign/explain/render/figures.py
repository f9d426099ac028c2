"""Figures for papers, with matplotlib.

save(expected_matrix(explain(model, "a sentence")), "matrix.pdf")
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from permalign.errors import PermalignError
from permalign.explain.render.heatmap import alignment_table
from permalign.explain.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH = 3.3
"""The width of a column of a paper, in inches."""
STYLE: Any = {
    "font.size": 8,
    "axes.linewidth": 0.6,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "pdf.fonttype": 42,  # embeds text as text, as publishers require
    "svg.fonttype": "none",
}


def expected_matrix(trace: Trace) -> "Figure":
    """Draw how probable each position is for each word: positions from top to bottom, words from left to right.

    Raises:
        ValueError: the trace has no expected matrix.
    """
    if trace.matrix is None:
        raise ValueError("this trace has no expected matrix: its reorderer has no distribution over orders.")
    positions = [str(position) for position in range(1, len(trace.matrix) + 1)]
    return _matrix_figure(trace.matrix, positions, trace.source, "position", "word")


def alignment(trace: Trace) -> "Figure":
    """Draw how probable it is that each source word stands behind each word of the output.

    Raises:
        ValueError: the trace has no alignment.
    """
    if trace.alignment is None:
        raise ValueError("this trace has no alignment: its head has none, or it has no discrete order.")
    return _matrix_figure(*alignment_table(trace), "output", "source")


def accuracy_by_length(results: Mapping[str, Iterable[tuple[int, bool]]]) -> "Figure":
    """Draw the accuracy over the length of sentences, with a line for each model.

    Args:
        results: for the name of each model, the length of every sentence and whether its output was correct.
    """
    if not results:
        raise ValueError("results is empty; give the results of at least one model.")
    with _style():
        figure = _figure(WIDTH, 0.62 * WIDTH)
        axes = figure.add_subplot()
        for name, pairs in results.items():
            by_length: dict[int, list[bool]] = defaultdict(list)
            for length, correct in pairs:
                by_length[length].append(correct)
            lengths = sorted(by_length)
            shares = [100 * sum(by_length[length]) / len(by_length[length]) for length in lengths]
            axes.plot(lengths, shares, marker="o", markersize=2.5, label=name)
        axes.set(xlabel="words of the sentence", ylabel="correct (%)", ylim=(-3, 103))
        axes.spines[["top", "right"]].set_visible(False)
        if len(results) > 1:
            axes.legend(frameon=False)
        return figure


def save(figure: "Figure", path: str | Path) -> None:
    """Write a figure in the format of the file's suffix; its text can be searched and copied."""
    with _style():
        figure.savefig(path)


def _matrix_figure(
    values: Sequence[Sequence[float]], rows: Sequence[str], columns: Sequence[str], ylabel: str, xlabel: str
) -> "Figure":
    with _style():
        height = WIDTH * (len(rows) + 2) / (len(columns) + 2)
        figure = _figure(WIDTH, min(max(height, 1.2), 2 * WIDTH))
        axes = figure.add_subplot()
        image = axes.imshow(values, cmap="Greys", vmin=0.0, vmax=1.0)
        axes.set_xticks(range(len(columns)), [_escape(name) for name in columns], rotation=90)
        axes.set_yticks(range(len(rows)), [_escape(name) for name in rows])
        axes.tick_params(length=0)
        axes.set(xlabel=xlabel, ylabel=ylabel)
        figure.colorbar(image, ax=axes, shrink=0.7, label="probability")
        return figure


def _escape(name: str) -> str:
    """Escape what matplotlib would read as a formula."""
    return name.replace("$", r"\$")


def _figure(width: float, height: float) -> "Figure":
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _style() -> AbstractContextManager[None]:
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError:
        raise PermalignError('figures need matplotlib: pip install "permalign[training]".') from None
    return rc_context(STYLE)
