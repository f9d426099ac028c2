"""``permalign doctor``: examine the installation."""

import json
from dataclasses import asdict
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import with_examples
from permalign.cli.printing import echo

HELP = with_examples(
    "Examine the installation: versions, threads, compiled kernels, extras, plug-ins and data, and what to do.\n\n"
    "From Python: print(permalign.doctor()).",
    "doctor",
    "doctor --json | jq .findings.versions",
)


@report_errors()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Print what was found."""
    from permalign.diagnosis import doctor

    diagnosis = doctor()
    echo(json.dumps(asdict(diagnosis), indent=2) if as_json else diagnosis)
