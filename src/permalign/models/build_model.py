"""Models of any kind: new ones from options, and saved ones from files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.models.base import Model
from permalign.models.bundled import find_model_folder
from permalign.models.ensemble import Ensemble
from permalign.models.inverse import InverseModel
from permalign.models.saving import read_kind
from permalign.models.transducer import Transducer
from permalign.options.model import ModelOptions
from permalign.text.codec import Codec

KINDS: dict[str, type[Model]] = {kind.__name__: kind for kind in (Transducer, InverseModel, Ensemble)}
"""The kinds of models by the names that config files use."""


def build_model(
    options: ModelOptions | Mapping[str, Any],
    source: Codec,
    target: Codec,
    pretrained: Mapping[str, HuggingFaceEncoder] | None = None,
) -> Model:
    """Build a new model: a `Transducer`, an `InverseModel`, or an `Ensemble` of either.

    Args:
        options: the model's options, or only those that differ from the defaults; see `permalign.options.model`.
        source: the vocabulary of sentences.
        target: the vocabulary of outputs.
        pretrained: Hugging Face models that are already loaded; see `Transducer`.
    """
    options = options if isinstance(options, ModelOptions) else ModelOptions.parse(options)
    options.require_fit()
    member = options.model_copy(update={"ensemble_size": 1})
    if options.ensemble_size > 1:
        return Ensemble.build([member] * options.ensemble_size, source, target)
    kind = Transducer if options.inverse is None else InverseModel
    return kind.build([member], source, target, pretrained)


def load_model(name: str | Path, **hub: Any) -> Model:
    """Load a saved model of any kind.

    Args:
        name: a folder that `save_pretrained` or a training run wrote, the name of a model that comes with permalign
            (``dates``; see `permalign models`), or a model's name on the Hugging Face hub.
        hub: ``revision``, ``token``, ``cache_dir``, ``force_download``, ``local_files_only``.

    Raises:
        PermalignError: there is no such model, or its files are broken.
    """
    folder = str(find_model_folder(name))
    return KINDS[read_kind(folder, hub)].from_pretrained(folder, **hub)
