"""Break metrics down by source length or by depth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.metrics import compute_metrics
from permalign.tasks.base import Example, Task

Measure = Callable[[Example], int]
"""A function that returns the size of an example."""


@dataclass(frozen=True)
class Group:
    """Examples of similar size.

    Attributes:
        smallest: the smallest size in the group.
        largest: the largest size in the group.
        count: the number of examples.
        metrics: the metrics of these examples.
    """

    smallest: int
    largest: int
    count: int
    metrics: dict[str, float]

    @property
    def label(self) -> str:
        """The range of sizes, such as ``5`` or ``5-8``."""
        return f"{self.smallest}" if self.smallest == self.largest else f"{self.smallest}-{self.largest}"


def size_measure(task: Task, by: str) -> Measure:
    """Return the function that measures the ``length`` (in source tokens) or the ``depth`` of an example.

    The depth of an example is ``meta["depth"]`` if the task provides it, and otherwise the depth of the program that is
    its target.

    Raises:
        ValueError: ``by`` is neither ``length`` nor ``depth``.
    """
    if by == "length":
        return lambda example: len(example.source)
    if by == "depth":
        return lambda example: _depth(task, example)
    raise ValueError(f"by is {by!r}, but examples are grouped by 'length' or 'depth'.")


def _depth(task: Task, example: Example) -> int:
    depth = example.meta.get("depth")
    if isinstance(depth, int):
        return depth
    if task.grammar is None:
        raise ValueError(
            f"examples of {task.name} have no depth: it is not in their meta, and the task has no grammar. Group them "
            "by length."
        )
    return task.grammar.read(example.target).depth


def breakdown(
    predictions: Sequence[JudgedPrediction],
    measure: Measure,
    *,
    translation: bool = False,
    max_groups: int = 12,
) -> tuple[Group, ...]:
    """Group predictions by size, in at most ``max_groups`` ranges of equal width; empty groups are left out.

    >>> examples = [Example(("w",) * length, ("x",), str(length)) for length in (1, 2, 2, 4)]
    >>> predictions = [JudgedPrediction(example, ("x",), 0.0, len(example.source) < 3) for example in examples]
    >>> groups = breakdown(predictions, lambda example: len(example.source), max_groups=2)
    >>> [(group.label, group.count, group.metrics["exact_match"]) for group in groups]
    [('1-2', 3, 100.0), ('3-4', 1, 0.0)]
    """
    if max_groups < 1:
        raise ValueError(f"max_groups is {max_groups}, but must be at least 1.")
    sizes = [measure(prediction.example) for prediction in predictions]
    if not sizes:
        raise ValueError("predictions is empty; expected at least one.")
    smallest = min(sizes)
    width = -(-(max(sizes) - smallest + 1) // max_groups)
    members: dict[int, list[JudgedPrediction]] = {}
    for size, prediction in zip(sizes, predictions, strict=True):
        members.setdefault((size - smallest) // width, []).append(prediction)
    groups = []
    for index, grouped in sorted(members.items()):
        low = smallest + index * width
        metrics, _ = compute_metrics(grouped, translation=translation)
        groups.append(Group(low, low + width - 1, len(grouped), metrics))
    return tuple(groups)
