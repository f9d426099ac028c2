"""Combine several trained models into one, by averaging their parameters or as an ensemble."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from permalign.errors import ConfigError, DataError, PermalignError
from permalign.evaluation import read_predictions
from permalign.evaluation.example_sentences import choose_sentences
from permalign.files import write_lines
from permalign.models.base import Model
from permalign.models.build_model import load_model
from permalign.models.ensemble import Ensemble
from permalign.models.saving import WEIGHTS
from permalign.training.run_directory import DEV_PREDICTIONS, EXAMPLES, RunDirectory
from permalign.training.run_summary import COMBINED, ENVIRONMENT


def average(models: Sequence[str | Path], out: str | Path, *, overwrite: bool = False) -> Model:
    """Average the parameters of models with the same options and vocabularies, and save the result as a run.

    The averaged model is not larger than one of the models. Averaging makes sense for models with similar parameters,
    such as the best checkpoints of a run; use `ensemble` for models that were trained with different seeds.

    Args:
        models: the folders of at least two models, or of a single run, whose kept checkpoints are averaged.
        out: the folder of the new run; see `_save`.
        overwrite: whether to replace an existing run in ``out``.

    Raises:
        PermalignError: there are too few models, they differ in more than their parameters, or ``out`` exists.
    """
    folders = _find_models(models, out, overwrite)
    loaded = [load_model(folder) for folder in folders]
    averaged = loaded[0]
    for folder, model in zip(folders[1:], loaded[1:], strict=True):
        if _description(model) != _description(averaged):
            raise DataError(
                f"has other options or vocabularies than {folders[0]}, so their parameters cannot be averaged.",
                folder,
            )
    states = [model.state_dict() for model in loaded]
    mean = {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in states[0].items()
    }
    averaged.load_state_dict(mean)
    _save(averaged, "average", folders, Path(out), overwrite)
    return averaged


def seeds_of_runs(models: Sequence[str | Path]) -> list[int]:
    """The different seeds of the runs that models belong to; models that are in no run are left out."""
    runs = {run for run in map(_run_of, map(Path, models)) if run is not None}
    return sorted({RunDirectory(run).read_options().seed for run in runs})


def ensemble(models: Sequence[str | Path], out: str | Path, *, overwrite: bool = False) -> Ensemble:
    """Save an ensemble of models with the same vocabularies, which averages their probabilities, as a run.

    Args:
        models: the folders of at least two models, or of a single run, whose kept checkpoints become the members. The
            members of an ensemble become members of the new ensemble.
        out: the folder of the new run; see `_save`.
        overwrite: whether to replace an existing run in ``out``.

    Raises:
        PermalignError: there are too few models, they have different vocabularies, or ``out`` exists.
    """
    folders = _find_models(models, out, overwrite)
    members: list[Any] = []  # Ensemble checks their types
    for folder in folders:
        model = load_model(folder)
        members += model.members if isinstance(model, Ensemble) else [model]
    try:
        combined = Ensemble(members).eval()
    except ValueError as error:
        raise ConfigError(f"{', '.join(map(str, folders))}: {error}") from None
    _save(combined, "ensemble", folders, Path(out), overwrite)
    return combined


def _save(model: Model, method: str, members: Sequence[Path], out: Path, overwrite: bool) -> None:
    """Save a combined model as a run, which can be evaluated and compared, with the task of the first member's run.

    If the first member is in no run, there is no task, and only the folder ``model`` is written.
    """
    first = _run_of(members[0])
    if first is not None:
        options = RunDirectory(first).read_options()
        listed = ", ".join(member.as_posix() for member in members)
        described = options.model_copy(update={"description": f"{method.capitalize()} of {listed}."})
        RunDirectory(out).create(described, overwrite, {COMBINED: {method: listed}})
        _write_examples(RunDirectory(first), out)
    model.save_pretrained(out / "model")


def _write_examples(first: RunDirectory, out: Path) -> None:
    """Write sentences that the explorer offers: a combined model has no predictions yet from which to choose them."""
    try:
        predictions = read_predictions(first.predictions / DEV_PREDICTIONS)
    except (DataError, OSError):
        return
    sentences = (prediction.example.source for prediction in predictions)
    write_lines(out / EXAMPLES, choose_sentences(sentences))


def _run_of(model: Path) -> Path | None:
    """The run that a model or checkpoint belongs to."""
    near = (model, *model.absolute().parents[:2])
    return next((folder for folder in near if (folder / ENVIRONMENT).is_file()), None)


def _find_models(models: Sequence[str | Path], out: str | Path, overwrite: bool) -> list[Path]:
    """The folders of the models to combine."""
    if Path(out).exists() and not overwrite:
        raise PermalignError(f"{out} already exists. Choose another folder, or replace it (--overwrite).")
    folders = [Path(model) for model in models]
    for folder in folders:  # overwriting a run deletes its models
        if Path(out).resolve() in (folder.resolve(), *folder.resolve().parents):
            raise ConfigError(f"{out} contains {folder}, which is needed. Choose another folder.")
    if len(folders) == 1:
        if (folders[0] / WEIGHTS).is_file():
            raise ConfigError(
                f"at least two models are needed, but {folders[0]} is only one. Name several folders, or a run that "
                "keeps several checkpoints."
            )
        folders = _kept_checkpoints(folders[0])
    if len(folders) < 2:
        raise ConfigError(
            "at least two models are needed, but the run has kept only one. Name several folders, or a run that keeps "
            "several checkpoints (training.keep_checkpoints: 5)."
        )
    return folders


def _kept_checkpoints(run: Path) -> list[Path]:
    """The best checkpoints, which a run has kept (without ``checkpoints/last``)."""
    if not run.is_dir():
        raise DataError("there is no such run.", run)
    return sorted((run / "checkpoints").glob("step-*"))


def _description(model: Model) -> tuple[object, ...]:
    """The options and vocabularies of a model: everything except for its parameters."""
    return model.describe(), model.source, model.target
