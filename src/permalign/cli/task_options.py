"""The command-line options of all tasks, shared by every command that takes a task or the user's own data."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from permalign.tasks.data_arguments import describe_task
from permalign.tasks.registry import get_task

SOURCE_COLUMN_HELP = (
    "Own data: name of the column with sources [default: source, or a usual name]; A,B joins columns."
)
TARGET_COLUMN_HELP = "Own data: name of the column with targets [default: target, or a usual name]."

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
    "path": Annotated[
        Path | None, typer.Option(help="own: a .tsv, .csv or .jsonl file, a folder, or hf:NAME.")
    ],
    "source_column": Annotated[str | None, typer.Option(metavar="NAME", help=SOURCE_COLUMN_HELP)],
    "target_column": Annotated[str | None, typer.Option(metavar="NAME", help=TARGET_COLUMN_HELP)],
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
    "names": Annotated[
        str | None,
        typer.Option(help="geoquery: where the names for entity linking come from, geobase or list."),
    ],
    "fold_umlauts": Annotated[
        bool | None,
        typer.Option(help="geoquery: write the umlauts of questions as plain vowels [default: no]."),
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
    """Decorate a command: replace its parameter ``task`` by arguments and by the options of all tasks.

    The arguments are the name of a task, or the user's own data. If the command has a parameter ``split``, the last
    argument is its value unless it is a file; without it, the split is None. Only options that are given on the command
    line are passed to the task, so that each task has its own defaults, and rejects options that it does not have.
    """
    signature = inspect.signature(command)
    takes_split = "split" in signature.parameters

    def with_options(data: list[str], **values: Any) -> None:
        given = {name: values.pop(name) for name in TASK_OPTIONS}
        chosen = {name: value for name, value in given.items() if value is not None}
        if takes_split:
            has_split = len(data) > 1 and not Path(data[-1]).is_file()
            values["split"] = data[-1] if has_split else None
            data = data[:-1] if has_split else data
        described: dict[str, Any] = describe_task(data, chosen)
        command(get_task(**described), **values)

    keyword = inspect.Parameter.KEYWORD_ONLY
    help_text = (
        "Name of a task (see `permalign data list`); or your own data: a .tsv, .csv or .jsonl file (also .gz), two "
        "aligned files, a folder with train, dev and test, or hf:NAME, a dataset of Hugging Face."
    )
    if takes_split:
        help_text += " Then the name of a split, such as iid/train or len/test [default: the first]."
    metavar = "TASK|DATA... [SPLIT]" if takes_split else "TASK|DATA..."
    arguments = Annotated[list[str], typer.Argument(metavar=metavar, help=help_text)]
    parameters = [
        inspect.Parameter("data", keyword, annotation=arguments),
        *(
            parameter.replace(kind=keyword)
            for parameter in signature.parameters.values()
            if parameter.name not in ("task", "split")
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
