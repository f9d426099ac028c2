"""The figures of the documentation, drawn by permalign itself when the pages are built, in a few seconds."""

from collections.abc import Callable
from functools import partial
from math import factorial, nan
from pathlib import Path

import torch
from extensions.results import RECORDS, read_results
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from permalign import MonotoneAlignment, SeparablePermutation, SynchronousPermutation, load_model
from permalign.explain import Trace, svg
from permalign.explain.trace.tree_nodes import flatten_tree
from permalign.reproduction.summary import CellResult
from permalign.structures import Derivation, Segment
from permalign.structures.permutations import derivation_count, separable_count

WORDS = ("the", "girl", "saw", "the", "hedgehog")
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "permalign",  # the same figure is the same file
    "savefig.transparent": True,  # the page's own background, light or dark
}
INK, SECOND, THIRD = "#1f4e79", "#c8553d", "#588157"


def sentence() -> SeparablePermutation:
    """Return a distribution for *the girl saw the hedgehog* in which the verb usually moves to the front."""
    scores = torch.zeros(1, 6, 6, 6, 2)
    for (start, middle, end), straight, inverted in (
        ((0, 1, 2), 3.0, 0.0),
        ((3, 4, 5), 3.0, 0.0),
        ((0, 2, 3), 1.5, 3.0),
        ((0, 3, 5), 3.0, 1.0),
        ((2, 3, 5), 1.5, 1.5),
        ((0, 2, 5), 1.0, 0.5),
    ):
        scores[0, start, middle, end] = torch.tensor([straight, inverted])
    return SeparablePermutation.from_dense(scores)


def picture(
    derivation: Derivation,
    words: tuple[str, ...],
    segments: tuple[Segment, ...] | None = None,
    target: tuple[str, ...] = (),
) -> str:
    """Draw a tree, the words before and after reordering, and the segments, as the explorer does."""
    return svg(
        Trace(words, target, order=derivation.order, nodes=flatten_tree(derivation.tree), segments=segments)
    )


def tree() -> str:
    """Draw the best derivation of the sentence."""
    return picture(sentence().best_derivation()[0], WORDS)


def counts() -> Figure:
    """Plot how many orders and trees there are for each length."""
    figure, axes = _axes(5.2, 2.8)
    lengths = range(1, 13)
    axes.semilogy(
        lengths, [factorial(n) for n in lengths], color=THIRD, marker="o", ms=3, label="permutations, n!"
    )
    axes.semilogy(
        lengths, [derivation_count(n) for n in lengths], color=SECOND, marker="o", ms=3, label="trees"
    )
    axes.semilogy(
        lengths, [separable_count(n) for n in lengths], color=INK, marker="o", ms=3, label="separable orders"
    )
    axes.set(xlabel="words", xticks=list(lengths))
    axes.legend(frameon=False)
    return figure


def sampling() -> Figure:
    """Draw averages of sampled matrices next to the exact expectation."""
    distribution = sentence()
    exact = distribution.expected_matrix()[0]
    panels = {}
    for count in (10, 100, 10_000):
        orders = distribution.sample((count,), generator=torch.Generator().manual_seed(1))[:, 0]
        panels[f"{count:,} samples"] = torch.nn.functional.one_hot(orders, len(WORDS)).float().mean(0)
    return _heatmaps({**panels, "exact": exact}, WORDS)


def three_answers() -> Figure:
    """Plot how often greedy, Viterbi and the most probable order disagree."""
    generator = torch.Generator().manual_seed(0)
    greedy_misses, best_misses, lengths, trials = [], [], range(2, 8), 80
    for n in lengths:
        scores = torch.randn(trials, (n**3 - n) // 6, 2, generator=generator)
        distribution = SeparablePermutation(scores)
        best = distribution.best_derivation()
        greedy = distribution.greedy_derivation()
        orders = distribution.most_probable_order(derivations=100).order.tolist()
        greedy_misses.append(sum(a.tree != b.tree for a, b in zip(greedy, best, strict=True)) / trials)
        best_misses.append(sum(a.order != tuple(b) for a, b in zip(best, orders, strict=True)) / trials)
    figure, axes = _axes(5.2, 2.6)
    axes.plot(
        lengths,
        [100 * x for x in greedy_misses],
        color=INK,
        marker="o",
        ms=3,
        label="greedy is not the best derivation",
    )
    axes.plot(
        lengths,
        [100 * x for x in best_misses],
        color=SECOND,
        marker="o",
        ms=3,
        label="the best derivation does not have the most probable order",
    )
    axes.set(xlabel="words", ylabel="of random scores (%)", xticks=list(lengths), ylim=(0, 100))
    axes.legend(frameon=False)
    return figure


def posterior() -> Figure:
    """Draw the probabilities of positions before and after the output is seen."""
    distribution = sentence()
    output = ("SAW", "THE", "GIRL", "THE", "HEDGEHOG")
    emissions = torch.tensor(
        [[[0.96 if word.upper() == tag else 0.01 for tag in output] for word in WORDS]]
    ).log()
    given = distribution.tagging_posterior(emissions).alignment.T
    return _heatmaps({"before": distribution.expected_matrix()[0], "after": given.float()}, WORDS)


def monotone() -> Figure:
    """Draw the posteriors of a monotone alignment, and the best alignment."""
    cells, output = ("how", "many", "states", "</s>"), ("count", "(", "state", ")", "</s>")
    generator = torch.Generator().manual_seed(3)
    words = torch.rand(1, 4, 5, generator=generator) * 0.2 + 0.05
    for cell, step in ((0, 0), (1, 0), (1, 1), (2, 2), (2, 3), (3, 4)):
        words[0, cell, step] = 0.6
    alignment = MonotoneAlignment(torch.zeros(1, 4, 5), words.log())
    figure, axes = _axes(3.6, 2.8)
    axes.imshow(alignment.posteriors()[0], cmap="Blues", vmin=0, vmax=1)
    axes.plot(range(5), alignment.best_alignment().cells[0].tolist(), color=SECOND, marker="o", ms=4)
    axes.set_yticks(range(4), cells)
    axes.set_xticks(range(5), output)
    axes.tick_params(length=0)
    axes.set(xlabel="output", ylabel="source, reordered")
    return figure


def transduction() -> str:
    """Draw the best derivation of a sentence and its output, with its segments."""
    source, output = ("utah", "has", "which", "rivers", "?"), ("river", "loc", "stateid", "utah")
    wrote = {(3, 0, 1), (1, 1, 1), (0, 2, 2), (2, 0, 0), (4, 0, 0)}
    segments = torch.full((1, 5, 5, 3), 0.01)
    segments[..., 0] = 0.05
    for token, start, size in wrote:
        segments[0, token, start if size else slice(None), size] = 0.9
    pair = SynchronousPermutation(torch.zeros(1, 20, 2), segments.log())
    (best,) = pair.best_derivation()
    return picture(best, source, best.segments, output)


def one_word() -> Figure:
    """Plot the accuracy under held-out conditions, by how many output words a source word may write."""
    titles = {
        "three-words": "up to three output words",
        "exact": "one output word",
        "window": "one, window encoder",
    }
    columns = {
        "en-temp_tune": "EN held-out\ntemplates",
        "en-len": "EN longer\nprograms",
        "zh-temp_tune": "ZH held-out\ntemplates",
        "zh-len": "ZH longer\nprograms",
    }
    results = read_results("ablation")
    return _bars(
        {
            title: [_mean(results.get(f"{row}-constrained/{column}")) for column in columns]
            for row, title in titles.items()
        },
        list(columns.values()),
    )


def beyond() -> Figure:
    """Plot GeoQuery's hard conditions: the paper's best, hard ReMoto, exact transduction with and without reranking."""
    results = read_results("table3")
    columns = [f"{language}-{condition}" for condition in ("temp", "len") for language in ("en", "zh", "de")]
    paper = [
        max(result.cell.paper or 0.0 for name, result in results.items() if name.endswith(f"/{column}"))
        for column in columns
    ]
    titles = {
        "Hard-ReMoto": "hard",
        "exact transduction": "exact-constrained-all-programs",
        "reranked": "reranked-all-programs",
    }
    return _bars(
        {
            "the paper's best": paper,
            **{
                title: [_mean(results.get(f"{row}/{column}")) for column in columns]
                for title, row in titles.items()
            },
        },
        [column.upper().replace("-", " ") for column in columns],
    )


def _mean(result: CellResult | None) -> float:
    """Return a cell's exact match; not a number if it was not run."""
    spread = None if result is None else result.spread("exact_match")
    return nan if spread is None else spread.mean


def _bars(series: dict[str, list[float]], groups: list[str]) -> Figure:
    figure, axes = _axes(6.6, 2.9)
    width = 0.8 / len(series)
    colours = ("#b8c4cf", THIRD, SECOND, INK)
    for number, ((title, values), colour) in enumerate(zip(series.items(), colours, strict=False)):
        positions = [group + (number - (len(series) - 1) / 2) * width for group in range(len(groups))]
        axes.bar(positions, values, width, label=title, color=colour)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel("exact match (%)")
    axes.legend(frameon=False, ncols=4, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    return figure


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.add_subplot()


def _heatmaps(panels: dict[str, torch.Tensor], words: tuple[str, ...]) -> Figure:
    figure = Figure(figsize=(1.9 * len(panels) + 0.4, 2.7), layout="constrained")
    FigureCanvasAgg(figure)
    for column, (title, matrix) in enumerate(panels.items(), start=1):
        axes = figure.add_subplot(1, len(panels), column)
        axes.imshow(matrix, cmap="Blues", vmin=0, vmax=1)
        axes.set_title(title, fontsize=9)
        axes.set_xticks(range(len(words)), words, rotation=90)
        axes.set_yticks(range(len(words)), range(1, len(words) + 1))
        axes.tick_params(length=0)
        if column == 1:
            axes.set_ylabel("position")
    return figure


GALLERY = {
    "gallery-date": ("dates", "12 march 2021"),
    "gallery-american-date": ("dates", "march 12 , 2021"),
    "gallery-ordinal": ("dates", "the 3rd of may 1999"),
    "gallery-slashes": ("dates", "3 / 12 / 2021"),
    "gallery-command": ("scan-sp", "jump twice after walk around left"),
    "gallery-conjunction": ("scan-sp", "walk left and run thrice"),
    "gallery-expression": ("arithmetic", "( 2 * ( 8 - 5 ) )"),
    "gallery-nested": ("arithmetic", "( ( 7 / 1 ) - ( 4 + 2 ) )"),
}
"""The models that come with the package and the sentences that the gallery shows, by the names of the figures."""


def explained(model: str, sentence: str) -> str:
    """Draw how a model that comes with the package gets from a sentence to its output."""
    return svg(load_model(model).explain(sentence))


FIGURES: dict[str, Callable[[], Figure | str]] = {
    draw.__name__.replace("_", "-"): draw
    for draw in (tree, counts, sampling, three_answers, posterior, monotone, transduction, one_word, beyond)
} | {name: partial(explained, *shown) for name, shown in GALLERY.items()}


def make_all(folder: Path) -> None:
    """Write every figure that is missing, or older than this file or the results."""
    folder.mkdir(exist_ok=True)
    changed = max(path.stat().st_mtime for path in (Path(__file__), RECORDS))
    for name, draw in FIGURES.items():
        path = folder / f"{name}.svg"
        if path.exists() and path.stat().st_mtime > changed:
            continue
        with rc_context(STYLE):
            figure = draw()
            if isinstance(figure, str):
                path.write_text(figure, "utf-8")
            else:
                figure.savefig(path, metadata={"Date": None})
