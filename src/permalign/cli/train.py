"""``permalign train``: train a named experiment or a YAML file, or go on with a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors

if TYPE_CHECKING:
    from permalign.training.state import Progress

HELP = """Train a model, and write all about it into a folder.

NAME is an experiment that ships with permalign (--list shows them), or a YAML file that says what differs from the
defaults. Ctrl-C saves the run; --resume goes on with it exactly where it stopped.

\b
Examples:
  permalign train --list
  permalign train arithmetic/soft
  permalign train arithmetic/soft --set training.max_steps=200 --set model.head.embedding_dim=64 --run runs/wide
  permalign train my-experiment.yaml --seed 2
  permalign train --resume runs/wide
  accelerate launch -m permalign.cli train geoquery/ssnt --set task.language=de
"""


@report_errors()
def train(
    name: Annotated[str | None, typer.Argument(metavar="[NAME|FILE]", help="What to train.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="OPTION=VALUE", help="Change an option, such as training.max_steps=200."
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to write [default: runs/NAME-seed-SEED].", file_okay=False),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Go on with a run.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Begin anew if the folder holds a run.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="The same as --set seed=SEED.", min=0)] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Train, or list what there is to train."""
    if show_list:
        _print_list()
    elif resume is not None:
        if name or settings or run or overwrite or seed is not None:
            raise typer.BadParameter("a run is resumed as it was begun; give --resume RUN alone.")
        _resume(resume)
    elif name is None:
        raise typer.BadParameter("give the NAME of an experiment (--list shows them) or a YAML file.")
    else:
        _train(name, [*(settings or []), *([] if seed is None else [f"seed={seed}"])], run, overwrite)


def _train(name: str, settings: list[str], run: Path | None, overwrite: bool) -> None:
    from permalign.training.experiments import load_experiment

    options = load_experiment(name, settings)  # says what is wrong before torch is there
    run = run or Path(
        "runs", f"{Path(name).with_suffix('').as_posix().replace('/', '-')}-seed-{options.seed}"
    )
    from permalign.training.launch import train

    with _way_on(run):
        _print_end(run, train(options, run, overwrite=overwrite))


def _resume(run: Path) -> None:
    from permalign.training.launch import resume

    with _way_on(run):
        _print_end(run, resume(run))


@contextmanager
def _way_on(run: Path) -> Iterator[None]:
    """After an interruption, say how to go on."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if _is_main_process():
            typer.echo(_what_is_saved(run, interrupt), err=True)
        raise


def _what_is_saved(run: Path, interrupt: KeyboardInterrupt) -> str:
    """What an interruption has left, and the command that takes it up."""
    from permalign.training.interrupt_handler import SavedInterrupt
    from permalign.training.state import last_saved_step

    if not (run / "config.yaml").exists():
        return "Nothing was saved."
    if isinstance(interrupt, SavedInterrupt):
        of = "" if interrupt.run == run else f" of {interrupt.run}"
        saved = f"Saved at step {interrupt.step}{of}."
    elif (step := last_saved_step(run)) is not None:
        saved = f"Stopped at once; the last saved step is {step}."
    else:
        saved = "Nothing was saved; it will begin anew."
    return f"{saved} Go on with: permalign train --resume {run}"


def _is_main_process() -> bool:
    from accelerate import PartialState

    return bool(PartialState().is_main_process)


def _print_end(run: Path, progress: "Progress") -> None:
    if not _is_main_process():
        return
    step, score = progress.kept[0]
    typer.echo(f"Finished: {progress.finished}. Best on dev: {score:.2f}, at step {step}.", err=True)
    typer.echo(run / "model")


def _print_list() -> None:
    from permalign.training.experiments import describe_experiments

    described = describe_experiments()
    width = max(map(len, described))
    for name, description in described.items():
        typer.echo(f"{name:{width}}  {description}")
