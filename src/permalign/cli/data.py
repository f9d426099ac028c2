"""``permalign data``: list, inspect, export and download datasets."""

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import print_columns, with_examples
from permalign.cli.printing import echo
from permalign.cli.task_options import takes_task
from permalign.errors import UsageError, unknown_name
from permalign.plugins import TASKS
from permalign.tasks.base import Example, Task
from permalign.tasks.data_folder import data_root
from permalign.tasks.download import Progress, find_download
from permalign.tasks.download import fetch as fetch_download
from permalign.tasks.download_catalogue import DOWNLOADS, Download, RemoteFile
from permalign.tasks.export import example_line, write_task
from permalign.tasks.registry import load_task_class, task_options
from permalign.tasks.split_statistics import SideStatistics, task_statistics

app = typer.Typer(
    help="List, inspect, export and download datasets.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Data folder, with a subfolder per dataset [default: $PERMALIGN_DATA, else the cache]."
    ),
]


def _help(sentence: str, *examples: str) -> str:
    return with_examples(sentence, *(f"data {example}" for example in examples))


@app.command("list", help=_help("List the tasks and the datasets that can be downloaded.", "list"))
@report_errors()
def list_tasks(data_dir: DataDir = None) -> None:
    """Print the tasks with their options, and the downloads with their licences."""
    print_columns(
        [
            ("TASK", "METRIC", "DESCRIPTION"),
            *((task.name, task.metric, task.description) for task in map(load_task_class, TASKS)),
        ]
    )
    echo()
    print_columns([("TASK", "OPTIONS"), *((name, _flags(name)) for name in TASKS)])
    echo()
    root = data_root(data_dir)
    print_columns(
        [
            ("DOWNLOAD", f"IN {root}", "LICENCE"),
            *((download.name, _presence(download, root), download.licence) for download in DOWNLOADS),
        ]
    )


@app.command(
    help=_help(
        "Print the first examples of a split.",
        "show en-ja len/test",
        "show my.csv iid/train -n 20",
        "show scan-sp iid/dev --json -n 100 | jq .source",
    )
)
@report_errors()
@takes_task
def show(
    task: Task,
    split: str | None,
    number: Annotated[int, typer.Option("-n", "--number", help="Number of examples.", min=0)] = 5,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")] = False,
) -> None:
    """Print the first examples of a split."""
    split = task.splits[0] if split is None else split
    if split not in task.splits:
        raise UsageError(unknown_name(f"split of {task.name}", split, task.splits))
    examples = task.examples(split)
    _print_notes(task)
    for example in islice(examples, number):
        echo(example_line(example) if as_json else _block(example) + "\n")


@app.command(
    help=_help(
        "Write every split of a task as JSON lines, to DIR/CONDITION/PART.jsonl.",
        "make scan-sp --out data/scan-sp",
        "make zh-en --source-file fbis.zh --target-file fbis.en --out data/fbis",
    )
)
@report_errors()
@takes_task
def make(
    task: Task,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder to write to.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
) -> None:
    """Write every split of a task as JSON lines."""
    paths = write_task(task, out, overwrite=force)
    _print_notes(task)
    for path in paths:
        echo(path)


@app.command(
    help=_help(
        "Print the number of examples, the lengths and the vocabulary sizes (TYPES) of every split. UNSEEN is the "
        "share of tokens that do not occur in the training split of the same condition.",
        "stats en-ja",
        "stats my.tsv --source-column question --target-column query",
        "stats a.de a.en",
    )
)
@report_errors()
@takes_task
def stats(task: Task) -> None:
    """Print the size, lengths and vocabulary sizes of every split."""
    statistics = task_statistics(task)
    _print_notes(task)
    rows = [
        ("", "", *("source",) * 4, *("target",) * 4),
        ("SPLIT", "EXAMPLES", *("MEAN", "MAX", "TYPES", "UNSEEN") * 2),
    ]
    rows += [
        (split.split, f"{split.examples}", *_cells(split.source), *_cells(split.target))
        for split in statistics
    ]
    print_columns(rows, numbers_from=1)


@app.command(
    help=_help(
        "Download datasets to the data folder, and verify their checksums. A download that fails is tried again; files "
        "that are there already are only verified.",
        "fetch en-ja",
        "fetch geoquery geobase --data-dir data",
    )
)
@report_errors()
def fetch(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="Names of downloads; see `permalign data list`.")
    ],
    data_dir: DataDir = None,
) -> None:
    """Download datasets, and print the paths of their files."""
    import pooch  # noqa: F401 - if it is missing, this is said before anything else

    for download in [find_download(name) for name in names]:
        echo(f"Licence of {download.name}: {download.licence}.", err=True)
        with _progress_bar(download) as progress:
            paths = fetch_download(download, data_dir, progress=progress)
        for path in paths:
            echo(path)


@contextmanager
def _progress_bar(download: Download) -> Iterator[Progress]:
    """Show a progress bar per file on standard error, if it is a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Bars(*columns, console=console, disable=not console.is_terminal) as bars:
        bar_of = {file: bars.add_task(file.name, total=file.size) for file in download.files}

        def progress(file: RemoteFile, received: int) -> None:
            bars.update(bar_of[file], completed=received)

        yield progress


def _flags(task_name: str) -> str:
    return " ".join("--" + option.replace("_", "-") for option in task_options(task_name))


def _presence(download: Download, root: Path) -> str:
    present = sum((root / download.folder / file.name).is_file() for file in download.files)
    total = len(download.files)
    return {0: "missing", total: "present"}.get(present, f"{present} of {total} files")


def _block(example: Example) -> str:
    lines = [("id", example.id), ("source", " ".join(example.source)), ("target", " ".join(example.target))]
    used_keys = {name for name, _ in lines}
    lines += [(f"meta.{key}" if key in used_keys else key, str(value)) for key, value in example.meta.items()]
    width = max(len(key) for key, _ in lines)
    return "\n".join(f"{key:{width}}  {value}" for key, value in lines)


def _cells(side: SideStatistics) -> tuple[str, str, str, str]:
    unseen = "-" if side.unseen is None else f"{side.unseen:.1%}"
    return f"{side.mean_length:.1f}", f"{side.max_length}", f"{side.vocab_size}", unseen


def _print_notes(task: Task) -> None:
    for note in task.notes:
        echo(f"note: {note}", err=True)
