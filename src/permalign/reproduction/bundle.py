"""Train the models that come with the package, and put them into it: ``make models``.

Each model is a run of an experiment that ships with the package, as it is, with seed 0. The same versions of packages
on the same processor give the same files.
"""

import argparse
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

from permalign.evaluation.prediction_files import prediction_line
from permalign.files import atomic_folder, remove_folder, write_lines, write_text
from permalign.models.bundled import bundled_folder
from permalign.training.experiments import load_experiment
from permalign.training.launch import resume, train
from permalign.training.model_card import CARD, model_card
from permalign.training.trained_run import DecodingSettings, TrainedRun

NUM_PREDICTIONS = 60
"""How many predictions of each split are kept, for the explorer."""


@dataclass(frozen=True)
class Bundle:
    """A model that comes with the package.

    Attributes:
        experiment: the experiment that trains it.
        splits: the splits whose scores are in its card.
        examples: sentences that the explorer offers.
        limits: what its card says about what it cannot do.
    """

    experiment: str
    splits: tuple[str, ...]
    examples: tuple[str, ...]
    limits: str


BUNDLES = {
    "arithmetic": Bundle(
        "arithmetic/labelled",
        ("iid/test", "len/test"),
        (
            "( 2 * ( 8 - 5 ) )",
            "( ( 1 + 2 ) * 3 )",
            "( ( 7 / 1 ) - ( 4 + 2 ) )",
            "( 2 * ( 8 + ( 1 + ( 0 - 5 ) ) ) )",
        ),
        "Every operation needs its parentheses, and numbers have one digit.",
    ),
    "dates": Bundle(
        "dates/copying",
        ("iid/test", "year/test"),
        (
            "12 march 2021",
            "march 12 , 2021",
            "the 3rd of may 1999",
            "friday , 12 march 2021",
            "3 / 12 / 2021",
            "31 december 1945",
        ),
        "It knows twelve ways of writing a date, in lower case, with spaces between all tokens. Its training data has "
        "only the years 1950 to 2049; other words, such as the years of year/test, can only be copied.",
    ),
    "scan-sp": Bundle(
        "scan/labelled",
        ("len/test",),
        (
            "jump twice",
            "jump twice after walk around left",
            "walk left and run thrice",
            "look around right thrice after turn opposite left twice",
        ),
        "It knows the 13 words of SCAN, in lower case.",
    ),
}


def make_bundle(name: str, runs: Path) -> Path:
    """Train a model in a folder of runs, unless it is trained already, and put it into the package."""
    bundle, run = BUNDLES[name], runs / name
    if (run / "config.yaml").exists():
        resume(run)
    else:
        train(load_experiment(bundle.experiment), run)
    trained = TrainedRun(run)
    environment = json.loads((run / "environment.json").read_text("utf-8"))
    environment["command"] = ["permalign", "train", bundle.experiment]
    target = bundled_folder() / name
    if target.exists():
        remove_folder(target)
    with atomic_folder(target) as folder:
        shutil.copyfile(run / "config.yaml", folder / "config.yaml")
        shutil.copytree(run / "model", folder / "model")
        write_lines(folder / "examples.txt", bundle.examples)
        scores = {}
        for split in bundle.splits:
            report = trained.evaluate(split, DecodingSettings())
            scores[split] = report.metrics
            kept = report.predictions[:NUM_PREDICTIONS]
            write_lines(folder / "predictions" / f"{split}.jsonl", map(prediction_line, kept))
        card = model_card(trained.options, environment, scores)
        write_text(folder / "model" / CARD, with_limits(card, bundle.limits))
    return target


def with_limits(card: str, limits: str) -> str:
    """Insert a section on limits after the scores of a card."""
    return card.replace("\n## Options", f"\n## Limits\n\n{limits}\n\n## Options", 1)


def main() -> None:
    """Make all models, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(BUNDLES), metavar="NAME")
    parser.add_argument("--runs", type=Path, default=Path("runs/bundle"), help="folder for the training runs")
    arguments = parser.parse_args()
    for name in arguments.names:
        print(make_bundle(name, arguments.runs))


if __name__ == "__main__":
    main()
