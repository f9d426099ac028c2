import pytest

from permalign.errors import ConfigError, DataError, UsageError
from permalign.options.run import RunOptions, TrainingOptions
from permalign.training.experiments import experiment_names, load_experiment, load_values
from permalign.training.schedules import learning_rate

ARITHMETIC = {"task": {"name": "arithmetic"}, "training": {"max_steps": 10}}


@pytest.mark.parametrize("name", experiment_names())
def test_every_experiment_is_valid_and_has_a_description(name):
    options = load_experiment(name)
    assert options.description.endswith(".")
    assert len(options.description) < 120
    options.require_split(options.make_task())


def leaves(values, path=()):
    for key, value in values.items():
        yield from leaves(value, (*path, key)) if isinstance(value, dict) else [((*path, key), value)]


@pytest.mark.parametrize("task", ["arithmetic", "scan", "geoquery"])
def test_experiments_hold_only_what_differs_from_the_defaults(task):
    defaults = RunOptions.parse({"task": {"name": "own", "path": ""}, "training": {"max_steps": 1}})
    default = dict(leaves(defaults.model_dump()))
    said = leaves(load_values(f"{task}/_base"))
    assert [path for path, value in said if default.get(path) == value and path[-1] != "kind"] == []


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.max_stepz=3", "unknown option training.max_stepz; did you mean training.max_steps?"),
        ("model.head.knd=ssnt", "unknown option model.head.knd; did you mean model.head.kind?"),
        (
            "training.stages=[{stps: 3, objective: soft}]",
            "unknown option training.stages.0.stps; did you mean",
        ),
        ("training.max_steps=-1", "training.max_steps is -1: input should be greater"),
        ("training.max_steps", "'training.max_steps' is not a setting; expected option=value"),
        ("training.warmup_steps=5000", "training.warmup_steps is 5000, but training.max_steps only"),
        ("training.restarts=3", "training.restarts and training.restart_steps go together"),
        ("training={restarts: 2, restart_steps: 5, warmup_steps: 9}", "Raise it"),
        ("training.schedule=inverse_sqrt", "Set training.warmup_steps"),
        ("training.stages=[{steps: 3000, objective: hard}]", "training.stages take 3000 steps"),
        ("training={stages: [{steps: 3, objective: exact}]}", None),
        ("text.source={kind: subwords, min_frequency: 2}", "text.source.min_frequency is not for subwords"),
        ("text.source={kind: subwords, link_entities: true}", "text.source.link_entities is for words"),
        ("text.source={kind: characters, pre_tokenizer: digits}", "text.source.pre_tokenizer is for words"),
        ("text.target={kind: tokenizer}", "text.target.tokenizer: NAME go together"),
        ("text.target={lowercase: true}", "no output could equal a target with capital letters"),
        ("text.target.link_entities=true", "entities can be linked in the source only"),
        ("dev=iid/dve", None),
    ],
)
def test_invalid_settings_are_errors(setting, message):
    if message is None:
        load_experiment("arithmetic/soft", [setting])
        return
    with pytest.raises(ConfigError) as caught:
        load_experiment("arithmetic/soft", [setting])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"training": {"max_steps": 3}}, "task is missing"),
        ({**ARITHMETIC, "task": {"notation": "postfix"}}, "task.name must say which task"),
        (
            {**ARITHMETIC, "training": {"max_steps": 9, "reorderer_first": {"steps": 3}}},
            "there is nothing to train first",
        ),
        (
            {**ARITHMETIC, "training": {"max_steps": 9, "stages": [{"steps": 3, "objective": "exact"}]}},
            "training.stages change the objective of a separable or labelled reorderer",
        ),
        (
            {
                **ARITHMETIC,
                "model": {"reorderer": {"kind": "separable"}, "head": {"kind": "ssnt"}},
                "training": {"max_steps": 9, "stages": [{"steps": 3, "objective": "exact"}]},
            },
            "training.stages.0: reorderer.objective is exact, but head.kind is ssnt",
        ),
    ],
)
def test_contradictions_are_errors_before_any_data_is_read(values, message):
    with pytest.raises(ConfigError) as caught:
        RunOptions.parse(values)
    assert message in str(caught.value)


def test_unknown_tasks_and_options_of_tasks_are_errors():
    with pytest.raises(UsageError, match="did you mean 'arithmetic'"):
        RunOptions.parse({"task": {"name": "arithmetics"}, "training": {"max_steps": 3}})
    with pytest.raises(UsageError, match="has no option --langage"):
        RunOptions.parse({"task": {"name": "geoquery", "langage": "de"}, "training": {"max_steps": 3}})


def test_the_nearest_name_is_suggested_for_an_unknown_split():
    options = load_experiment("arithmetic/soft", ["dev=deep/dve"])
    with pytest.raises(ConfigError, match="did you mean 'deep/dev'"):
        options.require_split(options.make_task())


def test_a_file_extends_an_experiment_and_a_file_beside_it(tmp_path):
    (tmp_path / "mine.yaml").write_text("extends: arithmetic/exact\ntraining: {max_steps: 7}\n")
    (tmp_path / "yours.yaml").write_text("extends: mine.yaml\nseed: 3\n")
    options = load_experiment(str(tmp_path / "yours.yaml"))
    assert (options.seed, options.training.max_steps, options.model.head.kind) == (3, 7, "tagging")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("seed: 1\nseed: 2\n", "'seed' occurs twice"),
        ("just words", "must contain a mapping from options to values"),
        ("a: [", "is not YAML"),
        ("extends: self.yaml\n", "extends itself"),
    ],
)
def test_files_that_do_not_contain_options_are_errors(tmp_path, text, message):
    (tmp_path / "self.yaml").write_text(text)
    with pytest.raises(DataError, match=message):
        load_experiment(str(tmp_path / "self.yaml"))


def test_a_long_chain_of_files_is_refused(tmp_path):
    for number in range(1_000):
        (tmp_path / f"{number}.yaml").write_text(f"extends: {number + 1}.yaml\n")
    (tmp_path / "1000.yaml").write_text("seed: 1\n")
    with pytest.raises(DataError, match=r"is extended through more than 20 files\. Merge some of them\."):
        load_experiment(str(tmp_path / "0.yaml"))
    assert load_values(str(tmp_path / "980.yaml")) == {"seed": 1}


@pytest.mark.parametrize("text", ["5", "{source: 5}"])
def test_wrong_options_of_text_are_named_when_the_task_is_replaced(tmp_path, text):
    path = tmp_path / "mine.yaml"
    path.write_text(f"task: {{name: arithmetic}}\ntext: {text}\n")
    with pytest.raises(ConfigError, match=r"text\S* is 5, but must be a mapping"):
        load_experiment(str(path), ["task.name=scan-sp"])


def test_a_folder_is_not_an_experiment(tmp_path):
    with pytest.raises(DataError, match=r"is not a file; expected a YAML file with options\."):
        load_experiment(str(tmp_path))


def test_the_nearest_name_is_suggested_for_an_unknown_experiment():
    with pytest.raises(ConfigError, match="did you mean 'arithmetic/soft'"):
        load_experiment("arithmetic/sotf")


def test_stages_follow_one_another():
    stages = [{"steps": 2, "objective": "exact"}, {"steps": 1, "objective": "hard"}]
    options = load_experiment("arithmetic/soft", [f"training.stages={stages}"])
    assert [options.objective_at(step) for step in range(1, 6)] == ["exact", "exact", "hard", "soft", "soft"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [0.5, 1.0, 1.0, 1.0]),
        ("linear", [0.5, 1.0, 2 / 3, 1 / 3]),
        ("cosine", [0.5, 1.0, 0.75, 0.25]),
        ("inverse_sqrt", [0.5, 1.0, (2 / 3) ** 0.5, 0.5**0.5]),
    ],
)
def test_schedules(schedule, expected):
    options = TrainingOptions(schedule=schedule, warmup_steps=2, learning_rate=1.0)
    assert [learning_rate(options, step, 4) for step in range(1, 5)] == pytest.approx(expected)


def test_a_plateau_halves_the_rate():
    options = TrainingOptions(schedule="plateau", learning_rate=1.0)
    assert [learning_rate(options, 9, 9, halvings) for halvings in range(3)] == [1.0, 0.5, 0.25]
    warm = TrainingOptions(schedule="plateau", learning_rate=1.0, warmup_steps=4)
    assert [learning_rate(warm, step, 9, halvings=1) for step in (2, 4, 5)] == [0.5, 1.0, 0.5]


def test_every_run_has_an_end():
    assert RunOptions.parse({"task": {"name": "arithmetic"}}).training.max_epochs == 100
    assert RunOptions.parse({**ARITHMETIC, "training": {"patience": 2}}).training.max_epochs == 100
    assert RunOptions.parse(ARITHMETIC).training.max_epochs is None
