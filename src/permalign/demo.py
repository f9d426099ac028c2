"""``make demo`` and ``permalign demo``: a model learns arithmetic from nothing, and shows how it reads an expression.

It sees 10,000 expressions such as ``( ( 3 + 4 ) * 2 )`` beside their postfix form, and is then asked about others:
some like them (IID), and some nested deeper than any it has seen (LEN).
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from permalign.evaluation import evaluate
from permalign.models.base import Model
from permalign.models.building import load_model
from permalign.tasks.arithmetic import Arithmetic
from permalign.tasks.base import Example
from permalign.training.experiments import load_experiment
from permalign.training.launch import train
from permalign.training.progress_display import Display

EXPERIMENT = "arithmetic/soft-prefix-sum"
SETTINGS = ("training.evaluate_every=100", "training.max_dev_examples=100")
TESTS = (("iid/test", "like those it learned from"), ("len/test", "deeper than any it has seen"))


def demonstrate(
    run: Path, settings: Sequence[str] = SETTINGS, limit: int | None = None, display: Display | None = None
) -> Iterator[str]:
    """Train a model into a folder and tell, line by line, what it can do.

    Args:
        run: the folder.
        settings: what differs from the experiment.
        limit: of the examples of each test set; None for all.
        display: what shows the training.
    """
    begun = time.monotonic()
    options = load_experiment(EXPERIMENT, settings)
    task = options.make_task()
    yield f"Learning postfix notation from {len(task.examples(options.train)):,} expressions ({EXPERIMENT}):"
    train(options, run, display=display)
    model = load_model(run)
    yield ""
    yield f"Trained in {time.monotonic() - begun:.0f} seconds. Whole outputs right, of expressions it never saw:"
    for split, description in TESTS:
        examples = task.examples(split)[:limit]
        accuracy = evaluate(model, task, examples).metrics["exact_match"]
        yield f"  {split.partition('/')[0].upper()}  {accuracy:6.2f} % of {len(examples):,}, {description}"
    yield ""
    yield from explain(model, unseen_expression())


def unseen_expression() -> Example:
    """The shortest of those nested deeper than any of the training set.

    >>> " ".join(unseen_expression().source)
    '( 2 - ( 3 / ( 4 * ( 6 * 6 ) ) ) )'
    """
    return min(Arithmetic().examples("len/test"), key=lambda example: len(example.source))


def explain(model: Model, example: Example) -> Iterator[str]:
    """How the model reads an expression: straight nodes keep their two parts in order, inverted ones swap them."""
    (answer,) = model.predict([example.source], explain=True)
    yield f"How it reads one of them, of depth {example.meta['depth']}:"
    yield ""
    yield f"  infix    {' '.join(example.source)}"
    yield f"  postfix  {answer.text}"
    if answer.tokens != example.target:
        yield f"  but right would be  {' '.join(example.target)}"
    yield ""
    if answer.explanation is not None:
        yield from (f"  {line}" for line in answer.explanation.draw().splitlines())


def show(run: Path | None = None) -> None:
    """Print it all; without a folder, the model is forgotten afterwards."""
    with TemporaryDirectory() as folder:
        for line in demonstrate(run or Path(folder) / "run"):
            print(line, flush=True)


if __name__ == "__main__":
    show()
