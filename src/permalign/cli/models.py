"""``permalign models``: list the models that come with permalign, or show the card of a model."""

from typing import TYPE_CHECKING, Annotated

import typer

from permalign.cli.error_messages import report_errors
from permalign.cli.formatting import print_columns, with_examples
from permalign.cli.printing import echo
from permalign.errors import DataError

if TYPE_CHECKING:
    from pathlib import Path

HELP = with_examples(
    "List the small trained models that come with permalign, each with a sentence to try. With the name of one of "
    "them, or with the folder of a run, show its card: data, options, scores, command and licence.",
    "models",
    "models dates",
    "models runs/soft",
    'explain dates "12 march 2021"',
    "serve",
)


@report_errors()
def models(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="A model that comes with permalign, or a folder.")
    ] = None,
) -> None:
    """Print the list of models, or one card."""
    from permalign.models.bundled import bundled_folder, bundled_names, find_model_folder

    if name is not None:
        _print_card(find_model_folder(name))
        return
    rows = [("MODEL", "SIZE", "TASK", "A SENTENCE TO TRY")]
    for known in bundled_names():
        folder = bundled_folder() / known
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        rows.append((known, f"{size / 1000:.0f} kB", _description(folder), f'"{_first_sentence(folder)}"'))
    print_columns(rows)
    echo(
        "\nSee one with `permalign explain MODEL SENTENCE`, or all of them in a browser with `permalign serve`."
    )


def _print_card(folder: "Path") -> None:
    from permalign.training.model_card import CARD, read_scores

    cards = [path for path in (folder / CARD, folder / "model" / CARD) if path.is_file()]
    if not cards:
        raise DataError(f"has no card ({CARD}); expected a run, or a model that was saved by one.", folder)
    echo(cards[0].read_text(encoding="utf-8").partition("---\n\n")[2].strip() or cards[0].read_text("utf-8"))
    scores = read_scores(folder / "predictions")
    if scores:
        echo("\n## Evaluations\n")
        print_columns(
            [
                (split, metric.replace("_", " "), f"{value:.1f}")
                for split, metrics in scores.items()
                for metric, value in metrics.items()
            ]
        )


def _description(folder: "Path") -> str:
    from permalign.training.experiments import load_saved_options

    options = load_saved_options(folder / "config.yaml")
    return options.make_task().description.partition(";")[0]


def _first_sentence(folder: "Path") -> str:
    return (folder / "examples.txt").read_text(encoding="utf-8").partition("\n")[0]
