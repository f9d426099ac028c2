"""Read datasets of Hugging Face, by name or from disk, with the library `datasets`."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from permalign.errors import DataError, PermalignError
from permalign.hub import hub_has_address
from permalign.tasks.record_files import Record

PREFIX = "hf:"
"""What the path of a dataset on the Hugging Face hub begins with: ``hf:NAME`` or ``hf:NAME:CONFIGURATION``."""


def is_hub_dataset(path: str | Path) -> bool:
    """Whether a path is the name of a dataset on the hub, or a folder that ``save_to_disk`` wrote."""
    if str(path).startswith(PREFIX):
        return True
    return any((Path(path) / name).is_file() for name in ("dataset_dict.json", "state.json"))


def read_hub_dataset(path: str | Path) -> dict[str | None, list[tuple[int, Record]]]:
    """Read a dataset: the numbered records of each of its splits; the key is None for a dataset without splits."""
    dataset = _load(str(path))
    splits: Mapping[str | None, Any] = dataset if isinstance(dataset, Mapping) else {None: dataset}
    return {
        split: [(number, dict(record)) for number, record in enumerate(records, 1)]
        for split, records in splits.items()
    }


def _load(path: str) -> Any:
    name, _, configuration = path.removeprefix(PREFIX).partition(":")
    if not name.strip():
        raise DataError(
            "a dataset has no name. Write hf:NAME or hf:NAME:CONFIGURATION, such as hf:owner/name.", path
        )
    try:
        import datasets
    except ImportError:
        raise PermalignError(
            f'{path} needs the library datasets: pip install "permalign[datasets]".'
        ) from None
    datasets.disable_progress_bars()
    try:
        if not path.startswith(PREFIX):
            return datasets.load_from_disk(path)
        with nullcontext() if hub_has_address() else _offline(datasets):
            return datasets.load_dataset(name, configuration or None)
    except Exception as error:  # the library raises errors of many kinds
        reason = " ".join(str(error).split())[:300]
        raise DataError(
            f"the library datasets cannot load it ({type(error).__name__}: {reason}).", path
        ) from None


@contextmanager
def _offline(datasets: Any) -> Iterator[None]:
    """Read only what was downloaded before, as if the environment variable ``HF_HUB_OFFLINE`` were set."""
    from huggingface_hub import constants

    modules: tuple[Any, ...] = (constants, datasets.config)
    before = [module.HF_HUB_OFFLINE for module in modules]
    try:
        for module in modules:
            module.HF_HUB_OFFLINE = True
        yield
    finally:
        for module, value in zip(modules, before, strict=True):
            module.HF_HUB_OFFLINE = value
