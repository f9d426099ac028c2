"""``permalign explain``: show how a model arrives at its output for a sentence."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.errors import CONTROL_CHARACTERS, DataError, PermalignError

if TYPE_CHECKING:
    from permalign.explain import Comparison, Trace

HELP = """Show how a model arrives at its output for a sentence: the tree with its straight (→) and inverted (⇄) nodes,
the words before and after reordering, the segments, and the confidence of the model.

With --target, the given output is explained instead: the tree and the alignment are those that are most probable given
both the sentence and the output. They are exact for a segments head, and for a tagging head that reads single words.
For other heads, the most probable orders are rescored, and a note says how many.

\b
Examples:
  permalign explain dates "12 march 2021"
  permalign explain runs/geo "what is the longest river in texas ?"
  permalign explain runs/geo "name the rivers ." --target "river all"
  permalign explain runs/geo "name the rivers ." --compare --html rivers.html --svg rivers.svg
  permalign explain runs/geo "name the rivers ." --json | jq .confidence
"""


@report_errors("cli,models")
def explain(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder of a run or of a saved model, or a model that comes with permalign."
        ),
    ],
    sentence: Annotated[
        str, typer.Argument(metavar="SENTENCE", help="Sentence, with its words separated by spaces.")
    ],
    target: Annotated[
        str | None, typer.Option(help="Explain this output instead of the model's own.")
    ] = None,
    compare: Annotated[
        bool,
        typer.Option(
            "--compare", help="Also show greedy decoding, Viterbi decoding and the most probable permutation."
        ),
    ] = False,
    svg: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the tree as a picture to this file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a self-contained web page to this file.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False,
    beam: Annotated[
        int | None,
        typer.Option(help="Beam size [default: the run's training.beam; 5 for a saved model].", min=1),
    ] = None,
) -> None:
    """Print the explanation of a sentence, and write it as a picture or a web page."""
    trace, comparison = _trace(run, sentence, target, compare, beam)
    from permalign.explain import html as html_of
    from permalign.explain import svg as svg_of
    from permalign.explain import text as text_of
    from permalign.explain.render.terminal import comparison_text

    if svg is not None:
        _write(svg, svg_of(trace))
    if html is not None:
        _write(html, html_of(trace, comparison))
    if as_json:
        record = trace.to_json()
        if compare:
            record["comparison"] = None if comparison is None else comparison.to_json()
        printed = json.dumps(record, ensure_ascii=False, indent=2)
        typer.echo("\n".join(CONTROL_CHARACTERS.sub(_escape, line) for line in printed.split("\n")))
        return
    typer.echo(text_of(trace))
    if compare:
        shown = comparison_text(comparison) if comparison else "This model has only one way of decoding."
        typer.echo("\n" + shown)


def _escape(character: re.Match[str]) -> str:
    """Escape a control character, which a terminal would act on, as in JSON."""
    return f"\\u{ord(character[0]):04x}"


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from None


def _trace(
    run: Path, sentence: str, target: str | None, compare: bool, beam: int | None
) -> "tuple[Trace, Comparison | None]":
    """Load the model and explain the sentence; errors in sentence and target are reported without a stack trace."""
    from permalign.explain import compare as compare_variants
    from permalign.explain import explain as explain_sentence
    from permalign.explain.server.served_runs import Search, load_from_folder
    from permalign.models.bundled import find_model_folder

    folder = find_model_folder(run)
    model, search = load_from_folder(folder), Search.of(folder)
    width = beam or search.beam
    try:
        trace = explain_sentence(model, sentence, target, beam=width, length_penalty=search.length_penalty)
        return trace, compare_variants(model, sentence, beam=width) if compare else None
    except ValueError as error:
        raise PermalignError(str(error)) from None
