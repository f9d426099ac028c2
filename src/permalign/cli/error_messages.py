"""Print errors as messages without stack traces, and set exit codes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from errno import EACCES, EROFS
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperGroup

from permalign.cli.printing import echo, printable
from permalign.errors import PermalignError, UsageError

INTERRUPTED = 130
BROKEN_PIPE = 141
NOT_WRITABLE = ". Choose a folder that can be written to, with --run, --out or --output."

OPTIONAL_MODULES = frozenset(
    [
        "accelerate",
        "fastapi",
        "filelock",
        "huggingface_hub",
        "matplotlib",
        "optuna",
        "pooch",
        "pydantic",
        "pydantic_core",
        "rich",
        "sacrebleu",
        "safetensors",
        "scipy",
        "tensorboard",
        "tokenizers",
        "uvicorn",
        "yaml",
    ]
)
"""The modules that come with an extra of the command line; if another one is missing, something is broken."""


WrongUsage: Any = typer.BadParameter.__mro__[1]
"""The exception of click for wrong usage; depending on its version, Typer imports click or has a copy of it."""


class OneLineErrors(TyperGroup):
    """A group of commands that reports wrong usage in one line, as every other error, where click prints three."""

    def make_context(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        with _report_wrong_usage():
            return super().make_context(*args, **kwargs)

    def invoke(self, *args: Any, **kwargs: Any) -> Any:  # noqa: D102
        with _report_wrong_usage():
            return super().invoke(*args, **kwargs)


@contextmanager
def _report_wrong_usage() -> Iterator[None]:
    try:
        yield
    except WrongUsage as error:
        if type(error).__name__ == "NoArgsIsHelpError":  # no error: it prints the help
            raise
        echo(f"permalign: {_describe_usage_error(error)}", err=True)
        raise typer.Exit(error.exit_code) from None
    except BrokenPipeError:
        raise
    except OSError as error:  # of the help or the version; commands report their own errors
        _report_os_error(error)
        raise typer.Exit(1) from None


def _describe_usage_error(error: Any) -> str:
    """The message of an error in one line, with a pointer to the help if click found the error and not a command."""
    if type(error) is typer.BadParameter and error.param is None and error.param_hint is None:
        return " ".join(str(error.message).split())
    message = " ".join(error.format_message().replace("Value error, ", "").split())
    if possibilities := getattr(error, "possibilities", None):  # of an option that does not exist
        nearest = get_close_matches(error.option_name, possibilities, n=1)
        message = f"{error.message}; did you mean {nearest[0]}?" if nearest else error.message
    end = "" if message.endswith((".", "?")) else "."
    pointer = f" See {error.ctx.command_path} --help." if error.ctx is not None else ""
    return f"{message[:1].lower()}{message[1:]}{end}{pointer}"


@contextmanager
def report_errors(extra: str = "training") -> Iterator[None]:
    """Print errors that a user can fix as messages without a stack trace; all commands have this decorator.

    The exit code is 2 for wrong usage and 1 for any other error that a user can fix. After Ctrl-C, or if the reader of
    the output closes the pipe (``| head``), it is the code that shells use.

    Args:
        extra: the extra that installs all that the command needs.
    """
    try:
        if sys.stdout is None:
            raise PermalignError("standard output is closed, so results cannot be written.")
        yield
        sys.stdout.flush()
    except UsageError as error:
        raise typer.BadParameter(printable(str(error), err=True)) from None
    except PermalignError as error:
        echo(f"permalign: {error}", err=True)
        raise typer.Exit(1) from None
    except ModuleNotFoundError as error:
        module = (error.name or "").partition(".")[0]
        if module not in OPTIONAL_MODULES:
            raise
        echo(f'permalign: this command needs {module}: pip install "permalign[{extra}]".', err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        echo("permalign: interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _discard_pending_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        _report_os_error(error)
        raise typer.Exit(1) from None


def _report_os_error(error: OSError) -> None:
    _discard_pending_output()
    hint = NOT_WRITABLE if _could_not_be_written(error) else ""
    echo(f"permalign: {error.filename or 'standard output'}: {error.strerror}{hint}", err=True)


def _could_not_be_written(error: OSError) -> bool:
    """Whether a file or folder could not be made; one that is there may also have been forbidden to read."""
    if error.errno == EACCES and isinstance(error.filename, str | Path):
        return not Path(error.filename).is_file()
    return error.errno == EROFS


def _discard_pending_output() -> None:
    """Redirect standard output, because Python flushes it once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
