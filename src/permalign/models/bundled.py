"""The small trained models that come with permalign, so that there is something to look at in the first minute.

Each is a run in a folder of the package: its options, its model with checksums and a card, and some predictions. A
folder of the user that has the same name and holds a run or a model is preferred.
"""

import logging
from functools import cache
from importlib.resources import files
from pathlib import Path

RUN_CONFIG, MODEL_CONFIG = "config.yaml", "config.json"


def bundled_folder() -> Path:
    """The folder of all models that come with the package."""
    return Path(str(files("permalign") / "pretrained"))


@cache
def bundled_names() -> tuple[str, ...]:
    """The names of the models that come with the package.

    >>> bundled_names()
    ('arithmetic', 'dates', 'scan-sp')
    """
    return tuple(sorted(path.parent.name for path in bundled_folder().glob(f"*/{RUN_CONFIG}")))


def find_model_folder(name: str | Path) -> Path:
    """The folder that a name stands for: a run or a model of the user, or else a model that comes with permalign.

    >>> find_model_folder("dates") == bundled_folder() / "dates"
    True
    >>> str(find_model_folder("runs/mine"))
    'runs/mine'
    """
    folder = Path(name)
    if str(name) not in bundled_names():
        return folder
    if not _holds_model(folder):
        return bundled_folder() / str(name)
    logging.getLogger(__name__).warning(
        "%s is taken for the folder ./%s, and not for the model of that name that comes with permalign.",
        name,
        name,
    )
    return folder


def is_bundled(folder: str | Path) -> bool:
    """Whether a folder is that of a model that comes with the package; nothing is ever written there."""
    return Path(folder).resolve().parent == bundled_folder().resolve()


def _holds_model(folder: Path) -> bool:
    files_of_model = (RUN_CONFIG, MODEL_CONFIG, f"model/{MODEL_CONFIG}")
    return any((folder / file).is_file() for file in files_of_model)
