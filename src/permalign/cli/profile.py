"""``permalign profile``: measure where the time of a training step goes."""

import json
from pathlib import Path
from typing import Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.evaluate import Device
from permalign.cli.formatting import print_columns, with_examples
from permalign.cli.printing import echo

HELP = with_examples(
    "Measure where the time of a training step goes, and say what would help.\n\n"
    "Some steps are trained with the options and the model of a run, which is not changed. The time of the evaluations "
    "on dev is divided among the steps between them.",
    "profile runs/soft",
    "profile runs/soft --steps 50 --json",
)


@report_errors()
def profile(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run that `permalign train` wrote.")],
    steps: Annotated[int, typer.Option(min=1, help="Number of steps to measure.")] = 10,
    device: Device = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the time of each section, and the advice."""
    from permalign.training.profiling import profile

    measured = profile(run, steps, device)
    if as_json:
        record = {"seconds": measured.seconds, "tokens_per_second": measured.tokens_per_second}
        echo(json.dumps({**record, "advice": measured.advice}))
        return
    rows = [
        (name, f"{1000 * seconds:.1f}", f"{seconds / measured.total:.0%}")
        for name, seconds in [*measured.seconds.items(), ("total", measured.total)]
    ]
    print_columns([("SECTION", "MS PER STEP", "SHARE"), *rows], numbers_from=1)
    echo(f"\n{measured.tokens_per_second:.0f} tokens per second in training")
    for sentence in measured.advice or ("Nothing stands out.",):
        echo(f"- {sentence}")
