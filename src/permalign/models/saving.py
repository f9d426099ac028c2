"""A model as files anybody can read: JSON and safetensors, nothing that runs code when loaded."""

import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from huggingface_hub import hf_hub_download
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.errors import DataError, PermalignError
from permalign.options.model import ModelOptions
from permalign.text.codec import Codec
from permalign.text.loading import load_codec

FORMAT = "permalign transducer"
VERSION = 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOURCE, TARGET = "source.json", "target.json"
PRETRAINED = {"reorderer": "pretrained-reorderer", "head": "pretrained-head"}
HUB = ("revision", "cache_dir", "force_download", "local_files_only", "token")

RENAMED: dict[str, str] = {}
"""Beginnings of parameter names in older files, and what they are called now; so that a rename loses no model."""

MODEL_CARD = """---
{{ card_data }}
---

A model of permalign: sequence transduction with exact latent reorderings.
`config.json` says what it is made of.

    from permalign import Transducer

    model = Transducer.from_pretrained("path or name of this model")
    print(model.predict(["a sentence"], explain=True)[0].explanation.draw())
"""


def save_model(
    folder: Path, options: ModelOptions, state: Mapping[str, Tensor], source: Codec, target: Codec
) -> None:
    """Write the four files of a model."""
    record = {"format": FORMAT, "version": VERSION, "options": options.model_dump(mode="json")}
    (folder / CONFIG).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    source.save(folder / SOURCE)
    target.save(folder / TARGET)
    save_file(_without_copies(state), folder / WEIGHTS, metadata={"format": "pt"})


def load_model(name: str, hub: Mapping[str, Any]) -> tuple[ModelOptions, dict[str, Tensor], Codec, Codec]:
    """Read the files of a model from a folder (or the ``model`` folder in it), or from the Hugging Face hub."""
    paths = {file: _locate(name, file, hub) for file in (CONFIG, WEIGHTS, SOURCE, TARGET)}
    options = _read_config(paths[CONFIG])
    try:
        state = load_file(paths[WEIGHTS])
    except SafetensorError as error:
        raise DataError(f"is not a safetensors file ({error}).", paths[WEIGHTS]) from None
    renamed = {_current_name(parameter): tensor for parameter, tensor in state.items()}
    return options, renamed, load_codec(paths[SOURCE]), load_codec(paths[TARGET])


def require_same_parameters(name: str, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    """A file's parameters are those of the model its config describes, by name and shape."""
    for parameter in sorted(expected.keys() | found.keys()):
        shapes = [
            tuple(state[parameter].shape) if parameter in state else None for state in (expected, found)
        ]
        if shapes[0] != shapes[1]:
            raise DataError(
                f"{WEIGHTS} does not fit {CONFIG}: parameter {parameter} should have shape {shapes[0]} and has "
                f"{shapes[1]}. Are the two from one model?",
                name,
            )


def save_pretrained(folder: Path, encoders: Mapping[str, HuggingFaceEncoder]) -> None:
    """Describe the pretrained models of the parts, each in a folder; their weights are among the model's own."""
    for part, encoder in encoders.items():
        model = encoder.model
        config = deepcopy(model.config)
        config.architectures = [type(model).__name__]  # of a model with a decoder, it is the encoder's
        pooler = getattr(model, "pooler", None) is not None
        config.update({"permalign_pooling": encoder.pooling, "permalign_pooler": pooler})
        config.save_pretrained(folder / PRETRAINED[part])
        encoder.tokenizer.save_pretrained(folder / PRETRAINED[part])


def load_pretrained(
    name: str, options: ModelOptions, hub: Mapping[str, Any]
) -> dict[str, HuggingFaceEncoder]:
    """Models as `save_pretrained` described them, their weights still random; by part."""
    parts = {"reorderer": options.reorderer.pretrained, "head": options.head.pretrained}
    return {
        part: _build_described(name, PRETRAINED[part], hub) for part, original in parts.items() if original
    }


def _build_described(name: str, folder: str, hub: Mapping[str, Any]) -> HuggingFaceEncoder:
    try:
        from transformers import AutoConfig, AutoModel, AutoTokenizer
    except ImportError:
        raise PermalignError(
            f'{name} has a pretrained encoder and needs transformers: pip install "permalign[hf]".'
        ) from None
    config_path = _locate(name, f"{folder}/config.json", hub)
    place: dict[str, Any] = {"pretrained_model_name_or_path": config_path.parent, "trust_remote_code": False}
    if not Path(name).is_dir():
        known = {key: hub[key] for key in HUB if key in hub}
        place |= {"pretrained_model_name_or_path": name, "subfolder": folder, **known}
    try:
        config = AutoConfig.from_pretrained(**place)
        untyped: Any = AutoModel
        model = untyped.from_config(config, trust_remote_code=False)
        if [type(model).__name__] != config.architectures:
            model = model.get_encoder()
        if not config.permalign_pooler:
            model.pooler = None
        tokenizer = AutoTokenizer.from_pretrained(add_prefix_space=True, **place)
        return HuggingFaceEncoder(model, tokenizer, config.permalign_pooling).float()
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"does not describe a pretrained encoder: {error}", config_path.parent) from error


def _locate(name: str, file: str, hub: Mapping[str, Any]) -> Path:
    folder = Path(name)
    if folder.is_dir():
        found = [path for path in (folder / file, folder / "model" / file) if path.is_file()]
        if not found:
            raise DataError(
                f"has no {file}; expected a folder that save_pretrained or a training run wrote.", name
            )
        return found[0]
    try:
        return Path(hf_hub_download(name, file, **{key: hub[key] for key in HUB if key in hub}))
    except Exception as error:  # the hub raises many kinds, all of which mean: not there
        raise PermalignError(
            f"{name} is no folder here, and {file} could not be had from the Hugging Face hub under that name "
            f"({type(error).__name__}). Check the path or the name."
        ) from error


def _read_config(path: Path) -> ModelOptions:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"is not JSON ({error}).", path) from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise DataError("is not the config of a permalign model.", path)
    if record.get("version") != VERSION:
        raise DataError(
            f"was written in version {record.get('version')!r} of the format, and this permalign reads version "
            f"{VERSION}. Install the permalign that wrote it, or a newer one.",
            path,
        )
    if not isinstance(record.get("options"), dict):
        raise DataError("lacks the options of the model.", path)
    return ModelOptions.parse(record["options"])


def _current_name(parameter: str) -> str:
    for old, new in RENAMED.items():
        if parameter.startswith(old):
            return new + parameter.removeprefix(old)
    return parameter


def _without_copies(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Parameters with memory of their own: safetensors refuses to write shared memory twice."""
    return {name: tensor.detach().cpu().clone().contiguous() for name, tensor in state.items()}
