"""``permalign align``: align the words of sentences with those of given outputs."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.evaluate import Checkpoint, Device
from permalign.cli.formatting import with_examples
from permalign.cli.printing import echo
from permalign.cli.run_arguments import SourceColumn, TargetColumn
from permalign.errors import DataError, PermalignError
from permalign.tasks.record_files import is_record_file
from permalign.tasks.whole_file import WholeFile

HELP = with_examples(
    "Print the word alignment of every pair of a file in Pharaoh format, one line per pair: `0-0 2-1` says that the "
    "first source word wrote the first output word, and the third source word the second.\n\n"
    "Indices count words from 0; subwords are merged back to words, and the end of the sentence is never linked. An "
    "output word without a link was written by no source word. The line of a pair that the model cannot write is "
    "empty, and a message says why.",
    "align runs/soft --file pairs.tsv > pairs.align",
    "align runs/soft --file pairs.csv --source-column english --target-column german",
    "align runs/soft --file pairs.tsv --posteriors",
)


@report_errors()
def align(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a model.")],
    file: Annotated[
        list[str],
        typer.Option(
            "--file",
            metavar="DATA",
            help="Pairs of sentences and outputs: a .tsv, .csv or .jsonl file (also .gz), a folder, or hf:NAME; given "
            "twice, aligned files of sentences and outputs. In other files, every line is a sentence, a tab, and an "
            "output.",
        ),
    ],
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    posteriors: Annotated[
        bool, typer.Option("--posteriors", help="Append the probability of each link: `0-0:0.9812`.")
    ] = False,
    checkpoint: Checkpoint = None,
    device: Device = None,
) -> None:
    """Print the word alignments of a file of pairs."""
    from permalign.cli.predict import open_model
    from permalign.explain.word_alignment import align as align_pair

    columns = {"source_column": source_column, "target_column": target_column}
    given = {name: value for name, value in columns.items() if value is not None}
    pairs = _read_pairs(file, {**_columns_of_run(run, file), **given})
    model, _, _ = open_model(run, checkpoint, None, device)
    for place, source, target in pairs:
        try:
            alignment = align_pair(model, source, target)
        except ValueError as error:
            raise PermalignError(str(error)) from None
        if alignment.problem is not None:
            echo(f"{' '.join(file)}, {place}: no alignment: {alignment.problem}", err=True)
        echo(alignment.pharaoh(posteriors))


def _columns_of_run(run: str, file: list[str]) -> dict[str, object]:
    """The columns that a run was trained with; none for a model without a run, and for aligned files."""
    from permalign.models.bundled import find_model_folder
    from permalign.training.trained_run import TrainedRun

    folder = find_model_folder(run)
    if len(file) > 1 or not (Path(folder) / "config.yaml").is_file():
        return {}
    return TrainedRun(folder).columns


def _read_pairs(arguments: list[str], columns: dict[str, object]) -> list[tuple[str, str, str]]:
    """The place, the source and the target of every pair.

    Raises:
        DataError: the data cannot be read, or a line has no tab.
    """
    path = Path(arguments[0])
    if len(arguments) == 1 and path.exists() and not path.is_dir() and not is_record_file(path):
        return _read_lines(path)
    task = WholeFile(arguments, "exact_match", **columns)
    for note in task.notes:
        echo(f"note: {note}", err=True)
    examples = task.examples(task.splits[0])
    return [
        (f"example {example.id}", " ".join(example.source), " ".join(example.target)) for example in examples
    ]


def _read_lines(file: Path) -> list[tuple[str, str, str]]:
    """The pairs of a file of lines with tabs."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}).", file) from None
    except UnicodeDecodeError:
        raise DataError("is not a text file in UTF-8.", file) from None
    pairs = []
    for number, line in enumerate(text.splitlines(), start=1):
        source, tab, target = line.partition("\t")
        if not tab:
            raise DataError("expected a sentence, a tab and an output.", file, number)
        pairs.append((f"line {number}", source, target.partition("\t")[0]))
    return pairs
