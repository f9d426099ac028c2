import pytest

from permalign.errors import ConfigError, DataError, UsageError, excerpt
from permalign.training.experiments import load_experiment, parse_setting
from permalign.yaml_files import YamlError, parse_yaml

LAUGHS = "a: &a [1, 2, 3, 4, 5, 6, 7, 8, 9]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
WRONG = {
    "billion laughs": LAUGHS,
    "deep lists": "a: " + "[" * 3_000 + "]" * 3_000,
    "very deep lists": "[" * 1_000_000,
    "deep mappings": "".join(f"{' ' * depth}a:\n" for depth in range(3_000)),
    "a list as a key": "[a, b]: 1",
    "a mapping as a key": "{a: b}: 1",
    "a long number": f"seed: {'9' * 5_000}",
    "an alias of itself": "&a [*a]",
    "an unknown alias": "[*a]",
    "a set": "!!set {a, b}",
    "bytes": "!!binary aGVsbG8=",
    "an object": "!!python/object/apply:os.system [ls]",
    "twice": "{a: 1, a: 2}",
    "two documents": "a: 1\n---\nb: 2",
    "a word as a truth value": "!!bool ten",
    "a word as a key that is a truth value": "{!!bool ten: 1}",
    "a sign as a number": "!!int +",
    "nothing as a number": "!!float ''",
    "a list as a mapping": "!!map [a, b]",
    "a list of lists as a mapping": "!!map [[a, b]]",
    "a word as a mapping": "!!map ab",
    "a long time": "1:" + "10:" * 3_000 + "10",
    "a long binary number": "-0b" + "1" * 100_000,
}


@pytest.mark.parametrize("text", WRONG.values(), ids=WRONG)
def test_every_wrong_text_has_a_message_of_one_line(text, tmp_path):
    with pytest.raises(YamlError) as caught:
        parse_yaml(text)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 400
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(DataError, match=r"mine\.yaml: is not YAML: "):
        load_experiment(str(path))
    with pytest.raises(ConfigError, match="is not YAML"):
        parse_setting(f"training.max_steps={text}")


@pytest.mark.parametrize("number", ["9" * 6_000, "0x_", "!!int ten", "!!float ten"])
def test_a_number_that_cannot_be_read_is_named_with_its_line(number):
    value = number.split()[-1][:70]
    with pytest.raises(YamlError, match=rf"{value}.*' is not a number that can be read .*line 2") as caught:
        parse_yaml(f"name: arithmetic\ndepth: {number}")
    assert "sys." not in str(caught.value)


def test_dates_are_text():
    assert parse_yaml("[2021-06-07, 2021-06-07 10:00:00]") == ["2021-06-07", "2021-06-07 10:00:00"]


def test_aliases_may_be_used():
    assert parse_yaml("{a: &a [1, 2], b: *a, c: &c {d: *a}, e: *c}")["e"] == {"d": [1, 2]}


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("task.depth=deep", "needs a whole number or null for --depth .*, not 'deep'"),
        ("task.depth=1.5", "not 1.5"),
        ("task.depth=true", "not True"),
        ("task.depth=2021-01-01", "not '2021-01-01'"),
        ("task.data_dir=7", "needs text or a path or null for --data-dir .*, not 7"),
        ("task.published=1", "needs true or false"),
        (f"task.depth={'9' * 4000}", "a whole number or null for --depth .*, not a number of"),
        (f"seed={'9' * 4000}", "seed is a number of 13288 bits: input should be less than"),
        ("training.max_steps=9999999999999", "less than or equal to 2147483647"),
        ("training.learning_rate=.inf", "finite number"),
        ("training.max_steps=[[1, 2], {a: b}]", r"max_steps is \[\[1, 2\], \{'a': 'b'\}\]"),
        ("description=[a]", "description is"),
    ],
)
def test_a_wrong_value_is_named(setting, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_experiment("arithmetic/soft", [setting])
    assert len(str(caught.value)) < 400


def test_a_path_that_is_a_number(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("{task: {name: own, path: data.tsv}, training: {max_steps: 1}}")
    with pytest.raises(UsageError, match=r"needs text or a path for --path .*, not 7"):
        load_experiment(str(path), ["task.path=7"])


def test_messages_abbreviate_what_they_show():
    value = ["x"]
    for _ in range(50):
        value = [value, value, value]
    assert len(excerpt(value)) <= 80
    assert len(excerpt({"a": "b" * 10_000})) <= 100
    assert len(excerpt(-(10**10_000))) <= 80
