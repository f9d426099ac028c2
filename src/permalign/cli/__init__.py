"""The command line: it parses arguments and prints results; the work is done elsewhere."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from types import FrameType

from permalign.openmp import thread_warning, use_passive_threads


def main() -> None:
    """Run the command line; the console script ``permalign``."""
    with _counted_interrupts() as interrupts:
        try:
            _main()
        except (KeyboardInterrupt, Exception) as error:
            # While modules are imported; after that, commands report it themselves. A library whose import is
            # interrupted may catch the exception, and fail with another one.
            if not isinstance(error, KeyboardInterrupt) and not interrupts:
                raise
            print("permalign: interrupted", file=sys.stderr)
            sys.exit(130)


@contextmanager
def _counted_interrupts() -> Iterator[list[int]]:
    """A list that grows with every Ctrl-C, unless somebody else handles or ignores it."""
    interrupts: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        interrupts.append(number)
        signal.default_int_handler(number, frame)

    in_main_thread = threading.current_thread() is threading.main_thread()
    if not in_main_thread or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield interrupts
        return
    signal.signal(signal.SIGINT, handle)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _main() -> None:
    use_passive_threads()
    if warning := thread_warning():
        print(f"permalign: {warning}", file=sys.stderr)
    try:
        from permalign.cli.app import app
    except ModuleNotFoundError as error:
        if error.name != "typer":
            raise
        sys.exit('The command line needs typer: pip install "permalign[training]".')
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(encoding="utf-8")  # data is UTF-8, whatever the console's encoding
    app(prog_name="permalign")
