"""A model as files that anybody can read: JSON and safetensors, nothing that runs code when loaded."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

from huggingface_hub import hf_hub_download
from torch import Tensor

from permalign.encoders.huggingface import HuggingFaceEncoder
from permalign.errors import DataError, PermalignError, excerpt, shorten
from permalign.files import (
    CHECKSUMS,
    read_checksums,
    read_json,
    record_checksums,
    require_unchanged,
    write_text,
)
from permalign.hub import hub_has_address
from permalign.options.base import MAX_COUNT
from permalign.options.model import ModelOptions
from permalign.options.renames import log_translation, rename_parameters, translate_options
from permalign.plugins import require_plugins
from permalign.tensor_files import read_shapes, read_tensors, write_tensors
from permalign.text.codec import Codec
from permalign.text.loading import load_codec

FORMAT, VERSION = "permalign model", 2
FIRST_FORMAT, FIRST_VERSION = "permalign transducer", 1
CONFIG, WEIGHTS = "config.json", "model.safetensors"
SOURCE, TARGET = "source.json", "target.json"
FILES = (CONFIG, WEIGHTS, SOURCE, TARGET)
PRETRAINED = {"reorderer": "pretrained-reorderer", "head": "pretrained-head"}
HUB = ("revision", "cache_dir", "force_download", "local_files_only", "token")

MODEL_CARD = """---
{{ card_data }}
---

A model of permalign: sequence transduction with exact latent reorderings.
`config.json` describes its parts.

    import permalign

    model = permalign.load_model("path or name of this model")
    print(model.predict(["a sentence"], explain=True)[0].explanation.draw())
"""


class SavedModel(NamedTuple):
    """What the files of a model say, except for the values of its parameters.

    Attributes:
        kind: the name of its class.
        options: the options of its members, or of the only one.
        weights: the file of its parameters.
        shapes: the shapes of its parameters by name.
        source: the vocabulary of sentences.
        target: the vocabulary of outputs.
    """

    kind: str
    options: list[ModelOptions]
    weights: Path
    shapes: dict[str, tuple[int, ...]]
    source: Codec
    target: Codec

    def read_parameters(self) -> dict[str, Tensor]:
        """The parameters by name.

        Raises:
            DataError: a parameter is not finite, so that every output would be, too.
        """
        parameters = rename_parameters(read_tensors(self.weights))
        for name, tensor in parameters.items():
            if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
                raise DataError(
                    f"parameter {name} holds NaN or infinite values, so the model cannot be used. Load another "
                    "checkpoint, or train it again with a lower learning rate.",
                    self.weights,
                )
        return parameters


def save_model(
    folder: Path,
    description: Mapping[str, Any],
    state: Mapping[str, Tensor],
    source: Codec,
    target: Codec,
    pretrained: Mapping[str, HuggingFaceEncoder],
) -> None:
    """Write the files of a model.

    Args:
        folder: an existing folder.
        description: the model's ``kind``, and its ``options`` or those of its ``members``.
        state: its parameters by name.
        source: the vocabulary of sentences.
        target: the vocabulary of outputs.
        pretrained: the pretrained encoders of its parts, by part. Each is described in a folder of its own; its weights
            are among the model's parameters.
    """
    record = {"format": FORMAT, "version": VERSION, **description}
    members = description.get("members", [description.get("options")])
    plugins = [provider for member in members for provider in ModelOptions.parse(member).plugins()]
    if plugins:  # what a reader has to install
        record["plugins"] = [provider for i, provider in enumerate(plugins) if provider not in plugins[:i]]
    write_text(folder / CONFIG, json.dumps(record, indent=2) + "\n")
    source.save(folder / SOURCE)
    target.save(folder / TARGET)
    write_tensors(folder / WEIGHTS, state, metadata={"format": "pt"})
    for part, encoder in pretrained.items():
        _describe_pretrained(folder / PRETRAINED[part], encoder)
    described = [
        path for part in pretrained for path in (folder / PRETRAINED[part]).rglob("*") if path.is_file()
    ]
    record_checksums(folder, [*FILES, *(path.relative_to(folder).as_posix() for path in described)])


def read_kind(name: str, hub: Mapping[str, Any]) -> str:
    """The kind of a saved model: ``Transducer``, ``InverseModel`` or ``Ensemble``."""
    path = _locate(name, CONFIG, hub)
    _require_unchanged(name, path.parent, [CONFIG], hub)
    return _read_config(path)[0]


def read_model(name: str, hub: Mapping[str, Any]) -> SavedModel:
    """Read the files of a model from a folder (or the ``model`` folder in it), or from the Hugging Face hub."""
    paths = {file: _locate(name, file, hub) for file in FILES}
    _require_unchanged(name, paths[CONFIG].parent, FILES, hub)
    kind, options = _read_config(paths[CONFIG])
    shapes = rename_parameters(read_shapes(paths[WEIGHTS]))
    return SavedModel(
        kind, options, paths[WEIGHTS], shapes, load_codec(paths[SOURCE]), load_codec(paths[TARGET])
    )


def _require_unchanged(name: str, folder: Path, files: Sequence[str], hub: Mapping[str, Any]) -> None:
    """Require that files of a model are as they were saved, if it was saved with checksums."""
    if not Path(name).is_dir():
        with suppress(PermalignError):  # a model on the hub that has no checksums
            _locate(name, CHECKSUMS, hub)
    require_unchanged(folder, files)


def require_same_parameters(
    name: str, expected: Mapping[str, Tensor], found: Mapping[str, tuple[int, ...]]
) -> None:
    """Require that a file's parameters are those of the model that its config describes, by name and shape.

    Args:
        name: the name of the saved model.
        expected: the parameters of the model, with or without values.
        found: the shapes of the parameters in the file.
    """
    for parameter in sorted(expected.keys() | found.keys()):
        should = tuple(expected[parameter].shape) if parameter in expected else None
        has = found.get(parameter)
        if should != has:
            raise DataError(
                f"{WEIGHTS} does not fit {CONFIG}: parameter {shorten(parameter)} should have shape {should} and "
                f"has {has}. Are the two files from the same model?",
                name,
            )


def _describe_pretrained(folder: Path, encoder: HuggingFaceEncoder) -> None:
    """Write what is needed to build a pretrained encoder again, except for its weights."""
    model = encoder.model
    config = deepcopy(model.config)
    config.architectures = [type(model).__name__]  # for a model with a decoder, the encoder's class
    pooler = getattr(model, "pooler", None) is not None
    config.update({"permalign_pooling": encoder.pooling, "permalign_pooler": pooler})
    config.save_pretrained(folder)
    encoder.tokenizer.save_pretrained(folder)


def load_pretrained(
    name: str, options: ModelOptions, hub: Mapping[str, Any]
) -> dict[str, HuggingFaceEncoder]:
    """The pretrained encoders of a saved model by part, their weights still random."""
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
    if Path(name).is_dir():
        home = config_path.parent.parent
        require_unchanged(home, [file for file in read_checksums(home) if file.startswith(f"{folder}/")])
    location: dict[str, Any] = {
        "pretrained_model_name_or_path": config_path.parent,
        "trust_remote_code": False,
    }
    if not Path(name).is_dir():
        known = {key: hub[key] for key in HUB if key in hub}
        location |= {"pretrained_model_name_or_path": name, "subfolder": folder, **known}
    try:
        config = AutoConfig.from_pretrained(**location)
        untyped: Any = AutoModel
        model = untyped.from_config(config, trust_remote_code=False)
        if [type(model).__name__] != config.architectures:
            model = model.get_encoder()
        if not config.permalign_pooler:
            model.pooler = None
        tokenizer = AutoTokenizer.from_pretrained(add_prefix_space=True, **location)
        return HuggingFaceEncoder(model, tokenizer, config.permalign_pooling).float()
    except (OSError, ValueError, AttributeError) as error:
        raise DataError(f"does not describe a pretrained encoder: {error}", config_path.parent) from error


def _locate(name: str, file: str, hub: Mapping[str, Any]) -> Path:
    folder = Path(name)
    if folder.is_dir():
        paths = [path for path in (folder / file, folder / "model" / file) if path.is_file()]
        if not paths:
            raise DataError(
                f"has no {file}; expected a folder that save_pretrained or a training run wrote.", name
            )
        return paths[0]
    arguments = {key: hub[key] for key in HUB if key in hub}
    offline = not hub_has_address()
    if offline:  # the hub's client would try again for half a minute
        arguments["local_files_only"] = True
    try:
        return Path(hf_hub_download(name, file, **arguments))
    except Exception as error:  # the hub raises many kinds of errors, and all mean that the file is not there
        where = "on the Hugging Face hub"
        if offline:
            where = "in the local cache of the Hugging Face hub, which cannot be reached"
        raise PermalignError(
            f"there is no folder {name}, and no model of that name {where} ({file}: {type(error).__name__}). Check the "
            "path or the name; `permalign runs` lists your runs."
        ) from error


def _read_config(path: Path) -> tuple[str, list[ModelOptions]]:
    """The kind of a model, and the options of its members or of the only one."""
    try:
        record = read_json(path)
    except (ValueError, RecursionError) as error:
        raise DataError(f"is not JSON ({error}).", path) from None
    except OSError as error:
        raise DataError(f"cannot be read ({error.strerror}).", path) from None
    if not isinstance(record, dict) or record.get("format") not in (FORMAT, FIRST_FORMAT):
        raise DataError("is not the config of a permalign model.", path)
    expected = VERSION if record["format"] == FORMAT else FIRST_VERSION
    if record.get("version") != expected:
        raise DataError(
            f"was written in version {excerpt(record.get('version'))} of the format, but this permalign reads version "
            f"{expected}. Install the permalign that wrote it, or a newer one.",
            path,
        )
    members = record.get("members", [record.get("options")])
    if (
        not isinstance(members, list)
        or not members
        or not all(isinstance(member, dict) for member in members)
    ):
        raise DataError("lacks the options of the model.", path)
    if len(members) > MAX_COUNT:
        raise DataError(f"describes {len(members)} members, but an ensemble has at most {MAX_COUNT}.", path)
    require_plugins(record.get("plugins"), path)
    if record["format"] == FIRST_FORMAT:
        return _read_first_format(members[0], path)
    if record.get("kind") not in ("Transducer", "InverseModel", "Ensemble"):
        raise DataError(f"describes a model of the unknown kind {excerpt(record.get('kind'))}.", path)
    return record["kind"], [ModelOptions.parse(member) for member in members]


def _read_first_format(values: Mapping[str, Any], path: Path) -> tuple[str, list[ModelOptions]]:
    """The same for a file in the first format, where the options alone tell the kind."""
    translated, changes = translate_options(values)
    log_translation(path, changes)
    options = ModelOptions.parse(translated)
    member = options.model_copy(update={"ensemble_size": 1})
    if options.ensemble_size > 1:
        return "Ensemble", [member] * options.ensemble_size
    return "Transducer" if options.inverse is None else "InverseModel", [member]
