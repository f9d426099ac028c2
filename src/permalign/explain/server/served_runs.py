"""The runs that the explorer offers: the best model of each, the checkpoints of its training, and models in memory."""

from collections import OrderedDict
from dataclasses import dataclass, field
from filecmp import cmp
from pathlib import Path

from permalign.errors import DataError, similar_path
from permalign.explain.server.stored_predictions import choose_examples, find_prediction_files
from permalign.models.base import Model
from permalign.models.build_model import load_model
from permalign.models.saving import CONFIG, WEIGHTS
from permalign.training.run_directory import RunDirectory

BEST = "best"


class UnknownModelError(LookupError):
    """There is no run, or no checkpoint, of that name; the message is sent to the client."""


@dataclass(frozen=True)
class Search:
    """How outputs are searched, unless a request says otherwise.

    Attributes:
        beam: the width of the beam search.
        length_penalty: the exponent of the length by which log-probabilities are divided when outputs are compared.
    """

    beam: int = 5
    length_penalty: float = 0.0

    @classmethod
    def of(cls, folder: Path) -> "Search":
        """The search with which a run is evaluated, or the default search for a model that is no run."""
        directory = RunDirectory(folder)
        if not directory.config.is_file():
            return cls()
        training = directory.read_options().training
        return cls(training.beam, training.length_penalty)


@dataclass(frozen=True)
class ServedRun:
    """A folder that training wrote, or the folder of a saved model.

    Attributes:
        name: the name of the run in the explorer.
        models: the folder of every model by its name: the best, then the checkpoints of training, oldest first. A
            checkpoint that is identical to the best model is left out.
        about: the kinds of its reorderer and its head.
        examples: some sentences to try, from the run's own predictions.
        predictions: the files of its predictions by split.
        search: how its outputs are searched.
    """

    name: str
    models: dict[str, Path]
    about: str
    examples: tuple[str, ...] = ()
    predictions: dict[str, Path] = field(default_factory=dict)
    search: Search = Search()


def load_from_folder(folder: Path) -> Model:
    """Load the best model of a run, or a saved model.

    Raises:
        DataError: there is no such folder. The Hugging Face hub is not asked.
    """
    if not folder.is_dir():
        raise DataError(
            "is not a folder; expected a folder that `permalign train` or save_pretrained wrote."
            + similar_path(folder),
            folder,
        )
    return load_model(folder)


def find_run(folder: Path, name: str) -> ServedRun:
    """Find the models in a run's folder; the best one is loaded once, to see that it works."""
    model = load_from_folder(folder)
    options = model.primary.options
    checkpoints = sorted(
        path
        for path in folder.glob("checkpoints/step-*")
        if (path / CONFIG).is_file() and not _is_best_model(path, folder)
    )
    models = {BEST: folder, **{path.name: path for path in checkpoints}}
    reorderer: str = options.reorderer.kind
    if reorderer == "separable":
        reorderer = f"separable ({options.reorderer.objective})"
    about = f"reorderer {reorderer}, head {options.head.kind.replace('_', ' ')}"
    predictions = find_prediction_files(folder)
    examples = choose_examples(folder, list(predictions.values()))
    return ServedRun(name, models, about, examples, predictions, Search.of(folder))


def _is_best_model(checkpoint: Path, folder: Path) -> bool:
    """Whether a checkpoint has the same weights as the run's best model, byte by byte."""
    best = next((path for path in (folder / WEIGHTS, folder / "model" / WEIGHTS) if path.is_file()), None)
    return best is not None and cmp(checkpoint / WEIGHTS, best, shallow=False)


def find_runs(folders: list[Path]) -> dict[str, ServedRun]:
    """Find runs; each is named after its folder, with as much of the path as it takes to tell them apart."""
    names = unique_names([folder.resolve() for folder in folders])
    return {name: find_run(folder, name) for name, folder in zip(names, folders, strict=True)}


def unique_names(folders: list[Path]) -> list[str]:
    """Return the shortest endings of paths that tell them apart; a path that occurs twice is numbered.

    >>> unique_names([Path("/runs/a/seed-1"), Path("/runs/b/seed-1"), Path("/runs/c")])
    ['a/seed-1', 'b/seed-1', 'c']
    """
    names: list[str] = []
    for folder in folders:
        others = {other for other in folders if other != folder}
        count = 1  # of the path's last parts
        while count < len(folder.parts) and any(
            other.parts[-count:] == folder.parts[-count:] for other in others
        ):
            count += 1
        name = "/".join(folder.parts[-count:])
        names.append(name if name not in names else f"{name} ({names.count(name) + 1})")
    return names


class ModelCache:
    """Loads the models of runs, and keeps those used last in memory.

    Args:
        runs: the runs by their names.
        max_models: how many models to keep in memory.
    """

    def __init__(self, runs: dict[str, ServedRun], max_models: int = 6) -> None:
        self.runs = runs
        self._max_models = max_models
        self._models: OrderedDict[tuple[str, str], Model] = OrderedDict()

    def get(self, run: str, checkpoint: str = BEST) -> Model:
        """Return a model; only the names of runs and checkpoints that were found at the start are accepted.

        Raises:
            UnknownModelError: there is no such run, or no such checkpoint.
        """
        if run not in self.runs:
            raise UnknownModelError(f"there is no run of that name; choose one of {', '.join(self.runs)}.")
        models = self.runs[run].models
        if checkpoint not in models:
            raise UnknownModelError(
                f"there is no checkpoint of that name in {run}; choose one of {', '.join(models)}."
            )
        key = (run, checkpoint)
        if key not in self._models:
            self._models[key] = load_from_folder(models[checkpoint])
        self._models.move_to_end(key)
        while len(self._models) > self._max_models:
            self._models.popitem(last=False)
        return self._models[key]
