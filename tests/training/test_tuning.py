import json
from contextlib import contextmanager

import optuna
import pytest
import yaml
from tests.training.small_run import options, write_data

from permalign.errors import ConfigError, PermalignError
from permalign.options.run import RunOptions
from permalign.training.experiments import load_experiment
from permalign.training.progress_display import Display
from permalign.training.recipes import RECIPES, load_recipe_values
from permalign.training.tuning import Pruning, tune
from permalign.training.tuning_plots import plot_study
from permalign.training.tuning_ranges import Range, default_ranges
from permalign.training.tuning_trials import TrialQueue, may_be_resumed


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(options(write_data(tmp_path), max_steps=4, evaluate_every=2, stages=[])))
    return str(path)


def test_a_search_is_resumed_and_writes_options_that_can_be_trained(config, tmp_path):
    ranges = [
        "training.learning_rate=0.001:0.1:log",
        "model.head.context=full,1,2",
        "model.head.hidden_size=4:16",
    ]
    for trials in (1, 2):
        study = tune(config, tmp_path / "tune", ranges=ranges, trials=trials)
        assert len(study.trials) == trials
    again = tune(config, tmp_path / "tune", ranges=ranges, trials=2)
    assert len(again.trials) == 2
    best = load_experiment(str(tmp_path / "tune" / "best.yaml"))
    chosen = study.best_trial.params
    assert best.training.learning_rate == chosen["training.learning_rate"]
    assert best.model.head.context == chosen["model.head.context"]
    assert best.model.head.hidden_size == chosen["model.head.hidden_size"]
    assert (tmp_path / "tune" / "study.db").exists()
    drawn = [path.stem for path in plot_study(again, tmp_path / "plots")]
    assert drawn == ["history", "slices", "importances", "learning-curves"]


def test_a_search_with_a_seed_tries_the_same_values_whether_or_not_it_is_interrupted(config, tmp_path):
    tried = {}
    for name, seed, steps in (("whole", 3, (3,)), ("in-parts", 3, (1, 2, 3)), ("other", 4, (3,))):
        for trials in steps:
            tune(config, tmp_path / name, ranges=RATES, trials=trials, seed=seed)
        lines = [json.loads(line) for line in (tmp_path / name / "trials.jsonl").read_text().splitlines()]
        assert [(line["trial"], line["state"]) for line in lines] == [
            (0, "complete"),
            (1, "complete"),
            (2, "complete"),
        ]
        tried[name] = [(line["values"]["training.learning_rate"], line["dev"]) for line in lines]
    assert tried["whole"] == tried["in-parts"]
    rates = {rate for found in tried.values() for rate, _ in found}
    assert len(rates) == 6


RATES = ["training.learning_rate=1e-3:1e-1:log"]


class Listening(Display):
    def __init__(self):
        self.said = []

    def say(self, message):
        self.said.append(message)


def interrupted_after(records, error):
    """A function that records as a trial does, and raises an error in place of a later record."""
    record, done = Pruning.record, []

    def interrupting(self, step, kind, numbers):
        done.append(step)
        if len(done) > records:
            raise error
        record(self, step, kind, numbers)

    return interrupting


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_trial_is_resumed_with_the_same_values(config, tmp_path, monkeypatch, error):
    with monkeypatch.context() as patch:
        patch.setattr(Pruning, "record", interrupted_after(1, error))  # after the state of step 2
        with pytest.raises(error):
            tune(config, tmp_path / "tune", ranges=RATES, trials=1)
    assert (tmp_path / "tune" / "trial-0000" / "state" / "step-0000002").exists()
    display = Listening()
    study = tune(config, tmp_path / "tune", ranges=RATES, trials=1, display=display)
    (trial,) = study.trials
    assert trial.state.name == "COMPLETE"
    rate = trial.params["training.learning_rate"]
    assert display.said[0] == f"trial 0: resumed from step 2, training.learning_rate={rate}"
    run = load_experiment(str(tmp_path / "tune" / "trial-0000" / "config.yaml"))
    assert run.training.learning_rate == rate
    best = tmp_path / "tune" / "best.yaml"
    best.unlink()
    tune(config, tmp_path / "tune", ranges=RATES, trials=1)
    assert best.exists()


def test_a_trial_that_is_interrupted_before_it_has_a_run_is_started_again(config, tmp_path, monkeypatch):
    def stopped(*args, **kwargs):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("permalign.training.tuning.train", stopped)
        with pytest.raises(KeyboardInterrupt):
            tune(config, tmp_path / "tune", ranges=RATES, trials=1)
    study = tune(config, tmp_path / "tune", ranges=RATES, trials=1)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"]


def study_of(folder):
    return optuna.create_study(storage=f"sqlite:///{folder / 'study.db'}", direction="maximize")


def test_only_trials_that_nobody_trains_are_left(tmp_path):
    study = study_of(tmp_path)
    queue, other = TrialQueue(study, tmp_path), TrialQueue(study, tmp_path)
    with queue.new_trial() as trial:
        trial.suggest_float("x", 0, 1)
        with other.left_trial() as left:
            assert left is None
        assert other.num_busy() == 1
    assert other.num_busy() == 0
    (tmp_path / "elsewhere").mkdir()
    with TrialQueue(study, tmp_path / "elsewhere").left_trial() as left:  # of a machine with its own folder
        assert left is None
    with other.left_trial() as left:
        assert (left.number, left.params) == (trial.number, trial.params)
        with queue.left_trial() as none:
            assert none is None
        study.tell(left, 1.0)
    with other.left_trial() as left:
        assert left is None


def test_without_locks_no_trial_is_taken_for_left(tmp_path, monkeypatch):
    @contextmanager
    def unlocked(path, *args, **kwargs):
        yield False

    monkeypatch.setattr("permalign.training.tuning_trials.exclusive_lock", unlocked)
    queue = TrialQueue(study_of(tmp_path), tmp_path)
    with queue.new_trial(), queue.left_trial() as left:
        assert left is None
    assert queue.num_busy() == 0


def test_a_trial_that_is_always_killed_at_the_same_step_has_failed(tmp_path):
    trial = study_of(tmp_path).ask()
    steps = [None, None, 5, 5, 5, 5]
    assert [may_be_resumed(trial, step) for step in steps] == [True] * 5 + [False]


def test_a_search_ends_if_all_its_first_trials_fail(tmp_path):
    values = options(write_data(tmp_path), max_steps=4, evaluate_every=2, stages=[])
    values = {**values, "dev": "len/dev"}
    with pytest.raises(PermalignError, match=r"no trial finished, and the last 3 failed, .*len/dev"):
        tune(values, tmp_path / "tune", ranges=["training.learning_rate=1e-3:1e-1:log"], trials=50)
    assert len(list((tmp_path / "tune").glob("trial-*"))) <= 3


def test_errors_of_optuna_are_explained(config, tmp_path):
    with pytest.raises(ConfigError, match="'nowhere' cannot be used as a database"):
        tune(config, tmp_path / "tune", storage="nowhere")
    tune(config, tmp_path / "tune", ranges=["model.head.hidden_size=4,8"], trials=1)
    with pytest.raises(
        ConfigError, match=r"range of model.head.hidden_size differs from that of earlier trials"
    ):
        tune(config, tmp_path / "tune", ranges=["model.head.hidden_size=4,16"], trials=2)


def test_numbers_are_read_in_any_notation():
    assert Range.parse("a=1e-4,2,x,true,nan").choices == (1e-4, 2, "x", True, "nan")
    assert Range.parse("a=1e-4:1:log") == Range("a", low=1e-4, high=1, logarithmic=True)
    for text in ("a=true:5", "a=1:inf", "a=[,2"):
        with pytest.raises(ConfigError, match="range"):
            Range.parse(text)


def test_a_trial_that_falls_behind_is_pruned():
    study = optuna.create_study(direction="maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=1))
    study.add_trial(
        optuna.trial.create_trial(
            value=90.0, intermediate_values={2: 90.0, 4: 90.0}, params={}, distributions={}
        )
    )
    watching = Pruning(study.ask())
    watching.record(2, "train", {"loss": 1.0})
    with pytest.raises(optuna.TrialPruned):
        watching.record(2, "dev", {"exact_match": 10.0})


@pytest.mark.parametrize("experiment", ["arithmetic/sinkhorn", "geoquery/hard", "geoquery/ssnt", "scan/soft"])
def test_default_ranges_are_for_options_that_the_model_has(experiment):
    ranges = [Range.parse(text) for text in default_ranges(load_experiment(experiment))]
    for dimension in ranges:
        for value in dimension.choices or (dimension.low, dimension.high):
            load_experiment(experiment, [f"{dimension.option}={value}"])
    searched = {dimension.option for dimension in ranges}
    assert ("model.reorderer.temperature" in searched) == (
        experiment in ("arithmetic/sinkhorn", "geoquery/hard")
    )


@pytest.mark.parametrize("recipe", RECIPES)
def test_default_ranges_of_a_recipe_are_for_options_that_its_model_has(recipe, tmp_path):
    path = str(write_data(tmp_path))
    values, _ = load_recipe_values(recipe, {"name": "own", "path": path})
    for text in default_ranges(RunOptions.parse(values)):
        dimension = Range.parse(text)
        for value in dimension.choices or (dimension.low, dimension.high):
            load_recipe_values(recipe, {"name": "own", "path": path}, [f"{dimension.option}={value}"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("training.max_steps", "is not a range; expected option=a,b,c"),
        ("training.learning_rate=1:0.1", "is an empty range"),
        ("training.learning_rate=0:1:log", "above 0 for log"),
        ("training.learning_rate=0.1:1:linear", "is not a range"),
        ("training.lerning_rate=0.1:1.0", "did you mean training.learning_rate"),
    ],
)
def test_invalid_ranges_are_errors(config, tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        tune(config, tmp_path / "tune", ranges=[text], trials=1)
