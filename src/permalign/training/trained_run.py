"""A trained run with its model, its task and its predictions, which are stored in the folder of the run.

RUN/predictions/len/test.jsonl   one prediction per line
RUN/predictions/len/test.json    fingerprints of model, examples and predictions; decoding settings, metrics
RUN/predictions/len/test.hyp     outputs as text (translation only)
RUN/predictions/len/test.ref     references as text (translation only)
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryFile
from typing import Literal

import torch

from permalign import __version__
from permalign.decoding.beam import SearchMethod
from permalign.errors import DataError, PermalignError, UsageError, similar_path, unknown_name
from permalign.evaluation import JudgedPrediction, Report, evaluate, read_predictions, write_predictions
from permalign.evaluation.metrics import is_translation
from permalign.evaluation.prediction_files import write_reference_and_output
from permalign.files import fingerprint, write_lines
from permalign.models.base import Model
from permalign.models.build_model import load_model
from permalign.models.bundled import find_model_folder, is_bundled
from permalign.models.saving import CONFIG, SOURCE, TARGET, WEIGHTS
from permalign.tasks.grammar import Grammar
from permalign.tasks.grammar_of_programs import restrict_to_programs
from permalign.tasks.whole_file import WholeFile
from permalign.text.vocabulary import Vocabulary
from permalign.training.devices import require_device
from permalign.training.experiments import load_saved_options
from permalign.training.run_directory import RunDirectory

LOAD_ATTEMPTS = 3
"""The number of attempts to load a model whose files are being replaced."""


def load_on_device(name: str | Path, device: str | None = None) -> Model:
    """Load a model onto a device; None for the first GPU, or the CPU if there is none.

    Raises:
        UsageError: there is no such device.
        DataError: the name is a path that does not exist; in that case it is not looked up on the Hugging Face hub.
    """
    if looks_like_path(str(name)) and not Path(name).exists():
        raise DataError(f"there is no such run or model.{similar_path(name)}", name)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    require_device(chosen)
    return load_model(name).to(chosen)


def looks_like_path(name: str) -> bool:
    """Whether a name is a local path and not a name on the Hugging Face hub (``model`` or ``owner/model``).

    >>> [looks_like_path(name) for name in ("./model", "runs/a/model", "owner/model")]
    [True, True, False]
    """
    if name.startswith((".", "/")) or name.count("/") > 1:
        return True
    return "/" in name and Path(name).parent.is_dir()


def model_fingerprint(folder: Path) -> str:
    """A fingerprint of a model's files and of the version of permalign."""
    files = [(folder / name).read_bytes() for name in (CONFIG, WEIGHTS, SOURCE, TARGET)]
    return fingerprint([__version__.encode(), *files])


GrammarSource = Literal["training", "generalized", "task"]
"""Which grammar constrains outputs: that of the run's training programs, the same extended by rules that follow from it
(see `permalign.tasks.base.Task.generalize_grammar`), or that of all programs of the task."""


@dataclass(frozen=True)
class DecodingSettings:
    """How outputs are decoded.

    Attributes:
        beam: the beam size; None for the option ``training.beam`` of the run.
        grammar: the grammar that outputs have to follow (see `GrammarSource`); None to allow all outputs.
        batch_size: the number of sentences per batch.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared;
            None for the run's own, ``training.length_penalty``.
        search: by a beam, or exactly; see `permalign.models.base.Model.predict`.
    """

    beam: int | None = None
    grammar: GrammarSource | None = None
    batch_size: int = 64
    length_penalty: float | None = None
    search: SearchMethod = "beam"


class TrainedRun:
    """A trained run, with its best model or another checkpoint.

    Args:
        folder: the folder of the run.
        checkpoint: the name of a checkpoint in ``folder/checkpoints``, such as ``last``; None for the best model.
        settings: changes to the task's options, such as ``task.depth=10``.
        device: the model's device; None for the first GPU, or the CPU if there is none.

    Raises:
        PermalignError: the folder is not a run, or has no such checkpoint.
    """

    def __init__(
        self,
        folder: str | Path,
        checkpoint: str | None = None,
        settings: Iterable[str] = (),
        device: str | None = None,
    ) -> None:
        self.directory = RunDirectory(find_model_folder(folder))
        self.checkpoint = checkpoint
        self.device = device
        self.options = self.directory.read_options()
        settings = tuple(settings)
        for setting in settings:
            if not setting.startswith("task."):
                raise UsageError(
                    f"{setting!r} cannot be changed after training; only options of the task can (task.OPTION=VALUE)."
                )
        if settings:
            self.options = load_saved_options(self.directory.config, settings)
        self.task = self.options.make_task()
        self.model_folder = self._find_model()

    def _find_model(self) -> Path:
        if self.checkpoint is None:
            folder = self.directory.model
        else:
            folder = self.directory.checkpoints / self.checkpoint
            known = sorted(path.name for path in self.directory.checkpoints.glob("*") if path.is_dir())
            if self.checkpoint not in known:
                raise UsageError(unknown_name(f"checkpoint of {self.directory.path}", self.checkpoint, known))
        if not (folder / WEIGHTS).is_file():
            raise DataError(
                "has no model yet; it is saved at the first evaluation. Continue with `permalign train --resume`.",
                self.directory.path,
            )
        return folder

    @property
    def columns(self) -> dict[str, object]:
        """The columns of sources and targets that the run was trained with, if they were given."""
        names = ("source_column", "target_column")
        return {name: self.options.task[name] for name in names if self.options.task.get(name)}

    def use_file(self, arguments: Sequence[str], **options: object) -> str:
        """Evaluate on all examples of the user's data from now on; returns the name of the split that they make up.

        Args:
            arguments: a file, two aligned files, a folder, or ``hf:NAME``.
            options: ``source_column`` and ``target_column``; by default those that the run was trained with.
        """
        columns = self.columns if len(arguments) == 1 else {}
        self.task = WholeFile(arguments, self.task.metric, **{**columns, **options})
        (split,) = self.task.splits
        return split

    @cached_property
    def model(self) -> Model:
        """The model, loaded on first use."""
        return self._loaded[0]

    @cached_property
    def _loaded(self) -> tuple[Model, str]:
        """Load the model, and again if its files were replaced meanwhile; returns the model and their fingerprint."""
        for _ in range(LOAD_ATTEMPTS):
            expected = model_fingerprint(self.model_folder)
            model = load_on_device(self.model_folder, self.device)
            if model_fingerprint(self.model_folder) == expected:
                return model, expected
        raise DataError(
            "changes while it is being read. Try again when training has stopped.", self.model_folder
        )

    @property
    def predictions_folder(self) -> Path:
        """The folder in which the predictions of the model are stored.

        Those of a model that comes with the package are stored in ``predictions/NAME`` of the current folder.
        """
        path = self.directory.path
        folder = Path("predictions") / path.name if is_bundled(path) else self.directory.predictions
        return folder if self.checkpoint is None else folder / self.checkpoint

    @property
    def test_split(self) -> str:
        """The test split of the condition that the run was trained on; its dev split if there is none."""
        condition, _, _ = self.options.train.partition("/")
        test = f"{condition}/test"
        return test if test in self.task.splits else self.options.dev

    def require_split(self, split: str) -> None:
        """Raise a `UsageError` if the task has no such split."""
        if split not in self.task.splits:
            raise UsageError(unknown_name(f"split of {self.task.name}", split, self.task.splits))

    def beam(self, decoding: DecodingSettings) -> int:
        """The beam size of the decoding settings, or else that of the run."""
        return self.options.training.beam if decoding.beam is None else decoding.beam

    def length_penalty(self, decoding: DecodingSettings) -> float:
        """The exponent of the length by which log-probabilities are divided."""
        own = self.options.training.length_penalty
        return own if decoding.length_penalty is None else decoding.length_penalty

    def constraint(self, source: GrammarSource | None) -> Grammar | None:
        """The grammar that outputs have to follow; None if there is no constraint.

        Raises:
            PermalignError: the task has no grammar or cannot generalize it, the model does not write words, or the
                training data is missing.
        """
        if source is None:
            return None
        task = (
            self.options.make_task()
        )  # that of training; `use_file` may have replaced the task to evaluate on
        grammar = task.grammar
        if grammar is None:
            raise UsageError(f"{task.name} has no grammar that could constrain the outputs.")
        if not isinstance(self.model.target, Vocabulary):
            raise PermalignError(
                "a grammar constrains words, but the target vocabulary of this model has subwords."
            )
        if source == "task":
            return grammar
        used = restrict_to_programs(
            grammar, (example.target for example in task.examples(self.options.train))
        )
        return used if source == "training" else task.generalize_grammar(used)

    def evaluate(self, split: str, decoding: DecodingSettings, metrics: Sequence[str] = ()) -> Report:
        """Predict outputs for the examples of a split, and judge them; ``metrics`` are further ones to compute."""
        self.require_split(split)
        constraint = self.constraint(decoding.grammar)
        examples = self.task.examples(split)
        if not examples:
            raise PermalignError(f"{split} of {self.task.name} has no examples.")
        report = evaluate(
            self.model,
            self.task,
            examples,
            beam=self.beam(decoding),
            length_penalty=self.length_penalty(decoding),
            constraint=constraint,
            batch_size=decoding.batch_size,
            search=decoding.search,
            metrics=[*metrics, *([own] if (own := self.options.training.metric) else [])],
        )
        return replace(report, notes=(*report.notes, *self._seen_in_training(split)))

    def require_writable(self, folder: Path | None = None) -> None:
        """Require, before anything is evaluated, that predictions can be written.

        Raises:
            DataError: they cannot.
        """
        folder = folder or self.predictions_folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with TemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise DataError(
                f"cannot be written to ({error.strerror}). Choose a folder for the predictions with --output.",
                folder,
            ) from error

    def write(
        self, split: str, decoding: DecodingSettings, report: Report, folder: Path | None = None
    ) -> list[Path]:
        """Write the predictions; returns the paths, the last two for translation being references and outputs."""
        folder = folder or self.predictions_folder
        split_name = _free_name(folder, split) if isinstance(self.task, WholeFile) else split
        lines, record = folder / f"{split_name}.jsonl", folder / f"{split_name}.json"
        record.unlink(missing_ok=True)  # it describes the old predictions
        write_predictions(lines, report)
        text = write_reference_and_output(folder, split_name, report) if is_translation(self.task) else ()
        results = {
            "metrics": report.metrics,
            "signatures": report.signatures,
            "notes": report.notes,
            "predictions": fingerprint([lines.read_bytes()]),
        }
        write_lines(
            record, [json.dumps(self._origin(split, decoding) | results, indent=2, ensure_ascii=False)]
        )
        return [lines, record, *text]

    def predictions(
        self, split: str, decoding: DecodingSettings, *, again: bool = False
    ) -> tuple[JudgedPrediction, ...]:
        """Return the stored predictions if this model made them with these settings; otherwise make and store them.

        Stored predictions whose file is damaged are made again.
        """
        if not again and self._is_stored(split, decoding):
            return read_predictions(self.predictions_folder / f"{split}.jsonl")
        report = self.evaluate(split, decoding)
        self.write(split, decoding, report)
        return report.predictions

    def _origin(self, split: str, decoding: DecodingSettings) -> dict[str, object]:
        """Everything that predictions depend on, as a JSON object."""
        settings = asdict(
            replace(decoding, beam=self.beam(decoding), length_penalty=self.length_penalty(decoding))
        )
        del settings["batch_size"]
        task = json.loads(json.dumps(self.options.task, default=str))
        examples = fingerprint(
            repr((example.id, example.source, example.target)).encode()
            for example in self.task.examples(split)
        )
        return {"task": task, "split": split, "examples": examples, "model": self._fingerprint, **settings}

    def _is_stored(self, split: str, decoding: DecodingSettings) -> bool:
        try:
            record = json.loads((self.predictions_folder / f"{split}.json").read_text(encoding="utf-8"))
            found = fingerprint([(self.predictions_folder / f"{split}.jsonl").read_bytes()])
        except (OSError, ValueError, RecursionError):
            return False
        expected = {"predictions": found, **self._origin(split, decoding)}
        return isinstance(record, dict) and expected.items() <= record.items()

    @property
    def _fingerprint(self) -> str:
        """The fingerprint of the loaded model, or of the files if the model is not loaded yet."""
        return self._loaded[1] if "_loaded" in self.__dict__ else model_fingerprint(self.model_folder)

    def _seen_in_training(self, split: str) -> tuple[str, ...]:
        """A note if some of the examples are in the training split."""
        train, own_task = self.options.train, self.task
        if isinstance(own_task, WholeFile):
            own_task = self.options.make_task()
        try:
            if split == train or train not in own_task.splits:
                return ()
            seen = {(example.source, example.target) for example in own_task.examples(train)}
        except PermalignError:  # a new file is evaluated, and the training data is no longer there
            return ()
        examples = self.task.examples(split)
        repeated = sum((example.source, example.target) in seen for example in examples)
        if not repeated:
            return ()
        return (f"{repeated:,} of {len(examples):,} examples of {split} also occur in {train}.",)


def _free_name(folder: Path, split: str) -> str:
    """The name of a split, with a number if there are predictions of that name, which are never overwritten."""
    name, number = split, 1
    while (folder / f"{name}.jsonl").exists():
        number += 1
        name = f"{split}-{number}"
    return name
