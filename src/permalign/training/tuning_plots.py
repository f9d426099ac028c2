"""Optuna's own plots of a study: its history, the values that were tried, and which options matter."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna


def plot_study(study: optuna.Study, folder: Path) -> list[Path]:
    """Write the plots that a study has enough trials for; returns their paths.

    The importance of options is estimated by PED-ANOVA, which needs no further package; fANOVA, the default of older
    versions of Optuna, needs scikit-learn.
    """
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot
    from optuna.visualization import matplotlib as plots

    kinds: dict[str, Callable[[optuna.Study], Any]] = {
        "history": plots.plot_optimization_history,
        "slices": plots.plot_slice,
        "importances": _plot_importances,
        "learning-curves": plots.plot_intermediate_values,
    }
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, plot in kinds.items():
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Optuna calls these plots experimental
                plot(study)
                figure = pyplot.gcf()
                figure.set_size_inches(max(7, 2.2 * len(figure.axes)), 5)
                for axes in figure.axes:
                    # options beside each other need short labels: one line for each part
                    axes.set_xlabel(axes.get_xlabel().replace(".", "\n"))
                    if axes.get_xscale() == "log":  # labels within one power of ten are long
                        axes.tick_params(axis="x", which="both", labelrotation=45)
                figure.savefig(folder / f"{name}.png", dpi=120, bbox_inches="tight")
            written.append(folder / f"{name}.png")
        except (ValueError, RuntimeError):  # too few trials
            continue
        finally:
            pyplot.close("all")
    return written


def _plot_importances(study: optuna.Study) -> Any:
    from optuna.importance import PedAnovaImportanceEvaluator
    from optuna.visualization import matplotlib as plots

    return plots.plot_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
