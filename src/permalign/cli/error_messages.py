"""Errors as messages without stack traces, and meaningful exit codes."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer

from permalign.errors import PermalignError, UsageError

INTERRUPTED = 130
BROKEN_PIPE = 141


@contextmanager
def report_errors() -> Iterator[None]:
    """Print errors that a user can fix as messages without a stack trace; every command is decorated with it.

    Wrong usage exits with code 2, any other error that a user can fix with 1. Ctrl-C, and a reader that closes the
    pipe (``| head``), exit with the codes that shells use.
    """
    try:
        if sys.stdout is None:
            raise PermalignError("standard output is closed, so results cannot be written.")
        yield
        sys.stdout.flush()
    except UsageError as error:
        raise typer.BadParameter(str(error)) from None
    except PermalignError as error:
        typer.echo(f"permalign: {error}", err=True)
        raise typer.Exit(1) from None
    except KeyboardInterrupt:
        typer.echo("permalign: interrupted", err=True)
        raise typer.Exit(INTERRUPTED) from None
    except BrokenPipeError:
        _discard_pending_output()
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        _discard_pending_output()
        typer.echo(f"permalign: {error.filename or 'standard output'}: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def _discard_pending_output() -> None:
    """Redirect standard output, because Python flushes it once more at exit, which would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
