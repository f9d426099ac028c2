"""Compare recipes on the user's own data: each is trained for a few steps, and what it then writes for dev is compared.

Exact matches cannot be compared so early, because often there are none yet. Losses are not the same quantity in all
models: one that samples orders has the loss of its samples, one that sums over orders that of all of them. What means
the same for all is how far outputs are from their targets, as text, however it is split into tokens.
"""

from collections.abc import Mapping, Sequence

from permalign.evaluation import JudgedPrediction
from permalign.options.run import RunOptions

TRIAL_STEPS = 200
"""The number of steps for which a recipe is tried."""

TRIAL_EXAMPLES = 200
"""The maximum number of dev examples by which recipes are compared."""

MIN_DEV_EXAMPLES = 10
"""The number of dev examples below which recipes are not compared: what they differ by would be chance."""

MIN_STEPS = 5 * TRIAL_STEPS
"""The number of steps of a run below which recipes are not tried: trials would take longer than the run."""

MARGIN = 1.0
"""By how many percent outputs of another recipe must be more similar to their targets than those of the first."""


def trial_options(options: RunOptions) -> RunOptions:
    """The options of the short run that tries a recipe."""
    limit = options.training.max_dev_examples
    short = {
        "max_steps": TRIAL_STEPS,
        "max_epochs": None,
        "max_cpu_minutes": None,
        "restarts": 1,
        "restart_steps": None,
        "evaluate_every": TRIAL_STEPS,
        "max_dev_examples": TRIAL_EXAMPLES if limit is None else min(TRIAL_EXAMPLES, limit),
        "trackers": (),
    }
    return options.model_copy(update={"training": options.training.model_copy(update=short)})


def choose_by_similarity(similarities: Mapping[str, float]) -> str:
    """The first recipe, which the data suggests, unless another one is clearly better.

    >>> choose_by_similarity({"exact": 70.0, "hard": 70.5, "ssnt": 40.0})
    'exact'
    >>> choose_by_similarity({"exact": 70.0, "hard": 90.0, "ssnt": 90.0})
    'hard'
    """
    first = next(iter(similarities))
    best = max(similarities, key=lambda name: similarities[name])
    return best if similarities[best] > similarities[first] + MARGIN else first


def describe_choice(chosen: str, similarities: Mapping[str, float]) -> str:
    """A line that says what was found, what was chosen and why.

    >>> describe_choice("hard", {"exact": 70.0, "hard": 90.0})
    'recipe: hard; after 200 steps, outputs on dev are similar to their targets by 70.0 % (exact), 90.0 % (hard).'
    """
    found = ", ".join(f"{value:.1f} % ({name})" for name, value in similarities.items())
    best = max(similarities.values())
    tie = "" if similarities[chosen] == best else f" Less than {MARGIN:g} % does not count."
    return f"recipe: {chosen}; after {TRIAL_STEPS} steps, outputs on dev are similar to their targets by {found}.{tie}"


def similarity(predictions: Sequence[JudgedPrediction]) -> float:
    """How similar outputs are to their targets, in percent: 100 if all are equal, 0 if they have nothing in common.

    This is one minus the number of characters that have to be inserted, deleted or replaced, divided by the number of
    characters of the longer of output and target; both are summed over all examples.

    >>> from permalign.tasks.base import Example
    >>> example = Example(("x",), ("2021-03-12",), "0")
    >>> similarity([JudgedPrediction(example, ("2021-12-12",), 0.0, False)])
    80.0
    """
    edits = sum(edit_distance(prediction.text, prediction.reference) for prediction in predictions)
    longest = sum(max(len(prediction.text), len(prediction.reference)) for prediction in predictions)
    return 100.0 * (1.0 - edits / max(longest, 1))


def edit_distance(first: str, second: str) -> int:
    """The smallest number of characters to insert, delete or replace (Levenshtein), in time proportional to both.

    >>> edit_distance("kitten", "sitting"), edit_distance("", "abc"), edit_distance("abc", "abc")
    (3, 3, 0)
    """
    row = list(range(len(second) + 1))
    for position, character in enumerate(first, 1):
        diagonal, row[0] = row[0], position
        for column, other in enumerate(second, 1):
            diagonal, row[column] = (
                row[column],
                min(row[column] + 1, row[column - 1] + 1, diagonal + (character != other)),
            )
    return row[-1]
