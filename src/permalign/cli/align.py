"""``permalign align``: align the words of sentences with those of given outputs."""

from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.evaluate import Checkpoint, Device
from permalign.cli.formatting import with_examples
from permalign.cli.printing import echo
from permalign.errors import DataError, PermalignError

HELP = with_examples(
    "Print the word alignment of every pair of a file in Pharaoh format, one line per pair: `0-0 2-1` says that the "
    "first source word wrote the first output word, and the third source word the second.\n\n"
    "Indices count words from 0; subwords are merged back to words, and the end of the sentence is never linked. An "
    "output word without a link was written by no source word. The line of a pair that the model cannot write is "
    "empty, and a message says why.",
    "align runs/soft --file pairs.tsv > pairs.align",
    "align runs/soft --file pairs.tsv --posteriors",
)


@report_errors()
def align(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Folder of a run or of a model.")],
    file: Annotated[
        Path,
        typer.Option(
            "--file",
            metavar="FILE",
            help="Text file with one pair per line: the sentence, a tab, and the output; tokens separated by spaces.",
        ),
    ],
    posteriors: Annotated[
        bool, typer.Option("--posteriors", help="Append the probability of each link: `0-0:0.9812`.")
    ] = False,
    checkpoint: Checkpoint = None,
    device: Device = None,
) -> None:
    """Print the word alignments of a file of pairs."""
    from permalign.cli.predict import open_model
    from permalign.explain.word_alignment import align as align_pair

    pairs = _read_pairs(file)
    model, _, _ = open_model(run, checkpoint, None, device)
    for number, (source, target) in enumerate(pairs, start=1):
        try:
            alignment = align_pair(model, source, target)
        except ValueError as error:
            raise PermalignError(str(error)) from None
        if alignment.problem is not None:
            typer.echo(f"{file}, line {number}: no alignment: {alignment.problem}", err=True)
        echo(alignment.pharaoh(posteriors))


def _read_pairs(file: Path) -> list[tuple[str, str]]:
    """The pairs of a file of lines with tabs.

    Raises:
        DataError: the file cannot be read, or a line has no tab.
    """
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
        pairs.append((source, target.partition("\t")[0]))
    return pairs
