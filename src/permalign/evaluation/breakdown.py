"""Accuracy by the length of the source, or by depth."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from permalign.evaluation.judging import JudgedPrediction
from permalign.evaluation.metrics import compute_metrics
from permalign.tasks.base import Example, Task

Measure = Callable[[Example], int]


@dataclass(frozen=True)
class Group:
    """The predictions to examples of about the same size.

    Attributes:
        smallest: the least size.
        largest: the greatest; the same if every size has a group.
        count: how many examples.
        metrics: of these examples alone.
    """

    smallest: int
    largest: int
    count: int
    metrics: dict[str, float]

    @property
    def label(self) -> str:
        """The sizes, as in ``5`` or ``5-8``."""
        return f"{self.smallest}" if self.smallest == self.largest else f"{self.smallest}-{self.largest}"


def size_measure(task: Task, by: str) -> Measure:
    """The function from an example to its ``length`` (source tokens) or its ``depth``.

    An example's depth is what its task says (``meta["depth"]``), else that of the program its target stands for.

    Raises:
        ValueError: there is no such measure.
    """
    if by == "length":
        return lambda example: len(example.source)
    if by == "depth":
        return lambda example: _depth(task, example)
    raise ValueError(f"sizes are measured by length or by depth, not by {by!r}.")


def _depth(task: Task, example: Example) -> int:
    depth = example.meta.get("depth")
    if isinstance(depth, int):
        return depth
    if task.grammar is None:
        raise ValueError(
            f"examples of {task.name} have no depth: there is none in their meta and no grammar of their targets. "
            "Measure by length."
        )
    return task.grammar.read(example.target).depth


def breakdown(
    predictions: Sequence[JudgedPrediction], measure: Measure, *, translation: bool = False, most: int = 12
) -> tuple[Group, ...]:
    """Groups of equal width by size, at most ``most`` of them; sizes that no example has are left out.

    >>> examples = [Example(("w",) * length, ("x",), str(length)) for length in (1, 2, 2, 4)]
    >>> predictions = [JudgedPrediction(example, ("x",), 0.0, len(example.source) < 3) for example in examples]
    >>> groups = breakdown(predictions, lambda example: len(example.source), most=2)
    >>> [(group.label, group.count, group.metrics["exact_match"]) for group in groups]
    [('1-2', 3, 100.0), ('3-4', 1, 0.0)]
    """
    if most < 1:
        raise ValueError(f"most is {most}, but must be at least 1.")
    sizes = [measure(prediction.example) for prediction in predictions]
    if not sizes:
        raise ValueError("there are no predictions to group; give at least one.")
    smallest = min(sizes)
    width = -(-(max(sizes) - smallest + 1) // most)
    members: dict[int, list[JudgedPrediction]] = {}
    for size, prediction in zip(sizes, predictions, strict=True):
        members.setdefault((size - smallest) // width, []).append(prediction)
    groups = []
    for number, some in sorted(members.items()):
        low = smallest + number * width
        metrics, _ = compute_metrics(some, translation=translation)
        groups.append(Group(low, low + width - 1, len(some), metrics))
    return tuple(groups)
