"""``permalign predict``: sentences in, outputs out, line by line."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.evaluate import BatchSize, Beam, Checkpoint, Constrained, Device
from permalign.cli.formatting import with_examples
from permalign.cli.standard_input import STANDARD_INPUT, batches_of_lines, require_input
from permalign.errors import DataError, PermalignError

if TYPE_CHECKING:
    from permalign.model import Transducer
    from permalign.prediction import Explanation, Prediction
    from permalign.structures.derivations import Tree
    from permalign.tasks.grammar import Grammar
    from permalign.tasks.text_files import Line

HELP = with_examples(
    "Read sentences from standard input, one a line, tokens separated by spaces; write an output for each, in their "
    "order. Lines are answered as they come, in batches of those that have arrived. An empty line has an empty "
    "output.\n\n"
    "With --n-best there are several lines for each sentence: its number, a score (log-probability) and an output, "
    "separated by tabs. With --json there is an object for each sentence.",
    "predict runs/soft < questions.txt > programs.txt",
    "echo '( 1 + 2 ) * 3' | permalign predict runs/soft --explain",
    "predict runs/geo --constrained --beam 5 --n-best 5 --json < questions.txt | jq .output",
).replace("permalign echo", "echo")


@report_errors()
def predict(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN", help="A run, the folder of a model, or a name on the Hugging Face hub."
        ),
    ],
    beam: Beam = None,
    n_best: Annotated[int, typer.Option(min=1, help="How many outputs for each sentence.")] = 1,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show reasons: tree, reordered sentence, segments.")
    ] = False,
    constrained: Constrained = False,
    checkpoint: Checkpoint = None,
    batch_size: BatchSize = 64,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a sentence.")] = False,
) -> None:
    """Answer standard input."""
    if beam is not None and n_best > beam:
        raise typer.BadParameter(f"--n-best {n_best} needs a --beam of at least {n_best}, not {beam}.")
    require_input()
    model, own_beam, grammar = _open(run, checkpoint, constrained, device)
    width = max(own_beam, n_best) if beam is None else beam

    def answer(lines: "Sequence[Line]") -> "list[Prediction | None]":
        sentences = [line.text.split() for line in lines]
        filled = [place for place, words in enumerate(sentences) if words and model.source.encode(words)]
        answered = model.predict(
            [sentences[place] for place in filled],
            beam=width,
            n_best=n_best,
            explain=explain,
            constraint=grammar,
            batch_size=batch_size,
        )
        predictions = dict(zip(filled, answered, strict=True))
        return [predictions.get(place) for place in range(len(lines))]

    for lines in batches_of_lines(batch_size):
        for line, prediction in _within_memory(lines, answer):
            if as_json:
                record = _record(line.number, line.text.split(), prediction)
                typer.echo(json.dumps(record, ensure_ascii=False))
            else:
                for text in _text(line.number, prediction, n_best, explain):
                    typer.echo(text)
        sys.stdout.flush()


def _within_memory(
    lines: "Sequence[Line]", answer: "Callable[[Sequence[Line]], list[Prediction | None]]"
) -> "Iterator[tuple[Line, Prediction | None]]":
    """Lines with their answers; where memory is too small for all at once, one by one.

    Raises:
        DataError: it is too small for one of them.
    """
    try:
        answered = answer(lines)
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        if len(lines) > 1:
            for line in lines:
                yield from _within_memory([line], answer)
            return
        (line,) = lines
        raise DataError(
            f"with {len(line.text.split()):,} tokens it is too long for the memory there is. Shorten the line, or "
            "lower --beam.",
            STANDARD_INPUT,
            line.number,
        ) from None
    yield from zip(lines, answered, strict=True)


def _is_about_memory(error: Exception) -> bool:
    """Torch has a kind of error for the memory of a GPU, but not for that of the machine."""
    words = ("alloc", "out of memory", "not enough memory", "size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)


def _open(
    run: str, checkpoint: str | None, constrained: bool, device: str | None
) -> tuple["Transducer", int, "Grammar | None"]:
    """The model, the beam it is used with if none is asked for, and the grammar to keep to."""
    from permalign.training.trained_run import TrainedRun, load_pretrained

    if (Path(run) / "config.yaml").is_file():
        opened = TrainedRun(run, checkpoint, device=device)
        if constrained:
            opened.require_grammar()
        return opened.model, opened.options.training.beam, opened.task.grammar if constrained else None
    if checkpoint or constrained:
        option = "--checkpoint" if checkpoint else "--constrained"
        raise PermalignError(f"{option} needs a run with its config.yaml, which {run} is not.")
    return load_pretrained(run, device), 1, None


def _text(number: int, prediction: "Prediction | None", n_best: int, explain: bool) -> Iterator[str]:
    """The lines for one sentence."""
    found = [] if prediction is None else [prediction, *prediction.alternatives]
    if n_best > 1:
        yield from [f"{number}\t{one.score:.4f}\t{one.text}" for one in found] or [f"{number}\t\t"]
    else:
        yield found[0].text if found else ""
    if explain:
        if prediction is not None and prediction.explanation is not None:
            yield prediction.explanation.draw()
        yield ""


def _record(number: int, words: Sequence[str], prediction: "Prediction | None") -> dict[str, object]:
    """One sentence and its outputs; of an empty one, there are none."""
    record: dict[str, object] = {"line": number, "source": " ".join(words)}
    if prediction is None:
        return {**record, "output": "", "score": None}
    record |= _output(prediction)
    if prediction.alternatives:
        record["alternatives"] = [_output(one) for one in prediction.alternatives]
    if prediction.explanation is not None:
        record["explanation"] = _reasons(prediction.explanation)
    return record


def _output(prediction: "Prediction") -> dict[str, object]:
    return {"output": prediction.text, "score": prediction.score if isfinite(prediction.score) else None}


def _reasons(explanation: "Explanation") -> dict[str, object]:
    """An explanation as JSON has it; what the model cannot tell is null."""
    derivation, segments = explanation.derivation, explanation.segments
    return {
        "source": explanation.source,
        "target": explanation.target,
        "order": explanation.order,
        "reordered": explanation.reordered,
        "tree": None if derivation is None else nested(derivation.tree),
        "segments": None
        if segments is None
        else [{"source": segment.source, "target": segment.target} for segment in segments],
    }


def nested(tree: "Tree") -> object:
    """A leaf as the number of its token, or a list of several; a node as [rule, left, right]."""
    nested: dict[tuple[int, int], object] = {}
    for node in reversed(list(tree.nodes())):
        children = [nested[child.start, child.end] for child in node.children]
        tokens = list(range(node.start, node.end))
        leaf = tokens if len(tokens) > 1 else node.start
        nested[node.start, node.end] = [node.rule, *children] if children else leaf
    return nested[tree.start, tree.end]
