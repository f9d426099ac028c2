"""Plot metrics by the length or depth of examples, and learning curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
    figure = _new_figure()
    from matplotlib.ticker import MaxNLocator

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
    _save(figure, path)


def plot_curves(
    path: str | Path, runs: Mapping[str, Mapping[str, Sequence[tuple[int, float]]]], metric: str | None
) -> None:
    """Plot the training loss of runs, and below it their metric on dev, with the best value of each marked.

    Args:
        path: the file to write, which ends in .png, .pdf or .svg.
        runs: by the name of each run, its curves; see `permalign.training.run_summary.read_curves`.
        metric: the name of a dev metric; None to plot the training loss alone.
    """
    path = Path(path)
    require_format(path)
    figure = _new_figure()
    loss_axes, *others = figure.subplots(2 if metric else 1, 1, sharex=True, squeeze=False)[:, 0]
    for name, curves in runs.items():
        steps, losses = zip(*curves.get("train/loss", [(0, float("nan"))]), strict=True)
        (line,) = loss_axes.plot(steps, losses, label=name)
        for axes in others:
            points = curves.get(f"dev/{metric}", [])
            axes.plot(
                [step for step, _ in points],
                [value for _, value in points],
                marker=".",
                color=line.get_color(),
            )
            if points:
                best = max(points, key=lambda point: point[1])
                axes.plot(*best, marker="o", color=line.get_color())
                axes.annotate(f"{best[1]:.1f}", best, textcoords="offset points", xytext=(0, 6), ha="center")
    loss_axes.set_ylabel("training loss")
    for axes in others:
        axes.set_ylabel(f"{TITLES.get(metric or '', metric)} on dev")
        axes.margins(y=0.15)
        low, high = axes.get_ylim()
        if high - low < 1:  # a flat line needs no ticks of hundredths
            axes.set_ylim(low - 1, high + 1)
    for axes in (loss_axes, *others):
        axes.grid(alpha=0.3)
    (others or [loss_axes])[-1].set_xlabel("step")
    figure.legend(loc="outside upper center", ncols=1 if len(runs) > 4 else min(len(runs), 2))
    _save(figure, path)


def _new_figure() -> Any:
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PermalignError('Plots need matplotlib: pip install "permalign[training]".') from None
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def _save(figure: Any, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error


def require_format(path: Path) -> None:
    """Raise a `ValueError` for an unknown file format; to be called before an expensive evaluation."""
    if path.suffix.lower() not in FORMATS:
        raise ValueError(f"{path}: a plot must end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")
