"""Hyperparameter search on the dev set with Optuna, which can be resumed and shared between machines."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import optuna
import yaml
from optuna.trial import TrialState
from sqlalchemy.exc import SQLAlchemyError

from permalign.errors import ConfigError, PermalignError
from permalign.files import write_text
from permalign.options.run import RunOptions
from permalign.training.experiments import SettingError, apply_settings, load_values, merged
from permalign.training.launch import resume, train
from permalign.training.progress_display import Display
from permalign.training.run_directory import with_absolute_paths
from permalign.training.state import Progress, last_saved_step
from permalign.training.tuning_ranges import Range, Value, default_ranges
from permalign.training.tuning_trials import MAX_RESUMES, TrialQueue, may_be_resumed

BEST = "best.yaml"
TRIALS = "trials.jsonl"
COMPLETE = (TrialState.COMPLETE,)
ENDED = (*COMPLETE, TrialState.PRUNED, TrialState.FAIL)
STOPPED = "stopped"
"""The user attribute of trials that were never trained, which do not count."""
STORAGE_ERRORS = (optuna.exceptions.OptunaError, SQLAlchemyError, ImportError)
MAX_FAILURES = 3
"""The number of trials after which a search ends in which all trials have failed."""
UNPRUNED = 5
"""The number of trials before pruning starts."""
POLL_INTERVAL = 1.0
"""The number of seconds between looks at trials that other processes train."""


def tune(
    experiment: str | Mapping[str, Any],
    folder: str | Path,
    *,
    settings: Sequence[str] = (),
    ranges: Sequence[str] = (),
    trials: int = 50,
    storage: str | None = None,
    study: str | None = None,
    seed: int = 0,
    display: Display | None = None,
) -> optuna.Study:
    """Search until the study has the given number of trials; an existing study is continued.

    A trial that was interrupted or killed is resumed from its last checkpoint, by the first process that looks for one.
    The values of a trial depend on its number, on the seed, and on the results of the trials before it. So one process
    that is interrupted goes on as it would have gone on without the interruption.

    Args:
        experiment: the name of an experiment, or the path of a YAML file, or options that differ from the defaults.
        folder: the folder for the runs, each in a subfolder, for the file ``best.yaml`` with the best options, and for
            ``trials.jsonl``, the list of all trials.
        settings: changes to the options of all trials, ``OPTION=VALUE``.
        ranges: the values to try for each option (see `Range`); by default `default_ranges`.
        trials: the total number of trials, over all machines and sessions.
        storage: the URL of a database that several machines share; by default a SQLite file in the folder.
        study: the name of the study in the database; by default that of the experiment, or ``options``.
        seed: the seed of the search; that of the trials' training is the option ``seed``.
        display: displays the values and the result of every trial.
    """
    loaded, name = (
        (load_values(experiment), experiment)
        if isinstance(experiment, str)
        else (dict(experiment), "options")
    )
    values = apply_settings(loaded, settings)
    options = RunOptions.parse(values)
    space = [Range.parse(text) for text in ranges or default_ranges(options)]
    _require_known(values, space)
    folder, display = Path(folder), display or Display()
    folder.mkdir(parents=True, exist_ok=True)
    errors: list[str] = []
    opened_study = _open_study(study or name, storage or f"sqlite:///{folder / 'study.db'}")
    search = _Search(values, space, folder, opened_study, seed, display, errors)
    queue = TrialQueue(opened_study, folder)
    try:
        while _num_trials(opened_study) < trials and not (errors and _none_succeeds(opened_study)):
            with queue.left_trial() as left:
                if left is not None:
                    search.resume(left)
                    continue
            if _num_trials(opened_study) + queue.num_busy() < trials:
                with queue.new_trial() as new:
                    search.start(new)
            else:  # others train what is missing; should one of them be killed, its trial is resumed here
                time.sleep(POLL_INTERVAL)
        _write_results(folder, values, opened_study)
    except _RangeError as error:
        raise ConfigError(str(error)) from None
    except STORAGE_ERRORS as error:
        raise PermalignError(f"the database of the study failed: {_first_line(error)}") from error
    if errors and _none_succeeds(opened_study):
        raise PermalignError(
            f"no trial finished, and the last {len(errors)} failed, so the search ended: {errors[-1]}"
        )
    return opened_study


@dataclass(frozen=True)
class _Search:
    """What all trials of a search have in common; see `tune`.

    Attributes:
        errors: the messages of the trials that failed.
    """

    values: Mapping[str, Any]
    space: Sequence[Range]
    folder: Path
    study: optuna.Study
    seed: int
    display: Display
    errors: list[str]

    def start(self, trial: optuna.Trial) -> None:
        """Train a new trial to its end."""
        self.study.sampler = _sampler(self.seed, trial.number)
        try:
            chosen = _suggest(self.space, trial)
        except _RangeError:
            trial.set_user_attr(STOPPED, True)
            self.study.tell(trial, state=TrialState.FAIL)
            raise
        self._say(trial, _listed(chosen))
        options, run = _with_options(self.values, chosen), self._run_folder(trial)
        self._finish(trial, lambda: train(options, run, display=Pruning(trial)))

    def resume(self, trial: optuna.Trial) -> None:
        """Train a trial to its end that was interrupted or killed, from its last checkpoint if it has one."""
        run = self._run_folder(trial)
        if not (run / "config.yaml").exists():
            self.start(trial)
            return
        step = last_saved_step(run)
        self._say(trial, f"resumed from step {step or 0}, {_listed(trial.params)}")

        def go_on() -> Progress:
            if not may_be_resumed(trial, step):
                raise PermalignError(f"it was killed {MAX_RESUMES} times after step {step or 0}.")
            return resume(run, display=Pruning(trial))

        self._finish(trial, go_on)

    def _finish(self, trial: optuna.Trial, work: Callable[[], Progress]) -> None:
        """Work on a trial, and write what comes of it to the study; if it is interrupted, it stays unfinished."""
        state, value = TrialState.FAIL, None
        try:
            value = work().best
            state = TrialState.FAIL if value is None else TrialState.COMPLETE
        except optuna.TrialPruned:
            state = TrialState.PRUNED
        except PermalignError as error:
            self._say(trial, str(error))
            self.errors.append(str(error))
        except Exception:
            self.study.tell(trial, state=TrialState.FAIL)
            raise
        told = self.study.tell(trial, value, state)
        self._say(trial, f"{told.state.name.lower()}, {told.value}")
        _write_results(self.folder, self.values, self.study)

    def _run_folder(self, trial: optuna.Trial) -> Path:
        return self.folder / f"trial-{trial.number:04d}"

    def _say(self, trial: optuna.Trial, message: str) -> None:
        self.display.say(f"trial {trial.number}: {message}")


class _RangeError(Exception):
    """The ranges differ from those of earlier trials. This ends the search; a `PermalignError` ends only a trial."""


def _open_study(name: str, storage: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return optuna.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED),
            load_if_exists=True,
        )
    except (*STORAGE_ERRORS, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{storage!r} cannot be used as a database: {_first_line(error)} Expected a URL such as "
            "sqlite:///study.db or postgresql://user@host/studies."
        ) from error


def _sampler(seed: int, trial: int) -> optuna.samplers.BaseSampler:
    """The sampler of a trial, which has a seed of its own, so that it does not matter which process asks it."""
    (state,) = np.random.SeedSequence([seed, trial]).generate_state(1)
    return optuna.samplers.TPESampler(seed=int(state))


def _suggest(space: Sequence[Range], trial: optuna.Trial) -> dict[str, Value]:
    """Choose a value for each option of the search space."""
    chosen: dict[str, Value] = {}
    for dimension in space:
        try:
            chosen[dimension.option] = dimension.suggest(trial)
        except ValueError as error:
            raise _RangeError(
                f"the range of {dimension.option} differs from that of earlier trials ({_first_line(error)}) Use the "
                "same ranges, or start another study with --study or --out."
            ) from None
    return chosen


def _listed(chosen: Mapping[str, Value]) -> str:
    return ", ".join(f"{option}={value}" for option, value in chosen.items())


def _num_trials(study: optuna.Study) -> int:
    """The number of trials that ended, without those that were never trained."""
    return sum(STOPPED not in trial.user_attrs for trial in study.get_trials(states=ENDED))


def _none_succeeds(study: optuna.Study) -> bool:
    """Whether so many trials failed, and no other ended, that the fault is not that of the values they try."""
    ended = [trial.state.name for trial in study.get_trials(states=ENDED) if STOPPED not in trial.user_attrs]
    return len(ended) >= MAX_FAILURES and set(ended) == {"FAIL"}


def _first_line(error: Exception) -> str:
    line = (str(error) or type(error).__name__).splitlines()[0]
    return line if line.endswith(".") else f"{line}."


class Pruning(Display):
    """Prunes a trial whose dev metric is below the median of other trials at the same step."""

    def __init__(self, trial: optuna.Trial) -> None:
        self._trial = trial
        known = trial.study.get_trials(deepcopy=False)[trial.number]
        self._reported = frozenset(known.intermediate_values)

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:  # noqa: D102
        if kind == "dev":
            if step not in self._reported:  # a resumed run repeats what came after its last checkpoint
                self._trial.report(next(iter(numbers.values())), step)
            if self._trial.should_prune():
                raise optuna.TrialPruned


def _with_options(values: Mapping[str, object], chosen: Mapping[str, object]) -> dict[str, object]:
    result = dict(values)
    for option, value in chosen.items():
        change: object = value
        for name in reversed(option.split(".")):
            change = {name: change}
        if isinstance(change, dict):
            result = merged(result, change)
    return result


def _require_known(values: Mapping[str, object], space: Sequence[Range]) -> None:
    """Raise an error for an unknown option, by trying the first value of each range."""
    for dimension in space:
        first = dimension.choices[0] if dimension.choices else dimension.low
        try:
            RunOptions.parse(_with_options(values, {dimension.option: first}))
        except ConfigError as error:
            raise SettingError(str(error)) from None


def _write_results(folder: Path, values: Mapping[str, object], study: optuna.Study) -> None:
    """Write the best options and the list of trials."""
    _write_best(folder / BEST, values, study)
    lines = [
        {
            "trial": trial.number,
            "state": trial.state.name.lower(),
            "dev": trial.value,
            "values": trial.params,
        }
        for trial in study.get_trials(deepcopy=False, states=ENDED)
        if STOPPED not in trial.user_attrs
    ]
    write_text(folder / TRIALS, "".join(f"{json.dumps(line)}\n" for line in lines))


def _write_best(path: Path, values: Mapping[str, object], study: optuna.Study) -> None:
    """Write the options of the best trial for `train`, if any trial is complete."""
    if not study.get_trials(states=COMPLETE):
        return
    best = study.best_trial
    options = RunOptions.parse(_with_options(values, best.params)).model_dump(mode="json")
    options["task"] = with_absolute_paths(options["task"])
    options["description"] = f"Best of {len(study.trials)} trials, {best.value} on dev."
    write_text(path, yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
