"""The command-line options of all tasks, shared by every command that takes a task."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from permalign.tasks.registry import get_task

TASK_OPTIONS: dict[str, Any] = {
    "data_dir": Annotated[
        Path | None,
        typer.Option(
            help="Data folder, with a subfolder per dataset [default: $PERMALIGN_DATA, else the cache]."
        ),
    ],
    "language": Annotated[
        str | None,
        typer.Option(help="geoquery: language of the questions, such as en, de or zh [default: en]."),
    ],
    "write_all": Annotated[
        bool | None, typer.Option("--write-all", help="geoquery: write the constant `all` in programs.")
    ],
    "notation": Annotated[
        str | None,
        typer.Option(help="arithmetic: notation of the output, postfix or prefix [default: postfix]."),
    ],
    "depth": Annotated[
        int | None, typer.Option(help="arithmetic: add a test split of this derivation depth.")
    ],
    "published": Annotated[
        bool | None,
        typer.Option("--published", help="arithmetic: read the IID splits from the authors' files."),
    ],
    "path": Annotated[Path | None, typer.Option(help="own: a .jsonl or .tsv file, or a folder of them.")],
    "source_column": Annotated[
        str | None, typer.Option(help="own: name of the column with sources [default: source].")
    ],
    "target_column": Annotated[
        str | None, typer.Option(help="own: name of the column with targets [default: target].")
    ],
    "source_file": Annotated[
        Path | None, typer.Option(help="aligned, zh-en: file of sources, with one sentence per line.")
    ],
    "target_file": Annotated[
        Path | None, typer.Option(help="aligned, zh-en: file of targets, with one sentence per line.")
    ],
    "min_length": Annotated[int | None, typer.Option(help="aligned, zh-en: leave out shorter pairs.", min=1)],
    "max_length": Annotated[
        int | None,
        typer.Option(
            help="aligned, zh-en: leave out longer pairs; arithmetic: largest length with --depth.", min=1
        ),
    ],
    "max_train_length": Annotated[
        int | None,
        typer.Option(
            help="aligned, zh-en, own: largest length of training examples under the condition len.", min=1
        ),
    ],
    "dev_size": Annotated[
        int | None, typer.Option(help="aligned, zh-en, own: number of iid/dev examples.", min=0)
    ],
    "test_size": Annotated[
        int | None, typer.Option(help="aligned, zh-en, own: number of iid/test examples.", min=0)
    ],
    "seed": Annotated[
        int | None, typer.Option(help="Seed of random splits and of generated data [default: 0].")
    ],
}


def takes_task(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: replace its parameter ``task`` by the argument TASK and the options of all tasks.

    Only options that are given on the command line are passed to the task, so that each task has its own defaults, and
    rejects options that it does not have.
    """
    signature = inspect.signature(command)

    def with_options(task: str, **values: Any) -> None:
        given = {name: values.pop(name) for name in TASK_OPTIONS}
        chosen = {name: value for name, value in given.items() if value is not None}
        command(get_task(task, **chosen), **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    name = Annotated[str, typer.Argument(metavar="TASK", help="Name of a task; see `permalign data list`.")]
    parameters = [
        inspect.Parameter("task", keyword, annotation=name),
        *(
            parameter.replace(kind=keyword)
            for parameter in signature.parameters.values()
            if parameter.name != "task"
        ),
        *(
            inspect.Parameter(option, keyword, default=None, annotation=annotation)
            for option, annotation in TASK_OPTIONS.items()
        ),
    ]
    with_options.__name__ = command.__name__
    with_options.__doc__ = command.__doc__
    with_options.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return with_options
