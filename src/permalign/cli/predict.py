"""``permalign predict``: predict an output for every line of a file or of standard input."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
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
    WhichGrammar,
    WhichSearch,
)
from permalign.cli.formatting import with_examples
from permalign.cli.input_lines import STANDARD_INPUT, batches_of_lines, require_input
from permalign.cli.printing import echo
from permalign.errors import DataError, PermalignError

if TYPE_CHECKING:
    from permalign.models.base import Model
    from permalign.models.prediction import Explanation, Prediction
    from permalign.options.run import TrainingOptions
    from permalign.structures.derivations import Tree
    from permalign.tasks.file_readers import Line
    from permalign.tasks.grammar import Grammar
    from permalign.training.trained_run import GrammarSource

HELP = with_examples(
    "Read sentences from a file or from standard input, one per line and written as in the training data, and print "
    "one output per line, in the same order. Lines are processed as they arrive. The output for an empty line is empty."
    "\n\n"
    "With --n-best, several lines are printed per sentence, each with the number of the sentence, the score "
    "(log-probability) and the output, separated by tabs. With --json, one JSON object is printed per sentence.\n\n"
    "Words that the model has never seen are named in a warning on standard error, and in the field unknown of --json.",
    "predict runs/soft questions.txt > programs.txt",
    "echo '( 1 + 2 ) * 3' | permalign predict runs/soft --explain",
    "predict runs/de sentences.txt --glossary terms.tsv",
    "predict runs/geo --constrained --beam 5 --n-best 5 --json questions.txt | jq .output",
).replace("permalign echo", "echo")


@report_errors()
def predict(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="Folder of a run or of a model, a model that comes with permalign, or a name on the Hugging Face hub.",
        ),
    ],
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="Text file of sentences [default: standard input]."),
    ] = None,
    beam: Beam = None,
    length_penalty: LengthPenalty = None,
    search: WhichSearch = ChosenSearch.BEAM,
    n_best: Annotated[int, typer.Option(min=1, help="Number of outputs per sentence.")] = 1,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Show the derivation tree, the reordered sentence and the segments."),
    ] = False,
    constrained: Constrained = False,
    grammar: WhichGrammar = ChosenGrammar.TRAINING,
    glossary: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Text file of required outputs, one per line: a source phrase, a tab, and its output, or several "
            "outputs of which one is required (inflected forms), separated by tabs.",
        ),
    ] = None,
    checkpoint: Checkpoint = None,
    batch_size: BatchSize = 64,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object per sentence.")] = False,
) -> None:
    """Predict an output for each line of a file or of standard input."""
    if beam is not None and n_best > beam:
        raise typer.BadParameter(f"--n-best {n_best} needs a --beam of at least {n_best}, not {beam}.")
    require_input(file)
    terms = None
    if glossary is not None:
        from permalign.decoding.glossary import Glossary

        terms = Glossary.read(glossary)
    model, defaults, constraint = open_model(run, checkpoint, grammar.value if constrained else None, device)
    beam_size = max(defaults.beam, n_best) if beam is None else beam
    penalty = defaults.length_penalty if length_penalty is None else length_penalty

    def predict_lines(lines: "Sequence[Line]") -> "list[Prediction | None]":
        sentences = [line.text.split() for line in lines]
        nonempty = [index for index, words in enumerate(sentences) if words and model.source.encode(words)]
        predicted = model.predict(
            [sentences[index] for index in nonempty],
            beam=beam_size,
            n_best=n_best,
            explain=explain,
            constraint=constraint,
            length_penalty=penalty,
            batch_size=batch_size,
            glossary=terms,
            search=search.value,
            scores=as_json or n_best > 1,
        )
        predictions = dict(zip(nonempty, predicted, strict=True))
        return [predictions.get(index) for index in range(len(lines))]

    for lines in batches_of_lines(file, batch_size):
        for line, prediction in _within_memory(lines, predict_lines, file or STANDARD_INPUT):
            if prediction is not None and prediction.unknown:
                words = ", ".join(prediction.unknown)
                echo(
                    f"warning: line {line.number} has words that the model has never seen: {words}", err=True
                )
            if prediction is not None and prediction.unmet:
                unmet = ", ".join(prediction.unmet)
                echo(f"warning: line {line.number} does not honour the glossary for: {unmet}", err=True)
            if as_json:
                record = _record(line.number, line.text.split(), prediction)
                echo(json.dumps(record, ensure_ascii=False))
            else:
                for text in _text(line.number, prediction, n_best, explain):
                    echo(text)
        sys.stdout.flush()


def _within_memory(
    lines: "Sequence[Line]",
    predict_lines: "Callable[[Sequence[Line]], list[Prediction | None]]",
    name: str | Path,
) -> "Iterator[tuple[Line, Prediction | None]]":
    """Yield lines with their predictions; if the batch does not fit into memory, predict line by line.

    Args:
        lines: a batch of lines.
        predict_lines: predicts their outputs; None for an empty line.
        name: the name of their file, for errors.

    Raises:
        DataError: a single line does not fit into memory.
    """
    try:
        predictions = predict_lines(lines)
    except (MemoryError, RuntimeError) as error:
        if not _is_about_memory(error):
            raise
        if len(lines) > 1:
            for line in lines:
                yield from _within_memory([line], predict_lines, name)
            return
        (line,) = lines
        raise DataError(
            f"the line has {len(line.text.split()):,} tokens, too many for the available memory. Shorten it, or lower "
            "--beam.",
            name,
            line.number,
        ) from None
    yield from zip(lines, predictions, strict=True)


def _is_about_memory(error: Exception) -> bool:
    """Whether an error means that memory ran out; torch has a class for such errors on GPUs only."""
    words = ("alloc", "out of memory", "not enough memory", "size calculation overflowed")
    return isinstance(error, MemoryError) or any(word in str(error).lower() for word in words)


def open_model(
    run: str, checkpoint: str | None, grammar: "GrammarSource | None", device: str | None
) -> tuple["Model", "TrainingOptions", "Grammar | None"]:
    """The model, the options with the run's decoding, and the grammar to constrain the output with."""
    from permalign.models.bundled import find_model_folder
    from permalign.options.run import TrainingOptions
    from permalign.training.trained_run import TrainedRun, load_on_device

    run = str(find_model_folder(run))
    if (Path(run) / "config.yaml").is_file():
        trained_run = TrainedRun(run, checkpoint, device=device)
        return trained_run.model, trained_run.options.training, trained_run.constraint(grammar)
    if checkpoint or grammar:
        option = "--checkpoint" if checkpoint else "--constrained"
        raise PermalignError(f"{option} needs a run with a config.yaml, but {run} has none.")
    return load_on_device(run, device), TrainingOptions(), None


def _text(number: int, prediction: "Prediction | None", n_best: int, explain: bool) -> Iterator[str]:
    """Yield the lines to print for one sentence."""
    outputs = [] if prediction is None else [prediction, *prediction.alternatives]
    if n_best > 1:
        yield from [f"{number}\t{output.score:.4f}\t{output.text}" for output in outputs] or [f"{number}\t\t"]
    else:
        yield outputs[0].text if outputs else ""
    if explain:
        if prediction is not None and prediction.explanation is not None:
            yield prediction.explanation.draw()
        yield ""


def _record(number: int, words: Sequence[str], prediction: "Prediction | None") -> dict[str, object]:
    """The JSON object to print for one sentence; ``prediction`` is None for an empty sentence."""
    record: dict[str, object] = {"line": number, "source": " ".join(words)}
    if prediction is None:
        return {**record, "output": "", "score": None, "unknown": ()}
    record |= {**_output(prediction), "unknown": prediction.unknown}
    if prediction.alternatives:
        record["alternatives"] = [_output(alternative) for alternative in prediction.alternatives]
    if prediction.unmet:
        record["glossary_unmet"] = prediction.unmet
    if prediction.explanation is not None:
        record["explanation"] = _explanation(prediction.explanation)
    return record


def _output(prediction: "Prediction") -> dict[str, object]:
    return {"output": prediction.text, "score": prediction.score if isfinite(prediction.score) else None}


def _explanation(explanation: "Explanation") -> dict[str, object]:
    """An explanation as a JSON object; whatever the model does not provide is null."""
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
    """A tree as nested lists: a node is [rule, left, right], a leaf is the index of its token, or a list of indices."""
    lists: dict[tuple[int, int], object] = {}
    for node in reversed(list(tree.nodes())):
        children = [lists[child.start, child.end] for child in node.children]
        tokens = list(range(node.start, node.end))
        leaf = tokens if len(tokens) > 1 else node.start
        lists[node.start, node.end] = [node.rule, *children] if children else leaf
    return lists[tree.start, tree.end]
