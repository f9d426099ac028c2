"""Train and resume runs, and combine trained models.

Names are imported when they are first used, so that options can be read without importing torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from permalign.options.run import RunOptions
    from permalign.training.combine_models import average, ensemble
    from permalign.training.experiments import load_experiment
    from permalign.training.launch import resume, train

__all__ = ["RunOptions", "average", "ensemble", "load_experiment", "resume", "train"]

_MODULES = {
    "RunOptions": "permalign.options.run",
    "average": "permalign.training.combine_models",
    "ensemble": "permalign.training.combine_models",
    "load_experiment": "permalign.training.experiments",
    "resume": "permalign.training.launch",
    "train": "permalign.training.launch",
}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module 'permalign.training' has no attribute {name!r}")
    try:
        return getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "permalign":
            raise
        raise ImportError(
            f'permalign.training.{name} needs {missing}: pip install "permalign[training]"'
        ) from error
