"""The trackers of accelerate that a run is logged to: TensorBoard, Weights & Biases, MLflow."""

import os
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from permalign.errors import PermalignError
from permalign.training.run_directory import RunDirectory


def require_installed(names: Sequence[str]) -> None:
    """Require the packages of trackers, before anything is written.

    Raises:
        PermalignError: a package is missing.
    """
    for name in names:
        try:
            import_module(name)
        except ImportError:
            raise PermalignError(
                f"training.trackers has {name}, which is missing: pip install {name}."
            ) from None


def start_trackers(
    names: Sequence[str], run: RunDirectory, step: int, options: Mapping[str, Any]
) -> list[Any]:
    """Start trackers, which write into the folder of the run unless the environment names a server.

    Args:
        names: ``tensorboard``, ``wandb`` or ``mlflow``.
        run: the folder of the run.
        step: the present step; what a session that was killed logged later is hidden by TensorBoard.
        options: the options of the run, which trackers show beside its curves.

    Raises:
        PermalignError: a tracker cannot be started.
    """
    trackers = []
    for name in names:
        try:
            tracker = _STARTERS[name](run, step)
            tracker.start()
            if name != "tensorboard":
                tracker.store_init_configuration(_flat(options))
        except Exception as error:  # each tracker has its own errors, of networks, files and accounts
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise PermalignError(f"training.trackers: {name} cannot be started: {reason}") from error
        trackers.append(tracker)
    return trackers


def _tensorboard(run: RunDirectory, step: int) -> Any:
    from accelerate.tracking import TensorBoardTracker

    return TensorBoardTracker(run.events.name, run.path, purge_step=step + 1)


def _wandb(run: RunDirectory, step: int) -> Any:
    from accelerate.tracking import WandBTracker

    mode = os.environ.get("WANDB_MODE", "offline")
    return WandBTracker("permalign", name=run.path.name, dir=run.path, mode=mode, resume="allow")


def _mlflow(run: RunDirectory, step: int) -> Any:
    import mlflow
    from accelerate.tracking import MLflowTracker

    folder = (run.path / "mlflow").absolute()
    if "MLFLOW_TRACKING_URI" not in os.environ:
        folder.mkdir(parents=True, exist_ok=True)
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    return MLflowTracker("permalign", logging_dir=(folder / "artifacts").as_uri(), run_name=run.path.name)


_STARTERS: dict[str, Callable[[RunDirectory, int], Any]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def _flat(options: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    """Nested options by their full names; trackers take plain values only."""
    flat: dict[str, str | int | float | bool] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | bool):
            flat[f"{prefix}{name}"] = value
    return flat
