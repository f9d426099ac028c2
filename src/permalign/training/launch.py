"""Start and resume training runs.

from permalign.training import train

train({"task": {"name": "arithmetic"}, "training": {"max_steps": 1000}}, "runs/first")
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from accelerate import Accelerator, PartialState
from accelerate.utils import broadcast_object_list

from permalign.errors import ConfigError
from permalign.evaluation import read_predictions
from permalign.files import exclusive_lock
from permalign.models.base import Model
from permalign.models.build_model import load_model
from permalign.options.run import RunOptions
from permalign.tasks.base import Example
from permalign.tasks.grammar_of_programs import restrict_to_programs
from permalign.training import loop
from permalign.training.devices import make_accelerator, precision_of
from permalign.training.progress_display import Display, default_display
from permalign.training.recipe_trials import (
    choose_by_similarity,
    describe_choice,
    similarity,
    trial_options,
)
from permalign.training.recombination import find_fragments, recombine
from permalign.training.run_directory import CANDIDATES, DEV_PREDICTIONS, LOCK, RunDirectory, saved_values
from permalign.training.session import Session
from permalign.training.setup import TrainingSetup, prepare
from permalign.training.state import Progress
from permalign.training.trackers import quiet_writer_threads, require_installed
from permalign.training.write_errors import explain_full_disk, explain_lost_folder

WITHOUT_RECOMBINATION, REORDERER_PRETRAINING = "without-recombination", "reorderer-pretraining"
"""The folders of first models, among the attempts of a run."""

CHANCE = 5.0
"""An exact match on dev, in percent, below which a run may have learned nothing."""


def train(
    options: RunOptions | Mapping[str, Any],
    run_dir: str | Path,
    *,
    candidates: Mapping[str, RunOptions] | None = None,
    overwrite: bool = False,
    display: Display | None = None,
    device: str | None = None,
    extra: Sequence[Example] = (),
) -> Progress:
    """Train a model, and write the run (model, checkpoints, metrics, predictions) to a folder.

    Args:
        options: the options of the run, or only those that differ from the defaults.
        run_dir: the folder of the run.
        candidates: recipes to try for a few steps each, by name, ``options`` among them; the run is then trained with
            the options of the one that is best on dev, and has only these from then on.
        overwrite: whether to delete an existing run in the folder.
        display: displays the progress; None for a progress bar or, if standard error is not a terminal, plain lines.
        device: the device, such as ``cpu`` or ``cuda:1``; None for the first GPU, or the CPU if there is none.
        extra: examples to train on in addition to the training split; to resume the run, they have to be given again.

    Returns:
        The progress of the finished run.

    Raises:
        PermalignError: the options, the data or the folder are not valid.
        SavedInterrupt: Ctrl-C was pressed; the run is saved and can be resumed.
        KeyboardInterrupt: Ctrl-C was pressed twice; the run can be resumed from where it was last saved.
    """
    options = options if isinstance(options, RunOptions) else RunOptions.parse(options)
    run = RunDirectory(run_dir)
    accelerator = make_accelerator(options.training.precision, device)
    precision = options.training.precision or precision_of(accelerator)
    options = options.with_precision(precision)
    to_try = {
        name: saved_values(candidate.with_precision(precision))
        for name, candidate in (candidates or {}).items()
    }
    if accelerator.is_main_process:
        run.require_free(overwrite)
        require_installed(options.training.trackers)
    setup = prepare(options, extra)
    with explain_full_disk(run), _locked(run, accelerator):
        if accelerator.is_main_process:
            run.create(options, overwrite, {CANDIDATES: to_try} if len(to_try) > 1 else None)
        accelerator.wait_for_everyone()
        with explain_lost_folder(run):
            return _run_session(options, setup, run, accelerator, display, extra)


def resume(
    run_dir: str | Path,
    *,
    display: Display | None = None,
    device: str | None = None,
    extra: Sequence[Example] = (),
) -> Progress:
    """Resume a run; on the same kind of device, the result is the same as without the interruption.

    See `train` for the arguments.
    """
    run = RunDirectory(run_dir)
    run.require_trainable()
    options = run.read_options()
    accelerator = make_accelerator(options.training.precision or "fp32", device)
    with explain_full_disk(run), _locked(run, accelerator), explain_lost_folder(run):
        return _run_session(options, prepare(options, extra), run, accelerator, display, extra)


def _locked(run: RunDirectory, accelerator: Accelerator) -> AbstractContextManager[object]:
    """Lock the run, so that no other program can train it; only the main process does so."""
    if not accelerator.is_main_process:
        return nullcontext()
    return exclusive_lock(
        run.path / LOCK,
        f"{run.path} is being trained",
        "Wait until it ends, or stop it (Ctrl-C there saves the run).",
    )


def _run_session(
    options: RunOptions,
    setup: TrainingSetup,
    run: RunDirectory,
    accelerator: Accelerator,
    display: Display | None,
    extra: Sequence[Example],
) -> Progress:
    speaks = accelerator.is_main_process and not run.is_attempt
    if speaks:
        for note in setup.task.notes:
            (display or default_display()).say(f"note: {note}")
    if candidates := run.candidates():
        options = _best_candidate(candidates, run, accelerator, display)
        setup = prepare(options, extra)
    if options.training.recombine:
        pairs = _recombined_pairs(options, run, display)
        if accelerator.is_main_process:
            run.note(recombined_pairs=len(pairs))
        extra = [*extra, *pairs]
        setup = prepare(options, extra)
    if options.training.restarts > 1:
        options = options.with_seed(_best_seed(options, run, accelerator, display, extra))
        if accelerator.is_main_process:
            run.note(chosen_seed=options.seed)
        setup = prepare(options, extra)
    if options.training.pretrain_reorderer:
        if accelerator.is_main_process:
            steps = options.training.pretrain_reorderer
            (display or default_display()).say(f"pretraining the reorderer for {steps} steps")
        _load_pretrained_reorderer(options, setup, run, display)
    display = display or default_display()
    session = Session(options, setup, run, accelerator, display)
    if setup.skipped and speaks:
        display.say(
            f"skipped {setup.skipped} training examples whose targets are too long for {options.model.head.kind}"
        )
    if setup.skipped_by_inverse and speaks:
        display.say(
            f"the inverse model skips {setup.skipped_by_inverse} examples whose sources are too long for their targets"
        )
    with quiet_writer_threads(), session.track(display):
        loop.run(session)
    if speaks and (warning := _chance_warning(session.progress, setup.metric, options.dev)):
        display.say(warning)
    return session.progress


def _train_attempt(
    options: RunOptions, folder: Path, display: Display | None, extra: Sequence[Example] = ()
) -> Progress:
    """Train a run inside another one; if the other one is resumed, it is resumed as well."""
    if (folder / "config.yaml").exists():
        return resume(folder, display=display, extra=extra)
    return train(options, folder, display=display, extra=extra)


def _best_candidate(
    candidates: Mapping[str, RunOptions], run: RunDirectory, accelerator: Accelerator, display: Display | None
) -> RunOptions:
    """Try the candidates of a run, each as a run of its own, and make the options of the best those of the run."""

    def say(message: str) -> None:
        if accelerator.is_main_process:
            (display or default_display()).say(message)

    similarities = try_candidates(candidates, run.attempts, say, display)
    chosen = choose_by_similarity(similarities)
    if accelerator.is_main_process:
        run.choose(candidates[chosen], recipe=chosen, similarities=similarities)
    say(describe_choice(chosen, similarities))
    return candidates[chosen]


def try_candidates(
    candidates: Mapping[str, RunOptions],
    folder: Path,
    say: Callable[[str], None],
    display: Display | None = None,
) -> dict[str, float]:
    """Train each candidate for a few steps, as a run of its own, and measure how similar its outputs are to dev.

    Trials that are there already are resumed, so trying can be interrupted.

    Args:
        candidates: the options of the candidates by name.
        folder: the folder for the runs.
        say: called with a line about each candidate.
        display: displays the progress of the runs.

    Returns:
        The similarity in percent by name, without the candidates that cannot be trained on the data.

    Raises:
        ConfigError: no candidate can be trained on the data.
    """
    similarities: dict[str, float] = {}
    errors: list[ConfigError] = []
    for number, (name, options) in enumerate(candidates.items(), 1):
        say(f"trying the recipe {name} ({number} of {len(candidates)})")
        try:
            _train_attempt(trial_options(options), folder / name, display)
        except ConfigError as error:
            errors.append(error)
            say(f"the recipe {name} cannot be trained on this data: {error}")
        else:
            similarities[name] = _similarity_on_dev(RunDirectory(folder / name))
    if not similarities:
        raise errors[0]
    return similarities


def _similarity_on_dev(run: RunDirectory) -> float:
    """How similar the outputs of a run are to the targets of dev; the main process, which has its files, says so."""
    found = [0.0]
    if PartialState().is_main_process:
        found = [similarity(read_predictions(run.predictions / DEV_PREDICTIONS))]
    return float(broadcast_object_list(found)[0])


def _train_first_model(options: RunOptions, folder: Path, display: Display | None) -> Model:
    """Train a model that the run needs before it begins, and return its best checkpoint."""
    _train_attempt(options, folder, display)
    return load_model(RunDirectory(folder).model)


def _load_pretrained_reorderer(
    options: RunOptions, setup: TrainingSetup, run: RunDirectory, display: Display | None
) -> None:
    """Start with the reorderer of a first model, which exact transduction has trained with a head of its own."""
    first_options = options.reorderer_pretraining()
    first_model = _train_first_model(first_options, run.attempts / REORDERER_PRETRAINING, display)
    setup.model.primary.reorderer.load_state_dict(first_model.primary.reorderer.state_dict())


def _recombined_pairs(options: RunOptions, run: RunDirectory, display: Display | None) -> list[Example]:
    """Recombine the training pairs by the derivations of a first model, which is trained without recombination.

    The pairs depend only on the first model and the seed, so they are the same if the run is resumed.
    """
    folder = run.attempts / WITHOUT_RECOMBINATION
    first_model = _train_first_model(options.without_recombination(), folder, display)
    task = options.make_task()
    if task.grammar is None:
        raise AssertionError("the options were checked")
    examples = task.examples(options.train)
    grammar = restrict_to_programs(task.grammar, (example.target for example in examples))
    fragments = find_fragments(first_model, examples, grammar)
    return recombine(examples, fragments, grammar, options.training.recombine, options.seed)


def _chance_warning(progress: Progress, metric: str, dev: str) -> str | None:
    """A warning if a finished run never got a notable share of the dev outputs right."""
    if progress.best is None or metric != "exact_match" or progress.best >= CHANCE:
        return None
    return (
        f"warning: the best {metric} on {dev} is {progress.best:.1f} %, so this run may never have left chance. Look "
        "at the training loss. If it is still high, try another seed, a lower training.learning_rate, or "
        "training.restarts; if it is low, the model does not generalise to this dev set."
    )


def _best_seed(
    options: RunOptions,
    run: RunDirectory,
    accelerator: Accelerator,
    display: Display | None,
    extra: Sequence[Example],
) -> int:
    """Train each seed for a few steps, as a run of its own, and return the best one; ties go to the lowest seed.

    The run itself then starts from the beginning with that seed. So all state is in the folders of the attempts, and an
    interrupted run is resumed in the attempt that it had reached.
    """
    training = options.training
    by_loss = training.restart_by == "loss"
    scores: dict[int, float] = {}
    for attempt in options.attempts():
        if accelerator.is_main_process:
            (display or default_display()).say(f"trying seed {attempt.seed}")
        progress = _train_attempt(attempt, run.attempts / f"seed-{attempt.seed}", display, extra)
        score = progress.recorded_loss if by_loss else progress.best
        scores[attempt.seed] = score if score is not None else math.inf if by_loss else -math.inf
    best = (min if by_loss else max)(scores, key=scores.__getitem__)
    if accelerator.is_main_process:
        listed = ", ".join(f"{score:.2f} with seed {seed}" for seed, score in scores.items())
        (display or default_display()).say(
            f"after {training.restart_steps} steps, {'the training loss' if by_loss else 'dev'} is {listed}; training "
            f"starts with seed {best}"
        )
    return best
