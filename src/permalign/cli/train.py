"""``permalign train``: train a model, or resume a run."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.evaluate import Device
from permalign.cli.run_arguments import (
    Data,
    Names,
    Recipe,
    SourceColumn,
    TargetColumn,
    column_settings,
    load_candidates,
    run_name,
)
from permalign.tasks.data_arguments import is_data

if TYPE_CHECKING:
    from permalign.options.run import RunOptions
    from permalign.training.state import Progress

HELP = """Train a model, and write the run (model, checkpoints, metrics, predictions) to a folder.

Give it your own data (a .tsv, .csv or .jsonl file, also .gz; two aligned files; a folder with train, dev and test; or
hf:NAME, a dataset of Hugging Face), and it chooses a model that suits the data, and says why. Or name an experiment
that ships with permalign (see --list), or a YAML file with the options that differ from the defaults; --data trains
either of them on other data, whose tokens are chosen unless the experiment or --set says what they are. Ctrl-C saves
the run, and --resume continues it exactly where it stopped.

\b
Examples:
  permalign train pairs.tsv
  permalign train questions.csv --source-column question --target-column sql --recipe exact
  permalign train train.en train.de --recipe hard --set text.source.min_frequency=2
  permalign train geoquery/soft --data pairs.tsv
  permalign train --list
  permalign train arithmetic/soft
  permalign train arithmetic/soft --set training.max_steps=200 --set model.head.embedding_dim=64 --run runs/wide
  permalign train my-experiment.yaml --seed 2
  permalign train geoquery/ssnt --device cuda:1 --set training.precision=bf16
  permalign train --resume runs/wide
  accelerate launch -m permalign train geoquery/ssnt --set task.language=de
"""


@report_errors()
def train(
    names: Names = None,
    recipe: Recipe = None,
    data: Data = None,
    source_column: SourceColumn = None,
    target_column: TargetColumn = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="OPTION=VALUE",
            help="Change an option, such as training.max_steps=200; may be repeated.",
        ),
    ] = None,
    run: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR", help="Folder of the run [default: runs/NAME-seed-SEED].", file_okay=False
        ),
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="RUN", help="Resume the run in this folder.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Delete an existing run in the folder, and start again.")
    ] = False,
    device: Device = None,
    seed: Annotated[int | None, typer.Option(help="The same as --set seed=SEED.", min=0)] = None,
    show_list: Annotated[bool, typer.Option("--list", help="List the experiments.")] = False,
) -> None:
    """Train, resume, or list the experiments."""
    if show_list:
        _print_list()
    elif resume is not None:
        if (
            names
            or recipe
            or data
            or source_column
            or target_column
            or settings
            or run
            or overwrite
            or seed is not None
        ):
            raise typer.BadParameter(
                "a run is resumed with the options it was started with; use --resume RUN without other options, except "
                "--device."
            )
        _resume(resume, device)
    else:
        if find_spec("accelerate") is None:  # told before the data is read and described
            raise ModuleNotFoundError(name="accelerate")
        from permalign.options.run import RunOptions

        seeds = [] if seed is None else [f"seed={seed}"]
        given = [*column_settings(source_column, target_column), *seeds, *(settings or [])]
        values = load_candidates(names or [], data or [], recipe, given)
        candidates = {name: RunOptions.parse(of) for name, of in values.items()}
        name, seed = run_name(*(names or []), *(data or [])), next(iter(candidates.values())).seed
        run = run or Path("runs", f"{name}-seed-{seed}")
        progress = _train(candidates, run, overwrite, device)
        if not names or is_data(names[0]):
            _print_advice(run, progress, tried=list(candidates))


def _train(candidates: "dict[str, RunOptions]", run: Path, overwrite: bool, device: str | None) -> "Progress":
    from permalign.training.launch import train

    options = next(iter(candidates.values()))
    with _resume_hint(run):
        progress = train(options, run, candidates=candidates, overwrite=overwrite, device=device)
        _print_end(run, progress)
    return progress


def _print_advice(run: Path, progress: "Progress", tried: list[str]) -> None:
    from permalign.training.recipes import suggest_recipe
    from permalign.training.run_directory import RunDirectory

    step, score = progress.kept[0]
    best_at_end = step == progress.step and progress.waited == 0
    options = RunDirectory(run).read_options()
    advice = suggest_recipe(options, score, tried, best_at_end=best_at_end)
    if _is_main_process() and advice:
        typer.echo(advice, err=True)


def _resume(run: Path, device: str | None) -> None:
    from permalign.training.launch import resume

    with _resume_hint(run):
        _print_end(run, resume(run, device=device))


@contextmanager
def _resume_hint(run: Path) -> Iterator[None]:
    """If training is interrupted, print how to resume the run."""
    try:
        yield
    except KeyboardInterrupt as interrupt:
        if _is_main_process():
            typer.echo(_describe_saved(run, interrupt), err=True)
        raise


def _describe_saved(run: Path, interrupt: KeyboardInterrupt) -> str:
    """What was saved before an interruption, and the command that resumes the run."""
    from permalign.training.interrupt_handler import SavedInterrupt
    from permalign.training.state import last_saved_step

    if not (run / "config.yaml").exists():
        return "Nothing was saved."
    if isinstance(interrupt, SavedInterrupt):
        attempt = "" if interrupt.run == run else f" of {interrupt.run}"
        saved = f"Saved at step {interrupt.step}{attempt}."
    elif (step := last_saved_step(run)) is not None:
        saved = f"Stopped without saving; the last saved step is {step}."
    else:
        saved = "Nothing was saved yet; the run will start from the beginning."
    return f"{saved} Resume with: permalign train --resume {run}"


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
