"""The trackers of accelerate that a run is logged to: TensorBoard, Weights & Biases, MLflow."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from secrets import token_hex
from typing import Any

from permalign.errors import PermalignError
from permalign.files import write_text
from permalign.training.run_directory import RunDirectory

Options = dict[str, str | int | float | bool]

RUN_ID = "run-id"
"""The file with the identifier of a run at a tracker, in that tracker's folder of the run."""


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

    A run that is resumed is logged to the same run of W&B and MLflow, whose identifier is in its folder.

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
            trackers.append(_STARTERS[name](run, step, _flat(options)))
        except Exception as error:  # each tracker has its own errors, of networks, files and accounts
            reason = str(error).strip().partition("\n")[0] or type(error).__name__
            raise PermalignError(f"training.trackers: {name} cannot be started: {reason}") from error
    return trackers


@contextmanager
def quiet_writer_threads() -> Iterator[None]:
    """Keep the thread in which TensorBoard writes from printing its errors, which the main thread raises as well."""
    previous = threading.excepthook

    def hook(arguments: threading.ExceptHookArgs) -> None:
        if not type(arguments.thread).__module__.startswith("tensorboard."):
            previous(arguments)

    threading.excepthook = hook
    try:
        yield
    finally:
        threading.excepthook = previous


def _tensorboard(run: RunDirectory, step: int, options: Options) -> Any:
    from accelerate.tracking import TensorBoardTracker

    class Events(TensorBoardTracker):  # type: ignore[misc]
        def finish(self) -> None:
            # SummaryWriter.close flushes first, and if that fails it leaves its thread running
            for writer in (self.writer.all_writers or {}).values():
                writer.close()

    tracker = Events(run.events.name, run.path, purge_step=step + 1)
    tracker.start()
    return tracker


def _wandb(run: RunDirectory, step: int, options: Options) -> Any:
    from accelerate.tracking import WandBTracker

    mode = os.environ.get("WANDB_MODE", "offline")
    id_file = run.path / "wandb" / RUN_ID
    if not id_file.exists():
        id_file.parent.mkdir(parents=True, exist_ok=True)
        write_text(id_file, os.environ.get("WANDB_RUN_ID") or token_hex(4))
    tracker = WandBTracker(
        "permalign",
        name=run.path.name,
        dir=run.path,
        mode=mode,
        id=id_file.read_text(encoding="utf-8"),
        resume=None if mode == "offline" else "allow",  # offline, there is no server that could be asked
    )
    tracker.start()
    tracker.store_init_configuration(options)
    return tracker


def _mlflow(run: RunDirectory, step: int, options: Options) -> Any:
    import mlflow
    from accelerate.tracking import MLflowTracker

    folder = (run.path / "mlflow").absolute()
    folder.mkdir(parents=True, exist_ok=True)
    if "MLFLOW_TRACKING_URI" not in os.environ:
        mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    id_file = folder / RUN_ID
    run_id = id_file.read_text(encoding="utf-8") if id_file.exists() else None
    artifacts = (folder / "artifacts").as_uri()
    tracker = MLflowTracker("permalign", logging_dir=artifacts, run_id=run_id, run_name=run.path.name)
    tracker.start()
    if run_id is None:  # MLflow does not let anybody store options twice
        tracker.store_init_configuration(options)
        write_text(id_file, tracker.active_run.info.run_id)
    return tracker


_STARTERS: dict[str, Callable[[RunDirectory, int, Options], Any]] = {
    "tensorboard": _tensorboard,
    "wandb": _wandb,
    "mlflow": _mlflow,
}


def _flat(options: Mapping[str, Any], prefix: str = "") -> Options:
    """Nested options by their full names; trackers take plain values only."""
    flat: Options = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            flat |= _flat(value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float | bool):
            flat[f"{prefix}{name}"] = value
    return flat
