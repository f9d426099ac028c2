"""One model that is the mean of several, such as the best checkpoints of a run, or runs with different seeds."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import torch

from permalign.errors import ConfigError, DataError, PermalignError
from permalign.model import Transducer
from permalign.saving import WEIGHTS


def average(
    models: Sequence[str | Path],
    out: str | Path,
    *,
    of: Literal["parameters", "probabilities"] = "parameters",
    overwrite: bool = False,
) -> Transducer:
    """Average models that have the same options and vocabularies, and write the result.

    Args:
        models: folders of models, at least two; or a single run, whose kept checkpoints are averaged.
        out: where to write the mean.
        of: what is averaged. The mean of parameters is as large as one model, and fits models that are near each other;
            the mean of probabilities holds them all, which may have learned from any seeds (``model.together``).
        overwrite: replace a model that is there.

    Raises:
        PermalignError: there are too few models, they do not fit together, or ``out`` is there already.
    """
    if of not in ("parameters", "probabilities"):
        raise ConfigError(f"of is {of!r}, but the mean is of 'parameters' or of 'probabilities'.")
    if Path(out).exists() and not overwrite:
        raise PermalignError(f"{out} is there already. Choose another folder, or ask to overwrite it.")
    folders = [Path(model) for model in models]
    if len(folders) == 1:
        if (folders[0] / WEIGHTS).is_file():
            raise ConfigError(
                f"an average needs at least two models, and {folders[0]} is one. Name several folders, or the folder "
                "of a run that keeps several checkpoints."
            )
        folders = checkpoints_of(folders[0])
    if len(folders) < 2:
        raise ConfigError(
            f"an average needs at least two models, but found {len(folders)}. Name several folders, or a run that "
            "keeps several checkpoints (training.keep_checkpoints: 5)."
        )
    first, *others = (Transducer.from_pretrained(folder) for folder in folders)
    for folder, other in zip(folders[1:], others, strict=True):
        if _kind(other, of) != _kind(first, of):
            raise DataError(
                f"has other options or vocabularies than {folders[0]}; they cannot be averaged.", folder
            )
    if of == "probabilities" and first.pretrained:
        raise ConfigError(
            f"{folders[0]} has a pretrained part, of which a model can hold only one. Average parameters, or models "
            "without such parts."
        )
    mean = _side_by_side([first, *others]) if of == "probabilities" else _mean([first, *others])
    mean.save_pretrained(Path(out))
    return mean


def _kind(model: Transducer, of: str) -> tuple[object, ...]:
    """What models must have in common; how many each holds does not matter for probabilities."""
    options = (
        model.options.model_copy(update={"ensemble_size": 1}) if of == "probabilities" else model.options
    )
    return options, model.source, model.target


def _mean(models: Sequence[Transducer]) -> Transducer:
    """The first with the mean of all parameters."""
    states = [model.state_dict() for model in models]
    mean = {
        name: torch.stack([state[name].double() for state in states]).mean(0).to(tensor.dtype)
        if tensor.is_floating_point()
        else tensor
        for name, tensor in states[0].items()
    }
    models[0].load_state_dict(mean)
    return models[0]


def _side_by_side(models: Sequence[Transducer]) -> Transducer:
    """A model that has all of them as its members."""
    found = [member for model in models for member in model.members]
    first = found[0]
    options = first.options.model_copy(update={"ensemble_size": len(found)})
    together = Transducer(options, first.source, first.target)
    together.load_state_dict(
        {
            f"others.{place - 1}.{name}" if place else name: tensor
            for place, member in enumerate(found)
            for name, tensor in member.state_dict().items()
            if not name.startswith("others.")
        }
    )
    return together.eval()


def checkpoints_of(run: Path) -> list[Path]:
    """The models that a run has kept, its last one aside."""
    if not run.is_dir():
        raise DataError("there is no such run.", run)
    return sorted((run / "checkpoints").glob("step-*"))
