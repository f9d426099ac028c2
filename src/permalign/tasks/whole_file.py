"""A task whose only split is all of the user's data, to evaluate a model on."""

from collections.abc import Sequence

from permalign.tasks.base import Example, Task
from permalign.tasks.data_arguments import describe_data, short_name
from permalign.tasks.partitions import PartitionedTask
from permalign.tasks.registry import get_task


class WholeFile(Task):
    """All examples of a file, of two aligned files or of a folder, whatever their splits.

    Args:
        arguments: the file, the two files or the folder.
        metric: the metrics by which results are reported, as those of the task that a model was trained on.
        options: options of the task that reads the data, such as ``source_column``.
    """

    name = "file"
    description = "all examples of a file"

    def __init__(self, arguments: Sequence[str], metric: str, **options: object) -> None:
        self.metric = metric
        described: dict[str, object] = {**describe_data(arguments), **options}
        self._split = "file/" + "-".join(short_name(argument) for argument in arguments)
        self._task = get_task(str(described.pop("name")), **described)

    @property
    def splits(self) -> tuple[str, ...]:
        """The only split, which is named after the data."""
        return (self._split,)

    @property
    def notes(self) -> tuple[str, ...]:
        """How the data was read; its splits do not matter."""
        assert isinstance(self._task, PartitionedTask)
        return self._task.data.reading_notes

    def examples(self, split: str) -> Sequence[Example]:
        """All examples."""
        if split != self._split:
            raise self.unknown_split(split)
        assert isinstance(self._task, PartitionedTask)
        return self._task.data.examples
