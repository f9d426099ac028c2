"""The options of all tasks, said once and shared by every command that takes a task."""

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
            help="Folder with one folder for each dataset [default: $PERMALIGN_DATA, else the cache]."
        ),
    ],
    "language": Annotated[str | None, typer.Option(help="geoquery: en, de, zh, or any whose file is there.")],
    "write_all": Annotated[
        bool | None, typer.Option("--write-all", help="geoquery: keep `all` in programs.")
    ],
    "notation": Annotated[str | None, typer.Option(help="arithmetic: postfix or prefix [default: postfix].")],
    "depth": Annotated[
        int | None, typer.Option(help="arithmetic: add a test split of this derivation depth.")
    ],
    "published": Annotated[
        bool | None, typer.Option("--published", help="arithmetic: read the authors' files, generate less.")
    ],
    "path": Annotated[Path | None, typer.Option(help="own: a .jsonl or .tsv file, or a folder of them.")],
    "source_column": Annotated[str | None, typer.Option(help="own: what a model reads [default: source].")],
    "target_column": Annotated[str | None, typer.Option(help="own: what it should write [default: target].")],
    "source_file": Annotated[Path | None, typer.Option(help="aligned, zh-en: text, one sentence a line.")],
    "target_file": Annotated[
        Path | None, typer.Option(help="aligned, zh-en: its translation, line by line.")
    ],
    "shortest": Annotated[int | None, typer.Option(help="aligned, zh-en: leave out shorter pairs.", min=1)],
    "max_length": Annotated[
        int | None,
        typer.Option(help="aligned, zh-en: leave out longer pairs; arithmetic: with --depth, too.", min=1),
    ],
    "longest_in_train": Annotated[
        int | None, typer.Option(help="aligned, zh-en, own: longer pairs are for the len split.", min=1)
    ],
    "dev_size": Annotated[
        int | None, typer.Option(help="aligned, zh-en, own: size of the drawn iid/dev.", min=0)
    ],
    "test_size": Annotated[
        int | None, typer.Option(help="aligned, zh-en, own: size of the drawn iid/test.", min=0)
    ],
    "seed": Annotated[int | None, typer.Option(help="What is drawn at random follows from it [default: 0].")],
}


def takes_task(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the argument TASK and every task's options in place of its parameter ``task``.

    Only the options that were given are handed to the task, so that each task keeps its own defaults and
    refuses what it does not know.
    """
    signature = inspect.signature(command)

    def with_options(task: str, **values: Any) -> None:
        given = {name: values.pop(name) for name in TASK_OPTIONS}
        chosen = {name: value for name, value in given.items() if value is not None}
        command(get_task(task, **chosen), **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    name = Annotated[str, typer.Argument(metavar="TASK", help="A name from `permalign data list`.")]
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
