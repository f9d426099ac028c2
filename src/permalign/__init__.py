"""permalign: sequence transduction with exact latent reorderings.

Names are imported from their modules when first used, so that ``import permalign`` (and with it the command
line's ``--help``) does not have to wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from permalign.diagnosis import doctor
    from permalign.models.build_model import build_model, load_model
    from permalign.models.ensemble import Ensemble
    from permalign.models.inverse import InverseModel
    from permalign.models.prediction import Prediction
    from permalign.models.transducer import Transducer
    from permalign.structures import (
        Derivation,
        LabelledPermutation,
        MonotoneAlignment,
        Segment,
        SegmentalAlignment,
        SeparablePermutation,
        SynchronousPermutation,
    )

__version__ = "0.1.0"

__all__ = [
    "Derivation",
    "Ensemble",
    "InverseModel",
    "LabelledPermutation",
    "MonotoneAlignment",
    "Prediction",
    "Segment",
    "SegmentalAlignment",
    "SeparablePermutation",
    "SynchronousPermutation",
    "Transducer",
    "build_model",
    "doctor",
    "load_model",
]

_HOMES = {
    "Ensemble": "permalign.models.ensemble",
    "InverseModel": "permalign.models.inverse",
    "Prediction": "permalign.models.prediction",
    "Transducer": "permalign.models.transducer",
    "build_model": "permalign.models.build_model",
    "doctor": "permalign.diagnosis",
    "load_model": "permalign.models.build_model",
    **dict.fromkeys(
        [
            "Derivation",
            "LabelledPermutation",
            "MonotoneAlignment",
            "Segment",
            "SegmentalAlignment",
            "SeparablePermutation",
            "SynchronousPermutation",
        ],
        "permalign.structures",
    ),
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'permalign' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing == "permalign":
            raise
        raise ImportError(f'permalign.{name} needs {missing}: pip install "permalign[models]"') from error


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
