"""A training run's folder, opened to use its model: answers of its splits, kept beside it.

RUN/predictions/len/test.jsonl   one answer a line
RUN/predictions/len/test.json    how they came about: fingerprints of model and examples, the search, the metrics
RUN/predictions/len/test.hyp     outputs as text, and
RUN/predictions/len/test.ref     references, for translation
"""

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

import torch

from permalign import __version__
from permalign.errors import DataError, PermalignError, UsageError, unknown_name
from permalign.evaluation import JudgedPrediction, Report, evaluate, read_predictions, write_predictions
from permalign.evaluation.metrics import is_translation
from permalign.evaluation.prediction_files import write_reference_and_output
from permalign.files import fingerprint, write_lines
from permalign.model import Transducer
from permalign.saving import CONFIG, SOURCE, TARGET, WEIGHTS
from permalign.text.vocabulary import Vocabulary
from permalign.training.experiments import load_saved_options
from permalign.training.run_directory import RunDirectory

LOADINGS = 3
"""How often to read a model that changes meanwhile, before giving up."""


def load_pretrained(name: str | Path, device: str | None = None) -> Transducer:
    """A model on a device; None for the first GPU, or the CPU if there is none.

    Raises:
        UsageError: there is no such device.
        DataError: the name is a path, and nothing is there; the hub is not asked.
    """
    if looks_like_path(str(name)) and not Path(name).exists():
        raise DataError("there is no such run or model.", name)
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        torch.zeros(1, device=chosen).item()
    except (RuntimeError, AssertionError):  # torch refuses in both ways
        raise UsageError(f"{chosen!r} is no device of this machine; try cpu, or cuda:0.") from None
    return Transducer.from_pretrained(name).to(chosen)


def looks_like_path(name: str) -> bool:
    """Whether a name means a folder of this machine; on the hub, names are ``model`` or ``owner/model``.

    >>> [looks_like_path(name) for name in ("./model", "runs/a/model", "owner/model")]
    [True, True, False]
    """
    if name.startswith((".", "/")) or name.count("/") > 1:
        return True
    return "/" in name and Path(name).parent.is_dir()


def model_fingerprint(folder: Path) -> str:
    """Tells models apart by their files."""
    files = [(folder / name).read_bytes() for name in (CONFIG, WEIGHTS, SOURCE, TARGET)]
    return fingerprint([__version__.encode(), *files])


@dataclass(frozen=True)
class DecodingSettings:
    """How answers are looked for.

    Attributes:
        beam: how many prefixes to keep; None for what the run's own evaluations on dev keep.
        constrained: whether to write only what the task's grammar reads.
        batch_size: how many sentences to work on at once.
    """

    beam: int | None = None
    constrained: bool = False
    batch_size: int = 64


class TrainedRun:
    """A run, or one of its checkpoints.

    Args:
        folder: what `permalign train` wrote.
        checkpoint: a name in ``folder/checkpoints``, such as ``last``; None for the best model.
        settings: changes of the task, such as ``task.depth=10``.
        device: where its model works; None for the first GPU, or the CPU if there is none.

    Raises:
        PermalignError: it is no run, or has no such checkpoint.
    """

    def __init__(
        self,
        folder: str | Path,
        checkpoint: str | None = None,
        settings: Iterable[str] = (),
        device: str | None = None,
    ) -> None:
        self.directory = RunDirectory(folder)
        self.checkpoint = checkpoint
        self.device = device
        self.options = self.directory.read_options()
        settings = tuple(settings)
        for setting in settings:
            if not setting.startswith("task."):
                raise UsageError(
                    f"{setting!r} changes nothing here; only the task's options can be set anew."
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
                "has no model yet. It is written with the first evaluation on dev; `permalign train --resume` goes on.",
                self.directory.path,
            )
        return folder

    @cached_property
    def model(self) -> Transducer:
        """Its model, read when it is first asked for."""
        return self._loaded[0]

    @cached_property
    def _loaded(self) -> tuple[Transducer, str]:
        """The model with the fingerprint of the very files it was read from: training may replace them meanwhile."""
        for _ in range(LOADINGS):
            before = model_fingerprint(self.model_folder)
            model = load_pretrained(self.model_folder, self.device)
            if model_fingerprint(self.model_folder) == before:
                return model, before
        raise DataError(
            "changes while it is read. Try again when its run has paused or ended.", self.model_folder
        )

    @property
    def predictions_folder(self) -> Path:
        """The folder its answers are kept in."""
        folder = self.directory.predictions
        return folder if self.checkpoint is None else folder / self.checkpoint

    @property
    def test_split(self) -> str:
        """The test part of the condition it was trained for."""
        condition, _, _ = self.options.train.partition("/")
        return f"{condition}/test"

    def require_split(self, split: str) -> None:
        """A `UsageError` for a split its task does not have."""
        if split not in self.task.splits:
            raise UsageError(unknown_name(f"split of {self.task.name}", split, self.task.splits))

    def beam(self, decoding: DecodingSettings) -> int:
        """How many prefixes a search keeps."""
        return self.options.training.beam if decoding.beam is None else decoding.beam

    def require_grammar(self) -> None:
        """An error where outputs cannot be kept to a grammar."""
        if self.task.grammar is None:
            raise UsageError(f"{self.task.name} has no grammar that outputs could be kept to.")
        if not isinstance(self.model.target, Vocabulary):
            raise PermalignError("a grammar speaks of whole words, but this model writes pieces of words.")

    def evaluate(self, split: str, decoding: DecodingSettings) -> Report:
        """Answer the examples of a split and judge the answers."""
        self.require_split(split)
        if decoding.constrained:
            self.require_grammar()
        examples = self.task.examples(split)
        if not examples:
            raise PermalignError(f"{split} of {self.task.name} has no examples.")
        report = evaluate(
            self.model,
            self.task,
            examples,
            beam=self.beam(decoding),
            constrained=decoding.constrained,
            batch_size=decoding.batch_size,
        )
        return replace(report, notes=(*report.notes, *self._seen_in_training(split)))

    def write(
        self, split: str, decoding: DecodingSettings, report: Report, folder: Path | None = None
    ) -> list[Path]:
        """Keep the answers; returns the files, those for sacrebleu last: references, outputs."""
        folder = folder or self.predictions_folder
        lines, record = folder / f"{split}.jsonl", folder / f"{split}.json"
        record.unlink(missing_ok=True)  # what it says holds no more once new answers are there
        write_predictions(lines, report)
        text = write_reference_and_output(folder, split, report) if is_translation(self.task) else ()
        found = {"metrics": report.metrics, "signatures": report.signatures, "notes": report.notes}
        write_lines(record, [json.dumps(self._origin(split, decoding) | found, indent=2, ensure_ascii=False)])
        return [lines, record, *text]

    def predictions(
        self, split: str, decoding: DecodingSettings, *, again: bool = False
    ) -> tuple[JudgedPrediction, ...]:
        """The answers that are kept, if this model gave them in this way; else new ones, which are kept."""
        if not again and self._is_kept(split, decoding):
            return read_predictions(self.predictions_folder / f"{split}.jsonl")
        report = self.evaluate(split, decoding)
        self.write(split, decoding, report)
        return report.predictions

    def _origin(self, split: str, decoding: DecodingSettings) -> dict[str, object]:
        """All that answers depend on, as JSON has it."""
        how = asdict(replace(decoding, beam=self.beam(decoding)))
        del how["batch_size"]
        task = json.loads(json.dumps(self.options.task, default=str))
        examples = fingerprint(
            repr((example.id, example.source, example.target)).encode()
            for example in self.task.examples(split)
        )
        return {"task": task, "split": split, "examples": examples, "model": self._fingerprint, **how}

    def _is_kept(self, split: str, decoding: DecodingSettings) -> bool:
        try:
            record = json.loads((self.predictions_folder / f"{split}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return False
        return isinstance(record, dict) and self._origin(split, decoding).items() <= record.items()

    @property
    def _fingerprint(self) -> str:
        """Of the model in use; before any is loaded, of the one that would be."""
        return self._loaded[1] if "_loaded" in self.__dict__ else model_fingerprint(self.model_folder)

    def _seen_in_training(self, split: str) -> tuple[str, ...]:
        """A note if the model has been trained on some of the examples."""
        train = self.options.train
        if split == train or train not in self.task.splits:
            return ()
        seen = {(example.source, example.target) for example in self.task.examples(train)}
        examples = self.task.examples(split)
        both = sum((example.source, example.target) in seen for example in examples)
        return (f"{both:,} of {len(examples):,} examples of {split} stand in {train} too.",) if both else ()
