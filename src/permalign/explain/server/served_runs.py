"""Runs as they lie on the disk: the best model, and the checkpoints of its training."""

import json
from collections import OrderedDict
from dataclasses import dataclass
from filecmp import cmp
from itertools import islice
from pathlib import Path
from threading import Lock

from permalign.errors import DataError
from permalign.explain.trace.explaining import compare, explain
from permalign.model import Transducer
from permalign.saving import CONFIG, WEIGHTS

BEST = "best"


@dataclass(frozen=True)
class Run:
    """A folder that training wrote, or one of a saved model.

    Attributes:
        name: what it is called in the explorer.
        models: the folder of every model in it: the best, and checkpoints by their names, oldest first. One that is the
            best itself is not there twice.
        about: what it is made of, in a few words.
        examples: sentences to try, short ones of those it was tested on.
    """

    name: str
    models: dict[str, Path]
    about: str
    examples: tuple[str, ...] = ()


def load(folder: Path) -> Transducer:
    """The best model of a run; a `DataError` if there is none."""
    if not folder.is_dir():
        raise DataError("is no folder; expected one that `permalign train` or save_pretrained wrote.", folder)
    return Transducer.from_pretrained(folder)


def find_run(folder: Path, name: str) -> Run:
    """What a run's folder holds; its best model is loaded once, to see that it can be."""
    model = load(folder)
    explain(model, "a b c")  # what compiles or loads at the first sentence does so now
    compare(model, "a b c")
    options = model.options
    checkpoints = sorted(
        path
        for path in folder.glob("checkpoints/step-*")
        if (path / CONFIG).is_file() and not _same_model(path, folder)
    )
    models = {BEST: folder, **{path.name: path for path in checkpoints}}
    reorderer: str = options.reorderer.kind
    if reorderer == "separable":
        reorderer = f"separable ({options.reorderer.objective})"
    about = f"reorderer {reorderer}, head {options.head.kind.replace('_', ' ')}"
    return Run(name, models, about, _examples(folder / "predictions" / "dev.jsonl"))


def _same_model(checkpoint: Path, folder: Path) -> bool:
    """Whether a checkpoint is the run's best model once more: byte by byte, and the sizes first."""
    best = next((path for path in (folder / WEIGHTS, folder / "model" / WEIGHTS) if path.is_file()), None)
    return best is not None and cmp(checkpoint / WEIGHTS, best, shallow=False)


def _examples(predictions: Path, most: int = 4, looked_at: int = 40, longest: int = 12) -> tuple[str, ...]:
    """Some sentences of a run's predictions, those of middle length first; none where there are no predictions."""
    found: dict[str, int] = {}
    try:
        with predictions.open(encoding="utf-8") as lines:
            for line in islice(lines, looked_at):
                words = json.loads(line)["source"]
                if 3 <= len(words) <= longest:
                    found[" ".join(words)] = len(words)
    except (OSError, ValueError, KeyError, TypeError):
        return ()  # they are a convenience; what is wrong with the file is for others to say
    return tuple(sorted(found, key=lambda sentence: -found[sentence])[:most])


def find_runs(folders: list[Path]) -> dict[str, Run]:
    """Runs by names that tell them apart: their folders' names, with as much of the path as it takes."""
    resolved = [folder.resolve() for folder in folders]
    names = unique_names(resolved)
    return {name: find_run(folder, name) for name, folder in zip(names, folders, strict=True)}


def unique_names(folders: list[Path]) -> list[str]:
    """The last parts of paths, as many as tell them apart; a path that is there twice is numbered.

    >>> unique_names([Path("/runs/a/seed-1"), Path("/runs/b/seed-1"), Path("/runs/c")])
    ['a/seed-1', 'b/seed-1', 'c']
    """
    names: list[str] = []
    for folder in folders:
        others = {other for other in folders if other != folder}
        parts = 1
        while parts < len(folder.parts) and any(
            other.parts[-parts:] == folder.parts[-parts:] for other in others
        ):
            parts += 1
        name = "/".join(folder.parts[-parts:])
        names.append(name if name not in names else f"{name} ({names.count(name) + 1})")
    return names


class Models:
    """Models of runs, the last few used kept in memory.

    Args:
        runs: by name.
        kept: how many models to keep at once.
    """

    def __init__(self, runs: dict[str, Run], kept: int = 6) -> None:
        self.runs = runs
        self._kept = kept
        self._models: OrderedDict[tuple[str, str], Transducer] = OrderedDict()
        self._lock = Lock()

    def get(self, run: str, checkpoint: str = BEST) -> Transducer:
        """A model by the names of its run and checkpoint; only names that were found at the start lead anywhere.

        Raises:
            LookupError: there is no such run, or no such checkpoint.
        """
        if run not in self.runs:
            raise LookupError(f"there is no run of that name; choose one of {', '.join(self.runs)}.")
        models = self.runs[run].models
        if checkpoint not in models:
            raise LookupError(
                f"there is no checkpoint of that name in {run}; choose one of {', '.join(models)}."
            )
        with self._lock:
            key = (run, checkpoint)
            if key not in self._models:
                self._models[key] = load(models[checkpoint])
            self._models.move_to_end(key)
            while len(self._models) > self._kept:
                self._models.popitem(last=False)
            return self._models[key]
