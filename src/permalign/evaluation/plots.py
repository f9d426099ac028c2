"""Plot metrics by the length or depth of examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from permalign.errors import DataError, PermalignError
from permalign.evaluation.breakdown import Group

FORMATS = (".png", ".pdf", ".svg")
TITLES = {
    "exact_match": "exact match (%)",
    "token_accuracy": "token accuracy (%)",
    "execution_accuracy": "execution accuracy (%)",
    "well_formed": "well-formed (%)",
    "bleu": "BLEU",
    "chrf": "chrF",
}


def plot_breakdown(path: str | Path, series: Mapping[str, Sequence[Group]], metric: str, by: str) -> None:
    """Plot a metric by size, one line per entry of ``series``, and below it the number of examples by size.

    Args:
        path: the file to write, which ends in .png, .pdf or .svg.
        series: the groups of each line, by the line's name (a split or a model).
        metric: the name of a metric that all groups have.
        by: the size that examples are grouped by, ``length`` or ``depth``.

    Raises:
        ValueError: the path has a different ending.
        PermalignError: the file cannot be written.
    """
    path = Path(path)
    require_format(path)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError:
        raise PermalignError('Plots need matplotlib: pip install "permalign[training]".') from None
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    metric_axes, count_axes = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    for name, groups in series.items():
        middles = [(group.smallest + group.largest) / 2 for group in groups]
        metric_axes.plot(middles, [group.metrics[metric] for group in groups], marker="o", label=name)
        count_axes.plot(middles, [group.count for group in groups], marker=".", linewidth=1)
    metric_axes.set_ylim(-2, 102)
    metric_axes.set_ylabel(TITLES.get(metric, metric))
    metric_axes.grid(alpha=0.3)
    figure.legend(loc="outside upper center", ncols=min(len(series), 4))
    count_axes.set_ylim(bottom=0)
    count_axes.set_ylabel("examples")
    count_axes.set_xlabel("source length (tokens)" if by == "length" else by)
    count_axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    count_axes.grid(alpha=0.3)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error


def require_format(path: Path) -> None:
    """Raise a `ValueError` for an unknown file format; to be called before an expensive evaluation."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: a plot must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
