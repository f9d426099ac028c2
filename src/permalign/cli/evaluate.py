"""``permalign evaluate``: evaluate a run on splits of its task."""

import json
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import print_columns, with_examples
from permalign.cli.printing import echo
from permalign.cli.task_options import SOURCE_COLUMN_HELP, TARGET_COLUMN_HELP

if TYPE_CHECKING:
    from permalign.evaluation import Report
    from permalign.evaluation.breakdown import Group
    from permalign.training.trained_run import TrainedRun

HELP = with_examples(
    "Evaluate a run on splits of its task, or on all of a file, and write the predictions to RUN/predictions.\n\n"
    "Metrics are in percent. Token accuracy is the share of positions at which output and target have the same token; "
    "missing and superfluous tokens count as wrong. BLEU and chrF are computed by sacrebleu without tokenization "
    "(--tokenize none); the sacrebleu command that is printed gives the same scores for the files of references (.ref) "
    "and outputs (.hyp).",
    "evaluate runs/soft",
    "evaluate runs/soft --split iid/test --split len/test --beam 5",
    "evaluate runs/soft --file new.tsv",
    "evaluate runs/soft --split len/test --by depth --plot depth.pdf",
    "evaluate runs/soft --set task.depth=10 --split depth-10/test",
    "evaluate runs/geo --constrained --json | jq .metrics",
)

Beam = Annotated[
    int | None,
    typer.Option(min=1, help="Beam size; 1 is greedy search [default: the run's training.beam]."),
]
LengthPenalty = Annotated[
    float | None,
    typer.Option(
        min=0.0,
        help="Compare outputs by log-probability divided by length to this power [default: the run's "
        "training.length_penalty].",
    ),
]


class ChosenGrammar(StrEnum):
    """The grammars that can constrain outputs."""

    TRAINING = "training"
    GENERALIZED = "generalized"
    TASK = "task"


class ChosenSearch(StrEnum):
    """How outputs can be searched."""

    BEAM = "beam"
    EXACT = "exact"


WhichSearch = Annotated[
    ChosenSearch,
    typer.Option(
        "--search",
        help="Search outputs by a beam, or exactly: as many as --beam says, with the most probable derivations. Exact "
        "search needs a model that sums over orders and writes at most one word for a word.",
    ),
]
Constrained = Annotated[
    bool, typer.Option("--constrained", help="Allow only outputs of a grammar; see --grammar.")
]
WhichGrammar = Annotated[
    ChosenGrammar,
    typer.Option(
        "--grammar",
        help="The grammar of --constrained: the rules that the run's training data uses; the same, generalized to "
        "other types; or all rules of the task, some of which only test data may use.",
    ),
]
BatchSize = Annotated[int, typer.Option(min=1, help="Sentences per batch.")]
Device = Annotated[
    str | None, typer.Option(help="Device, such as cpu or cuda:1 [default: the first GPU, else the CPU].")
]
Checkpoint = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Name of a checkpoint in RUN/checkpoints, such as last [default: the best model].",
    ),
]
Splits = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        metavar="SPLIT",
        help="Split to evaluate on; may be repeated [default: the test split of the condition that was trained on].",
    ),
]


class Size(StrEnum):
    """The sizes by which metrics can be broken down."""

    LENGTH = "length"
    DEPTH = "depth"


@report_errors()
def evaluate(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that `permalign train` wrote.")],
    split: Splits = None,
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            metavar="DATA",
            help="Evaluate on all examples of your own data: a .tsv, .csv or .jsonl file (also .gz), a folder, or "
            "hf:NAME; given twice, aligned files of sources and targets. No earlier predictions are overwritten.",
        ),
    ] = None,
    source_column: Annotated[str | None, typer.Option(metavar="NAME", help=SOURCE_COLUMN_HELP)] = None,
    target_column: Annotated[str | None, typer.Option(metavar="NAME", help=TARGET_COLUMN_HELP)] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    search: WhichSearch = ChosenSearch.BEAM,
    constrained: Constrained = False,
    grammar: WhichGrammar = ChosenGrammar.TRAINING,
    checkpoint: Checkpoint = None,
    by: Annotated[
        Size | None, typer.Option(help="Also print the metrics by source length or by depth.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Plot the metric by length or depth (.png, .pdf or .svg) [default: --by length].",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder for the predictions [default: RUN/predictions]."),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Also compute this metric, such as a plug-in's; may be repeated."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="task.OPTION=VALUE", help="Change an option of the task; may be repeated."
        ),
    ] = None,
    batch_size: BatchSize = 64,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per split.")] = False,
) -> None:
    """Print the metrics of each split."""
    from permalign.evaluation import main_metric
    from permalign.evaluation.plots import plot_breakdown, require_format
    from permalign.training.trained_run import DecodingSettings, TrainedRun

    if plot is not None:
        by = by or Size.LENGTH
        try:
            require_format(plot)
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None
    trained_run = TrainedRun(run, checkpoint, settings or (), device)
    decoding = DecodingSettings(
        beam, grammar.value if constrained else None, batch_size, length_penalty, search.value
    )
    trained_run.constraint(decoding.grammar)  # so that an error is reported before anything is evaluated
    columns = {"source_column": source_column, "target_column": target_column}
    given = {name: value for name, value in columns.items() if value is not None}
    if (file and (split or settings)) or (given and not file):
        raise typer.BadParameter("use either --file with its columns, or --split and --set.")
    if file:
        split = [trained_run.use_file(file, **given)]
        for note in trained_run.task.notes:
            echo(f"note: {note}", err=True)
    splits = list(dict.fromkeys(split or [trained_run.test_split]))
    for name in splits:
        trained_run.require_split(name)
        if by is not None:
            _require_sizes(trained_run, name, by)
    trained_run.require_writable(output)
    reports: dict[str, Report] = {}
    groups: dict[str, tuple[Group, ...]] = {}
    for name in splits:
        place = " and ".join(file) if file else f"{name} of {trained_run.task.name}"
        echo(f"evaluating on {place}", err=True)
        reports[name] = trained_run.evaluate(name, decoding, metric or ())
        if by is not None:
            groups[name] = _breakdown(trained_run, reports[name], by)
        files = trained_run.write(name, decoding, reports[name], output)
        _log(reports[name], files)
        if as_json:
            record = _record(name, reports[name], files, by, groups.get(name, ()))
            echo(json.dumps(record, ensure_ascii=False))
    if not as_json:
        _print_reports(reports)
        for name, split_groups in groups.items():
            _print_groups(f"{name} by {by}", split_groups)
    if plot is not None:
        plot_breakdown(plot, groups, main_metric(trained_run.task), by or "")
        echo(f"wrote {plot}", err=True)


def _require_sizes(run: "TrainedRun", split: str, by: Size) -> None:
    """Raise an error, before the evaluation, if the examples do not have such a size."""
    from permalign.errors import UsageError
    from permalign.evaluation.breakdown import size_measure

    measure = size_measure(run.task, by)
    try:
        for example in run.task.examples(split):
            measure(example)
    except ValueError as error:
        raise UsageError(str(error)) from None


def _breakdown(run: "TrainedRun", report: "Report", by: Size) -> tuple["Group", ...]:
    from permalign.evaluation.breakdown import breakdown, size_measure
    from permalign.evaluation.metrics import is_translation

    return breakdown(report.predictions, size_measure(run.task, by), translation=is_translation(run.task))


def _log(report: "Report", files: list[Path]) -> None:
    from permalign.evaluation.sacrebleu_metrics import sacrebleu_command

    for note in report.notes:
        echo(f"note: {note}", err=True)
    echo(f"wrote {files[0]}", err=True)
    if report.signatures:
        echo(f"sacrebleu command for the same scores: {sacrebleu_command(*files[-2:])}", err=True)


def _record(
    split: str, report: "Report", files: list[Path], by: str | None, groups: tuple["Group", ...]
) -> dict[str, object]:
    record: dict[str, object] = {
        "split": split,
        "examples": len(report.predictions),
        "metrics": report.metrics,
        "signatures": report.signatures,
        "notes": report.notes,
        "unknown_tokens": 0 if report.unknown is None else report.unknown.unknown,
        "predictions": str(files[0]),
    }
    if by is not None:
        record[f"by_{by}"] = [asdict(group) for group in groups]
    return record


def _print_reports(reports: dict[str, "Report"]) -> None:
    metrics = next(iter(reports.values())).metrics
    rows = [("SPLIT", "EXAMPLES", *(name.upper() for name in metrics))]
    for split, report in reports.items():
        rows.append(
            (split, f"{len(report.predictions)}", *(f"{report.metrics[name]:.2f}" for name in metrics))
        )
    print_columns(rows, numbers_from=1)
    signatures = {name: text for report in reports.values() for name, text in report.signatures.items()}
    for name, signature in signatures.items():
        echo(f"{name}: {signature}")


def _print_groups(title: str, groups: tuple["Group", ...]) -> None:
    metrics = groups[0].metrics
    rows = [(title, "EXAMPLES", *(name.upper() for name in metrics))]
    rows += [
        (group.label, f"{group.count}", *(f"{group.metrics[name]:.2f}" for name in metrics))
        for group in groups
    ]
    echo()
    print_columns(rows, numbers_from=1)
