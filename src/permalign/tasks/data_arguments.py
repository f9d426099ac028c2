"""Tell which data is meant by arguments of the command line: a file, two aligned files, a folder or ``hf:NAME``."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from permalign.errors import UsageError, unknown_name
from permalign.plugins import TASKS
from permalign.tasks.hub_datasets import PREFIX
from permalign.tasks.record_files import is_record_file
from permalign.tasks.translation import Aligned
from permalign.tasks.user_data import UserData


def is_data(argument: str) -> bool:
    """Whether an argument names data of the user, and not a task, an experiment or a YAML file."""
    if argument.startswith(PREFIX) or is_record_file(argument):
        return True
    return Path(argument).exists() and not argument.endswith((".yaml", ".yml"))


def describe_data(arguments: Sequence[str]) -> dict[str, object]:
    """The name and the options of the task that reads the user's data.

    >>> describe_data(["pairs.tsv"]), describe_data(["train.en", "train.de"])["name"]
    ({'name': 'own', 'path': 'pairs.tsv'}, 'aligned')

    Raises:
        UsageError: there are more than two files.
    """
    if len(arguments) == 1:
        return {"name": UserData.name, "path": arguments[0]}
    if len(arguments) == 2:
        return {"name": Aligned.name, "source_file": arguments[0], "target_file": arguments[1]}
    raise UsageError(
        "expected one file of pairs, two aligned files (sources and targets), a folder with train, dev and test, or "
        f"hf:NAME, but found {len(arguments)} of them."
    )


def describe_task(arguments: Sequence[str], options: Mapping[str, object]) -> dict[str, object]:
    """The name and the options of a task that is given by its name or by its data.

    Raises:
        UsageError: there is neither such a task nor such a file.
    """
    if len(arguments) == 1 and arguments[0] in TASKS:
        return {"name": arguments[0], **options}
    for argument in arguments:
        if not is_data(argument):
            raise UsageError(unknown_name("task or file", argument, TASKS))
    return {**describe_data(arguments), **options}


def short_name(argument: str) -> str:
    """A name for data or for an experiment, from which the names of folders and files are made.

    >>> [short_name(name) for name in ("../data/pairs.tsv.gz", "train.en", "hf:owner/pairs", "geoquery/soft")]
    ['pairs', 'train.en', 'owner-pairs', 'geoquery-soft']
    """
    if is_record_file(argument):
        return Path(argument).name.removesuffix(".gz").rpartition(".")[0]
    if argument.startswith(PREFIX) or not Path(argument).exists():
        return argument.removeprefix(PREFIX).removesuffix(".yaml").replace("/", "-").replace(":", "-")
    path = Path(argument).absolute()
    return path.stem if path.suffix in (".yaml", ".yml") else path.name.removesuffix(".gz")
