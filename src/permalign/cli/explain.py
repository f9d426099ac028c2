"""``permalign explain``: how a model gets from a sentence to its output."""

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.errors import DataError, PermalignError

if TYPE_CHECKING:
    from permalign.explain import Comparison, Trace

HELP = """Show how a model gets from a sentence to its output: the tree (straight → and inverted ⇄ nodes), the
words before and after reordering, the segments, and how sure the model is.

With --target that output is explained instead: tree and alignment after both sides were seen. A tagging head that reads
single words gives them exactly; for other heads the most probable orders are rescored, and a note says how many.

\b
Examples:
  permalign explain runs/geo "what is the longest river in texas ?"
  permalign explain runs/geo "name the rivers ." --target "river all"
  permalign explain runs/geo "name the rivers ." --compare --html rivers.html --svg rivers.svg
  permalign explain runs/geo "name the rivers ." --json | jq .confidence
"""


@report_errors()
def explain(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder, or that of a saved model.")],
    sentence: Annotated[str, typer.Argument(metavar="SENTENCE", help="Its words, separated by spaces.")],
    target: Annotated[str | None, typer.Option(help="Explain this output instead of the model's.")] = None,
    compare: Annotated[
        bool,
        typer.Option("--compare", help="Greedy, Viterbi and most probable permutation where they differ."),
    ] = False,
    svg: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a picture.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one self-contained page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of text.")] = False,
    beam: Annotated[int, typer.Option(help="How many prefixes the search keeps.", min=1)] = 5,
) -> None:
    """Print a trace of one sentence, and write its picture or page."""
    trace, comparison = _look(run, sentence, target, compare, beam)
    from permalign.explain import html as page_of
    from permalign.explain import svg as picture_of
    from permalign.explain import text as text_of
    from permalign.explain.render.terminal import STEERING, compared

    if svg is not None:
        _write(svg, picture_of(trace))
    if html is not None:
        _write(html, page_of(trace, comparison))
    if as_json:
        record = trace.to_json()
        if compare:
            record["comparison"] = None if comparison is None else comparison.to_json()
        written = json.dumps(record, ensure_ascii=False, indent=2)
        typer.echo("\n".join(STEERING.sub(_escaped, line) for line in written.split("\n")))
        return
    typer.echo(text_of(trace))
    if compare:
        typer.echo("\n" + (compared(comparison) if comparison else "This model has one way to decode only."))


def _escaped(character: re.Match[str]) -> str:
    """As JSON writes a character that a terminal would obey."""
    return f"\\u{ord(character[0]):04x}"


def _write(path: Path, content: str) -> None:
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from None


def _look(
    run: Path, sentence: str, target: str | None, compare: bool, beam: int
) -> "tuple[Trace, Comparison | None]":
    """The traces; what is wrong with the sentence or the target is said in plain words."""
    try:
        from permalign.explain import compare as compare_variants
        from permalign.explain import explain as explain_sentence
        from permalign.explain.server.served_runs import load_from_folder
    except ModuleNotFoundError as error:
        raise PermalignError(
            f'permalign explain needs {error.name}: pip install "permalign[cli,models]".'
        ) from None
    model = load_from_folder(run)
    try:
        trace = explain_sentence(model, sentence, target, beam=beam)
        return trace, compare_variants(model, sentence, beam=beam) if compare else None
    except ValueError as error:
        raise PermalignError(str(error)) from None
