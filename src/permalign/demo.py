"""``make demo`` and ``permalign demo``: train a model on arithmetic, and show how it parses an expression.

The model is trained on 10,000 expressions such as ``( ( 3 + 4 ) * 2 )`` with their postfix forms. It is tested on other
expressions of the same depths (IID), and on expressions that are nested more deeply than any in training (LEN).
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from permalign.evaluation import evaluate
from permalign.models.base import Model
from permalign.models.build_model import load_model
from permalign.tasks.arithmetic import Arithmetic
from permalign.tasks.base import Example
from permalign.training.experiments import load_experiment
from permalign.training.launch import train
from permalign.training.progress_display import Display

EXPERIMENT = "arithmetic/soft-prefix-sum"
SETTINGS = ("training.evaluate_every=100", "training.max_dev_examples=100")
TESTS = (("iid/test", "like those in training"), ("len/test", "deeper than any in training"))


def demonstrate(
    run: Path, settings: Sequence[str] = SETTINGS, limit: int | None = None, display: Display | None = None
) -> Iterator[str]:
    """Train a model, evaluate it and explain one prediction; yields the lines to print.

    Args:
        run: the folder of the run.
        settings: changes to the experiment's options.
        limit: the largest number of examples per test set; None for all.
        display: displays the progress of training.
    """
    started = time.monotonic()
    options = load_experiment(EXPERIMENT, settings)
    task = options.make_task()
    yield f"Learning postfix notation from {len(task.examples(options.train)):,} expressions ({EXPERIMENT}):"
    train(options, run, display=display)
    model = load_model(run)
    yield ""
    yield f"Trained in {time.monotonic() - started:.0f} seconds. Exact match on unseen expressions:"
    for split, description in TESTS:
        examples = task.examples(split)[:limit]
        accuracy = evaluate(model, task, examples).metrics["exact_match"]
        yield f"  {split.partition('/')[0].upper()}  {accuracy:6.2f} % of {len(examples):,}, {description}"
    yield ""
    yield from explain(model, unseen_expression())


def unseen_expression() -> Example:
    """The shortest expression that is nested more deeply than any in training.

    >>> " ".join(unseen_expression().source)
    '( 2 - ( 3 / ( 4 * ( 6 * 6 ) ) ) )'
    """
    return min(Arithmetic().examples("len/test"), key=lambda example: len(example.source))


def explain(model: Model, example: Example) -> Iterator[str]:
    """Yield lines that show how the model parses an expression; inverted nodes swap the order of their children."""
    (answer,) = model.predict([example.source], explain=True)
    yield f"How it parses one of them, of depth {example.meta['depth']}:"
    yield ""
    yield f"  infix    {' '.join(example.source)}"
    yield f"  postfix  {answer.text}"
    if answer.tokens != example.target:
        yield f"  expected {' '.join(example.target)}"
    yield ""
    if answer.explanation is not None:
        yield from (f"  {line}" for line in answer.explanation.draw().splitlines())


def show(run: Path | None = None) -> None:
    """Run the demo and print its lines; without a folder, the model is deleted afterwards."""
    with TemporaryDirectory() as folder:
        for line in demonstrate(run or Path(folder) / "run"):
            print(line, flush=True)
