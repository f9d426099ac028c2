"""The way into training from Python.

from permalign.training import train

train({"task": {"name": "arithmetic"}, "training": {"steps": 1000}}, "runs/first")
"""

import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator, DistributedDataParallelKwargs

from permalign.files import exclusive_lock
from permalign.options.run import RunOptions
from permalign.training import loop
from permalign.training.progress_display import Display, default_display
from permalign.training.run_directory import LOCK, RunDirectory
from permalign.training.session import Session
from permalign.training.setup import TrainingSetup, prepare
from permalign.training.state import Progress


def train(
    options: RunOptions | Mapping[str, Any],
    run_dir: str | Path,
    *,
    overwrite: bool = False,
    display: Display | None = None,
) -> Progress:
    """Train a model, and write all about it into a folder (see `RunDirectory`).

    Args:
        options: of the run, whole or only what differs from the defaults.
        run_dir: the folder.
        overwrite: begin anew if the folder holds a run.
        display: what shows the progress; None for one that fits standard error.

    Raises:
        PermalignError: the options, the data or the folder are not what they should be.
        SavedInterrupt: Ctrl-C; everything is saved, and the run can be resumed.
        KeyboardInterrupt: Ctrl-C twice; the run can be resumed where it was last saved.
    """
    options = options if isinstance(options, RunOptions) else RunOptions.parse(options)
    run = RunDirectory(run_dir)
    accelerator = make_accelerator()
    if accelerator.is_main_process:
        run.require_free(overwrite)
    prepared = prepare(options)
    with _locked(run, accelerator):
        if accelerator.is_main_process:
            run.create(options, overwrite)
        accelerator.wait_for_everyone()
        return _sit(options, prepared, run, accelerator, display)


def resume(run_dir: str | Path, *, display: Display | None = None) -> Progress:
    """Go on with a run exactly as if it had never stopped; see `train`."""
    run = RunDirectory(run_dir)
    options = run.read_options()
    accelerator = make_accelerator()
    with _locked(run, accelerator):
        return _sit(options, prepare(options), run, accelerator, display)


def _locked(run: RunDirectory, accelerator: Accelerator) -> AbstractContextManager[None]:
    """No other program trains this run meanwhile; the main process sees to that for all."""
    if not accelerator.is_main_process:
        return nullcontext()
    return exclusive_lock(
        run.path / LOCK,
        f"{run.path} is being trained",
        "Wait until it ends, or stop it (Ctrl-C there saves the run).",
    )


def make_accelerator() -> Accelerator:
    """What knows about devices and processes.

    It has to be told that there is nothing but cores, or it takes several processes for as many runs. A head may leave
    a parameter unused in some step.
    """
    unused = DistributedDataParallelKwargs(find_unused_parameters=True)
    return Accelerator(cpu=not torch.accelerator.is_available(), kwargs_handlers=[unused])


def _sit(
    options: RunOptions,
    prepared: TrainingSetup,
    run: RunDirectory,
    accelerator: Accelerator,
    display: Display | None,
) -> Progress:
    if options.training.restarts > 1:
        options = options.with_seed(_best_seed(options, run, display))
        if accelerator.is_main_process:
            run.note(chosen_seed=options.seed)
        prepared = prepare(options)
    session = Session(options, prepared, run, accelerator)
    display = display or default_display()
    if prepared.left_out and accelerator.is_main_process:
        display.say(
            f"left out: {prepared.left_out} training examples longer than {options.model.head.kind} writes"
        )
    if prepared.unread and accelerator.is_main_process:
        display.say(
            f"the way back learns nothing from {prepared.unread} examples: too long for what they became"
        )
    with session.track(display):
        loop.run(session)
    return session.progress


def _best_seed(options: RunOptions, run: RunDirectory, display: Display | None) -> int:
    """Try every seed for some steps, each a run of its own, and choose the best on dev; of equals, the first.

    The run then begins anew with that seed. So nothing but finished attempts has to be remembered, and a run that is
    killed meanwhile goes on with the attempt it was at.
    """
    scores: dict[int, float] = {}
    for attempt in options.attempts():
        folder = run.attempts / f"seed-{attempt.seed}"
        begun = (folder / "config.yaml").exists()
        progress = resume(folder, display=display) if begun else train(attempt, folder, display=display)
        scores[attempt.seed] = -math.inf if progress.best is None else progress.best
    return max(scores, key=lambda seed: (scores[seed], -seed))
