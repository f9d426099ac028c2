"""Writing a task's splits as JSON lines, which `permalign.tasks.own` reads back."""

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from permalign.errors import DataError
from permalign.tasks.base import Example, Task


def write_task(task: Task, folder: str | Path, *, overwrite: bool = False) -> list[Path]:
    """Write each split to ``folder/condition/part.jsonl``; the paths, in the order of the splits.

    Every file appears complete or not at all. Nothing that is there is touched unless ``overwrite`` is set.

    Raises:
        DataError: a file is there already, or cannot be written.
    """
    paths = {split: Path(folder) / f"{split}.jsonl" for split in task.splits}
    for path in paths.values():
        if path.exists() and not overwrite:
            raise DataError("is there already. Choose another folder, or overwrite it with --force.", path)
    for split, path in paths.items():
        write_atomically(path, (example_line(example) for example in task.examples(split)))
    return list(paths.values())


def example_line(example: Example) -> str:
    """One example as a line of JSON, without its line end.

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
    """The tokens as one string where that can be undone, which is the easier to read."""
    text = " ".join(tokens)
    return text if text.split() == list(tokens) else list(tokens)


def write_atomically(path: Path, lines: Iterable[str]) -> None:
    """Write lines, given without their ends, so that the file is there completely or not at all.

    Folders on the way are made; a file that is there is replaced.

    Raises:
        DataError: it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(line + "\n" for line in lines)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror}).", path) from error
    finally:
        with suppress(FileNotFoundError):
            os.unlink(temporary)


def _umask() -> int:
    """The permissions that new files are not given (`tempfile` gives fewer). Reading it means setting it."""
    umask = os.umask(0)
    os.umask(umask)
    return umask
