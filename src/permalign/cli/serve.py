"""``permalign serve``: the explorer, a page that shows what models do with a sentence."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.errors import PermalignError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

HELP = """Open the explorer: type a sentence and see its tree, its words on their way to a new order, and the
segments they become; compare two runs, slide between samples, step through a run's checkpoints.

It answers to this machine alone, unless --host says otherwise; it has no accounts and no passwords, so put it
behind something that has before you open it to others. Ctrl-C ends it.

\b
Examples:
  permalign serve runs/geo
  permalign serve runs/remoto runs/ssnt --port 9000
"""


@report_errors()
def serve(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs or saved models.")],
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen at; 0 takes a free one.", min=0, max=65535)
    ] = 8000,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A host name by which browsers may ask, beside localhost."),
    ] = None,
    longest: Annotated[int, typer.Option(help="Sentences may have so many words.", min=1, max=500)] = 60,
) -> None:
    """Serve the explorer until interrupted."""
    _require_extra()
    from permalign.explain.server.listening import bind, listen

    listening = bind(host, port)  # before models are loaded: a port that is taken is said at once
    application = _application(runs, longest, tuple(allow_host or ()))

    def ready(address: str) -> None:
        typer.echo(f"permalign: the explorer is at {address} (Ctrl-C ends it)", err=True)

    listen(application, listening, ready)


def _require_extra() -> None:
    try:
        import fastapi  # noqa: F401
        import pydantic  # noqa: F401
        import uvicorn  # noqa: F401
    except ModuleNotFoundError as error:
        raise PermalignError(f'permalign serve needs {error.name}: pip install "permalign[serve]".') from None


def _application(runs: list[Path], longest: int, hosts: tuple[str, ...]) -> "ASGIApp":
    from permalign.explain.server.application import application
    from permalign.explain.server.limits import Limits
    from permalign.explain.server.served_runs import find_runs

    return application(find_runs(runs), Limits(words=longest), hosts)
