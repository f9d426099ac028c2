"""``permalign compare``: compare two systems on the same examples, with significance tests."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.evaluate import (
    BatchSize,
    Beam,
    Checkpoint,
    ChosenGrammar,
    ChosenSearch,
    Constrained,
    Device,
    LengthPenalty,
    Splits,
    WhichGrammar,
    WhichSearch,
)
from permalign.cli.formatting import print_columns, with_examples
from permalign.errors import PermalignError

if TYPE_CHECKING:
    from permalign.evaluation.significance import Comparison, Spread
    from permalign.training.trained_run import TrainedRun

HELP = with_examples(
    "Compare two systems on the same examples. A system is a run, or several runs with different seeds, whose mean and "
    "standard deviation are shown: several folders separated by commas, or a folder that contains the runs.\n\n"
    "P is the p-value of the difference. For exact match and execution accuracy, it is that of a paired permutation "
    "test on means over seeds; for BLEU and chrF, those of sacrebleu's paired tests, one for each pair of seeds. "
    "Predictions in RUN/predictions are reused if the same model made them with the same settings; otherwise the run "
    "is evaluated.",
    "compare runs/ssnt runs/soft --split len/test",
    "compare runs/ssnt-0,runs/ssnt-1,runs/ssnt-2 runs/soft-0,runs/soft-1,runs/soft-2",
    "compare runs/ssnt runs/soft --json | jq '.comparisons[] | {metric, p_values}'",
)
SYSTEM = "A run, several runs separated by commas, or a folder of runs."


@report_errors()
def compare(
    first: Annotated[str, typer.Argument(metavar="SYSTEM_A", help=SYSTEM)],
    second: Annotated[str, typer.Argument(metavar="SYSTEM_B", help=SYSTEM)],
    split: Splits = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    search: WhichSearch = ChosenSearch.BEAM,
    constrained: Constrained = False,
    grammar: WhichGrammar = ChosenGrammar.TRAINING,
    checkpoint: Checkpoint = None,
    bootstrap: Annotated[
        bool,
        typer.Option(
            "--bootstrap", help="Test BLEU and chrF by bootstrap, not by approximate randomization."
        ),
    ] = False,
    resamples: Annotated[int, typer.Option(min=1, help="Number of random samples of each test.")] = 10_000,
    again: Annotated[
        bool, typer.Option("--again", help="Evaluate again instead of reusing stored predictions.")
    ] = False,
    batch_size: BatchSize = 64,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per split.")] = False,
) -> None:
    """Print the metrics of both systems, with p-values."""
    from permalign.evaluation import significance
    from permalign.evaluation.metrics import is_translation
    from permalign.training.trained_run import DecodingSettings, TrainedRun

    systems = [
        [TrainedRun(folder, checkpoint, device=device) for folder in _folders(system)]
        for system in (first, second)
    ]
    runs = [run for system in systems for run in system]
    splits = list(dict.fromkeys(split or [runs[0].test_split]))
    for run in runs:
        for name in splits:
            run.require_split(name)
    decoding = DecodingSettings(
        beam, grammar.value if constrained else None, batch_size, length_penalty, search.value
    )
    for name in splits:
        predictions = [[run.predictions(name, decoding, again=again) for run in system] for system in systems]
        try:
            comparisons = significance.compare(
                *predictions,
                translation=all(is_translation(run.task) for run in runs),
                test="bootstrap" if bootstrap else "randomization",
                resamples=resamples,
            )
        except ValueError as error:
            raise PermalignError(f"{name}: {error}") from None
        if as_json:
            typer.echo(json.dumps(_record(name, systems, len(predictions[0][0]), comparisons)))
        else:
            _print(name, systems, len(predictions[0][0]), comparisons)


def _folders(system: str) -> list[Path]:
    """The folders of a system's runs."""
    if (Path(system) / "config.yaml").is_file():
        return [Path(system)]
    if Path(system).is_dir():
        runs = sorted(config.parent for config in Path(system).glob("*/config.yaml"))
        if not runs:
            raise PermalignError(f"{system} is neither a run nor a folder of runs: it has no config.yaml.")
        return runs
    names = [name for name in system.split(",") if name]
    if not names:
        raise typer.BadParameter(f"{system!r} does not name a run.")
    return [folder for name in names for folder in _folders_of_name(name, system)]


def _folders_of_name(name: str, system: str) -> list[Path]:
    """The folders of one of the comma-separated names of a system."""
    if not Path(name).is_dir():
        context = "" if name == system else f" (of {system!r})"
        raise PermalignError(f"there is no run {name!r}{context}; train one with `permalign train`.")
    return _folders(name)


def _record(
    split: str, systems: list[list["TrainedRun"]], examples: int, comparisons: tuple["Comparison", ...]
) -> dict[str, object]:
    names = [[str(run.directory.path) for run in system] for system in systems]
    return {
        "split": split,
        "examples": examples,
        "first": names[0],
        "second": names[1],
        "comparisons": [
            {
                "metric": comparison.metric,
                "first": _spread_record(comparison.first),
                "second": _spread_record(comparison.second),
                "difference": comparison.difference,
                "p_values": comparison.p_values,
                "test": comparison.test or None,
            }
            for comparison in comparisons
        ],
    }


def _spread_record(spread: "Spread") -> dict[str, object]:
    return {"values": spread.values, "mean": spread.mean, "deviation": spread.deviation}


def _print(
    split: str, systems: list[list["TrainedRun"]], examples: int, comparisons: tuple["Comparison", ...]
) -> None:
    typer.echo(f"{split}, {examples} examples")
    for letter, system in zip("AB", systems, strict=True):
        typer.echo(f"{letter}: {', '.join(str(run.directory.path) for run in system)}")
    rows = [("METRIC", "A", "B", "B - A", "P")]
    rows += [
        (
            comparison.metric,
            _spread(comparison.first),
            _spread(comparison.second),
            f"{comparison.difference:+.2f}",
            " ".join(f"{p:.4f}" for p in comparison.p_values) or "-",
        )
        for comparison in comparisons
    ]
    print_columns(rows, numbers_from=1)
    metrics_by_test: dict[str, list[str]] = {}
    for comparison in comparisons:
        metrics_by_test.setdefault(comparison.test, []).append(comparison.metric)
    for test, metrics in metrics_by_test.items():
        if test:
            typer.echo(f"P of {', '.join(metrics)}: {test}")
    typer.echo()


def _spread(spread: "Spread") -> str:
    return f"{spread.mean:.2f}" + ("" if spread.deviation is None else f" ± {spread.deviation:.2f}")
