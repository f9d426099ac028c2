"""How the command line ends: in plain words and with an exit code that means something."""

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
    """Turn what a user can mend into a message without a stack trace; used to decorate each command.

    A wrong choice is an error of the command line (exit code 2), anything else a user can mend is 1. A reader
    that has seen enough (``| head``) and Ctrl-C end the program silently, with the codes a shell gives them.
    """
    try:
        if sys.stdout is None:
            raise PermalignError("standard output is closed; there is nowhere to write to.")
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
        _write_the_rest_nowhere()
        raise typer.Exit(BROKEN_PIPE) from None
    except OSError as error:
        _write_the_rest_nowhere()
        typer.echo(f"permalign: {error.filename or 'standard output'}: {error.strerror}", err=True)
        raise typer.Exit(1) from None


def _write_the_rest_nowhere() -> None:
    """Python flushes once more when it ends, and must find something that takes the rest."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
