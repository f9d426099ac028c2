"""``permalign serve``: serve the explorer, a web page that shows how models process sentences."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.errors import PermalignError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from permalign.explain.server.limits import Limits

HELP = """Serve the explorer, a web page: type a sentence, and see its tree, how its words are reordered, and the
segments that they become. You can also compare two runs, look at samples, and step through the checkpoints of a run.

By default, the page can be opened on this machine only (see --host). It has no accounts, no passwords and no
encryption: before you open it to others, put it behind a reverse proxy that provides them. Stop the server with Ctrl-C.

\b
Examples:
  permalign serve
  permalign serve runs/geo
  permalign serve runs/remoto runs/ssnt --port 9000
"""


@report_errors("serve")
def serve(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="[RUN]...", help="Folders of runs or saved models [default: the models of permalign]."
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="Port to listen on; 0 for any free port.", min=0, max=65535)
    ] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Also answer requests for this host name, not only for localhost and IP addresses.",
        ),
    ] = None,
    max_length: Annotated[
        int, typer.Option(help="Largest number of words in a sentence.", min=1, max=500)
    ] = 60,
    workers: Annotated[int, typer.Option(help="The number of processes that run models.", min=1, max=64)] = 2,
) -> None:
    """Serve the explorer until interrupted."""
    _require_extra()
    from permalign.explain.server.limits import Limits
    from permalign.explain.server.listening import bind, listen

    listener = bind(host, port)  # before models are loaded, so that a port in use is reported at once
    limits = Limits(max_length=max_length, num_workers=workers)
    application = _build_application(runs or [], limits, tuple(allow_host or ()))

    def ready(address: str) -> None:
        typer.echo(f"permalign: the explorer is at {address} (stop it with Ctrl-C)", err=True)

    listen(application, limits, listener, ready)
    sys.stderr.flush()
    # all has ended, and the interpreter would take torch's objects apart for seconds on a busy machine
    os._exit(0)


def _require_extra() -> None:
    try:
        import fastapi  # noqa: F401
        import pydantic  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise PermalignError(f'permalign serve needs {error.name}: pip install "permalign[serve]".') from None


def _build_application(runs: list[Path], limits: "Limits", allowed_hosts: tuple[str, ...]) -> "ASGIApp":
    from permalign.explain.server.application import application
    from permalign.explain.server.served_runs import find_runs
    from permalign.models.bundled import bundled_names, find_model_folder

    bundled = sorted(bundled_names(), key=lambda name: name != "dates")  # first the one that explains itself
    folders = [find_model_folder(run) for run in runs or bundled]
    return application(find_runs(folders), limits, allowed_hosts)
