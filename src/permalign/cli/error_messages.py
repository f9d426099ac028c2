"""Print errors as messages without stack traces, and set exit codes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EROFS

import typer

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
        _discard_pending_output()
        hint = NOT_WRITABLE if error.errno == EROFS else ""
        echo(f"permalign: {error.filename or 'standard output'}: {error.strerror}{hint}", err=True)
        raise typer.Exit(1) from None


def _discard_pending_output() -> None:
    """Redirect standard output, because Python flushes it once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
