"""Write the splits of a task as JSON lines, which `permalign.tasks.user_data` can read."""

import json
from collections.abc import Sequence
from pathlib import Path

from permalign.errors import DataError
from permalign.files import write_lines
from permalign.tasks.base import Example, Task


def write_task(task: Task, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write each split to ``folder/condition/part.jsonl``; returns the paths, in the order of the splits.

    Files are written atomically. Existing files are replaced only if ``overwrite`` is set.

    Raises:
        DataError: a file already exists, or cannot be written.
    """
    paths = {split: Path(folder) / f"{split}.jsonl" for split in task.splits}
    for path in paths.values():
        if path.exists() and not overwrite:
            raise DataError("already exists. Choose another folder, or overwrite it with --force.", path)
    for split, path in paths.items():
        write_lines(path, (example_line(example) for example in task.examples(split)))
    return list(paths.values())


def example_line(example: Example) -> str:
    """Write an example as a line of JSON, without the line end.

    >>> example_line(Example(("wie", "geht", "es"), ("how are you",), "7"))
    '{"id": "7", "source": "wie geht es", "target": ["how are you"]}'
    """
    record: dict[str, object] = {
        "id": example.id,
        "source": _joined(example.source),
        "target": _joined(example.target),
    }
    if example.meta:
        record["meta"] = dict(example.meta)
    return json.dumps(record, ensure_ascii=False)


def _joined(tokens: Sequence[str]) -> str | list[str]:
    """Join the tokens to one string, which is easier to read; return a list if splitting would not restore them."""
    text = " ".join(tokens)
    return text if text.split() == list(tokens) else list(tokens)
