import pytest

from permalign.errors import UsageError
from permalign.plugins import TASKS
from permalign.tasks.base import Task
from permalign.tasks.registry import get_task, load_task_class, task_options


def test_every_task_says_what_it_is():
    for name in TASKS:
        task = load_task_class(name)
        assert issubclass(task, Task)
        assert task.name == name
        assert task.description
        assert task.metric


def test_options_are_the_parameters_of_the_class():
    assert task_options("en-ja") == {"data_dir": False}
    assert task_options("aligned")["source_file"] is True
    assert task_options("aligned")["seed"] is False


def test_a_task_is_made_without_its_data(tmp_path):
    assert get_task("en-ja", data_dir=tmp_path).splits[0] == "iid/train"


@pytest.mark.parametrize(
    ("name", "options", "words"),
    [
        ("tatoba", {}, "unknown task 'tatoba'; did you mean 'tatoeba'?"),
        ("???", {}, "unknown task '???'. Choose from: "),
        (
            "en-ja",
            {"depth": 3},
            "the task en-ja has no option --depth (task.depth in a config); choose from: data_dir.",
        ),
        ("zh-en", {"source_file": "x"}, "the task zh-en needs --target-file (task.target_file in a config)."),
        (
            "aligned",
            {},
            "the task aligned needs --source-file (task.source_file in a config) and --target-file",
        ),
    ],
)
def test_a_wrong_choice_says_what_there_is(name, options, words):
    with pytest.raises(UsageError) as caught:
        get_task(name, **options)
    assert words in str(caught.value)


@pytest.mark.parametrize("name", [name for name in TASKS if True not in task_options(name).values()])
def test_every_split_of_every_task_has_examples(name, data_dir):
    task = get_task(name, **({"data_dir": data_dir} if "data_dir" in task_options(name) else {}))
    for split in task.splits:
        examples = task.examples(split)
        assert examples
        assert len({example.id for example in examples}) == len(examples)
        assert all(example.source and example.target for example in examples)
    with pytest.raises(ValueError, match="iid/trian"):
        task.examples("iid/trian")
