"""A search for good options, judged on dev alone, with Optuna: pruned, resumable, on any number of machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
import yaml
from sqlalchemy.exc import SQLAlchemyError

from permalign.errors import ConfigError, PermalignError
from permalign.files import write_text
from permalign.options.run import RunOptions
from permalign.training.experiments import SettingError, load_changed_values, merged
from permalign.training.launch import train
from permalign.training.progress_display import Display
from permalign.training.ranges import Range, Value, default_ranges

BEST = "best.yaml"
COMPLETE = (optuna.trial.TrialState.COMPLETE,)
ENDED = (*COMPLETE, optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.FAIL)
STOPPED = "stopped"
"""The mark of a trial that was interrupted: it has ended, but tells nothing."""
STORAGE_ERRORS = (optuna.exceptions.OptunaError, SQLAlchemyError, ImportError)
UNPRUNED = 5
"""Trials that come to their end, before others are measured by them."""


def tune(
    name: str,
    folder: str | Path,
    *,
    settings: Sequence[str] = (),
    ranges: Sequence[str] = (),
    trials: int = 50,
    storage: str | None = None,
    study: str | None = None,
    display: Display | None = None,
) -> optuna.Study:
    """Search until a study has so many trials; one that was stopped goes on.

    Args:
        name: the experiment or file to begin with.
        folder: for the runs, one folder each, and for ``best.yaml``, which `train` takes.
        settings: what differs from it in every trial.
        ranges: where to search (see `Range`); `default_ranges` if none are given.
        trials: how many the study shall have, over all machines and sittings.
        storage: the address of a database, for many machines; a SQLite file in the folder if not given.
        study: its name in the database; the experiment's if not given.
        display: what says how trials end.
    """
    values = load_changed_values(name, settings)
    options = RunOptions.parse(values)
    space = [Range.parse(text) for text in ranges or default_ranges(options)]
    _require_known(values, space)
    folder, display = Path(folder), display or Display()
    folder.mkdir(parents=True, exist_ok=True)
    found = _open_study(study or name, storage or f"sqlite:///{folder / 'study.db'}")

    def run(trial: optuna.Trial) -> float:
        chosen = _suggest(space, trial)
        display.say(
            f"trial {trial.number}: " + ", ".join(f"{option}={value}" for option, value in chosen.items())
        )
        run_folder = folder / f"trial-{trial.number:04d}"
        try:
            progress = train(_with(values, chosen), run_folder, display=Pruning(trial))
        except KeyboardInterrupt:
            trial.set_user_attr(STOPPED, True)
            raise
        except PermalignError as error:
            display.say(f"trial {trial.number}: {error}")
            raise
        return progress.best if progress.best is not None else float("nan")

    def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        display.say(f"trial {trial.number}: {trial.state.name.lower()}, {trial.value}")
        _write_best(folder / BEST, values, study)
        if _counted(study) >= trials:
            study.stop()

    try:
        if _counted(found) < trials:
            found.optimize(run, callbacks=[tell], catch=(PermalignError,))
        _write_best(folder / BEST, values, found)
    except _RangeError as error:
        raise ConfigError(str(error)) from None
    except STORAGE_ERRORS as error:
        raise PermalignError(f"the database of the search failed: {_first_line(error)}") from error
    return found


class _RangeError(Exception):
    """Trials cannot be compared; unlike a `PermalignError`, it ends the search and not just a trial."""


def _open_study(name: str, storage: str) -> optuna.Study:
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        return optuna.create_study(
            study_name=name,
            storage=storage,
            direction="maximize",
            sampler=optuna.samplers.TPESampler(seed=None),
            pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED),
            load_if_exists=True,
        )
    except (*STORAGE_ERRORS, ValueError, RuntimeError) as error:
        raise ConfigError(
            f"{storage!r} is no database that a search can be kept in: {_first_line(error)} Expected an address such "
            "as sqlite:///study.db or postgresql://user@host/studies."
        ) from error


def _suggest(space: Sequence[Range], trial: optuna.Trial) -> dict[str, Value]:
    """A value for every option searched."""
    chosen: dict[str, Value] = {}
    for one in space:
        try:
            chosen[one.option] = one.suggest(trial)
        except ValueError as error:
            trial.set_user_attr(STOPPED, True)
            raise _RangeError(
                f"the range of {one.option} is not the one that the search was begun with ({_first_line(error)}) Keep "
                "the ranges, or begin another search with --study or --out."
            ) from None
    return chosen


def _counted(study: optuna.Study) -> int:
    """Trials that came to an end of their own; not those that were stopped, or whose process died."""
    return sum(STOPPED not in trial.user_attrs for trial in study.get_trials(states=ENDED))


def _first_line(error: Exception) -> str:
    line = (str(error) or type(error).__name__).splitlines()[0]
    return line if line.endswith(".") else f"{line}."


class Pruning(Display):
    """Ends a trial whose dev metric, at some step, is below the median of the others there."""

    def __init__(self, trial: optuna.Trial) -> None:
        self._trial = trial

    def record(self, step: int, kind: str, numbers: Mapping[str, float]) -> None:  # noqa: D102
        if kind == "dev":
            self._trial.report(next(iter(numbers.values())), step)
            if self._trial.should_prune():
                raise optuna.TrialPruned


def _with(values: Mapping[str, object], chosen: Mapping[str, object]) -> dict[str, object]:
    result = dict(values)
    for option, value in chosen.items():
        change: object = value
        for part in reversed(option.split(".")):
            change = {part: change}
        if isinstance(change, dict):
            result = merged(result, change)
    return result


def _require_known(values: Mapping[str, object], space: Sequence[Range]) -> None:
    """Every option searched is one: the first value of each range is tried on the options."""
    for one in space:
        try:
            RunOptions.parse(_with(values, {one.option: one.choices[0] if one.choices else one.low}))
        except ConfigError as error:
            raise SettingError(str(error)) from None


def _write_best(path: Path, values: Mapping[str, object], study: optuna.Study) -> None:
    """The options of the best trial, as `train` takes them, if any was completed."""
    if not study.get_trials(states=COMPLETE):
        return
    best = study.best_trial
    options = RunOptions.parse(_with(values, best.params)).model_dump(mode="json")
    options["description"] = f"Best of {len(study.trials)} trials, {best.value} on dev."
    write_text(path, yaml.safe_dump(options, sort_keys=False, allow_unicode=True))
