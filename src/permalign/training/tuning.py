"""A search for good options, judged on dev alone, with Optuna: pruned, resumable, on any number of machines."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import optuna
import yaml

from permalign.errors import PermalignError
from permalign.training.display import Display
from permalign.training.experiments import load_values, merged, parse_setting
from permalign.training.options import RunOptions
from permalign.training.ranges import Range, default_ranges
from permalign.training.running import train
from permalign.training.whole_files import whole_file

BEST = "best.yaml"
COUNTED = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED, optuna.trial.TrialState.FAIL)
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
    values = load_values(name)
    for setting in settings:
        values = merged(values, parse_setting(setting))
    options = RunOptions.parse(values)
    space = [Range.parse(text) for text in ranges or default_ranges(options)]
    _require_known(values, space)
    folder, display = Path(folder), display or Display()
    folder.mkdir(parents=True, exist_ok=True)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    found = optuna.create_study(
        study_name=study or name,
        storage=storage or f"sqlite:///{folder / 'study.db'}",
        direction="maximize",
        sampler=optuna.samplers.TPESampler(seed=None),
        pruner=optuna.pruners.MedianPruner(n_startup_trials=UNPRUNED),
        load_if_exists=True,
    )

    def run(trial: optuna.Trial) -> float:
        chosen = {one.option: one.suggest(trial) for one in space}
        display.say(
            f"trial {trial.number}: " + ", ".join(f"{option}={value}" for option, value in chosen.items())
        )
        progress = train(_with(values, chosen), folder / f"trial-{trial.number:04d}", display=Pruning(trial))
        return progress.best if progress.best is not None else float("nan")

    def tell(study: optuna.Study, trial: optuna.trial.FrozenTrial) -> None:
        display.say(f"trial {trial.number}: {trial.state.name.lower()}, {trial.value}")
        if study.get_trials(states=COUNTED[:1]):
            _write_best(folder / BEST, values, study)

    if len(found.get_trials(states=COUNTED)) < trials:
        enough = optuna.study.MaxTrialsCallback(trials, states=COUNTED)
        found.optimize(run, callbacks=[tell, enough], catch=(PermalignError,))
    return found


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
        RunOptions.parse(_with(values, {one.option: one.choices[0] if one.choices else one.low}))


def _write_best(path: Path, values: Mapping[str, object], study: optuna.Study) -> None:
    """The options of the best trial, as `train` takes them."""
    best = study.best_trial
    options = RunOptions.parse(_with(values, best.params)).model_dump(mode="json")
    options["description"] = f"Best of {len(study.trials)} trials, {best.value} on dev."
    with whole_file(path) as file:
        file.write_text(yaml.safe_dump(options, sort_keys=False, allow_unicode=True), encoding="utf-8")
