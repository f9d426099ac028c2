"""The parts that options name, built-in ones and those of plug-ins: reorderers, heads, encoders, metrics and tasks.

Built-in parts and plug-ins are found in the same way: by a name, which stands for an object in a module. The module is
imported when the part is first used. A package offers parts by entry points, which Python finds once it is installed:

    [project.entry-points."permalign.reorderers"]
    reverse = "my_package:ReverseReorderer"

A script or notebook registers them by decorators, such as `register_reorderer`. Nothing is ever imported from the
folder of a model: a saved model names its plug-ins, and they must be installed.
"""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

from permalign.errors import ConfigError, DataError, excerpt, unknown_name

Part = TypeVar("Part")
PACKAGE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,100}[A-Za-z0-9])?")


class PluginError(ConfigError):
    """A part does not exist, or its plug-in cannot be imported."""


@dataclass(frozen=True)
class Registry:
    """The parts of one type by name.

    Attributes:
        noun: what one of them is called.
        group: the group of entry points by which packages offer them.
        built_in: the parts of permalign, as the values of entry points, ``module:object``.
        registered: the parts that decorators have registered.
    """

    noun: str
    group: str
    built_in: Mapping[str, str]
    registered: dict[str, Any] = field(default_factory=dict)

    def names(self) -> list[str]:
        """The names of all parts: built-in ones, then those of plug-ins."""
        return list(dict.fromkeys([*self.built_in, *self.registered, *_installed(self.group).names]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def load(self, name: str) -> Any:
        """Import a part.

        Raises:
            PluginError: there is no such part, or its module cannot be imported.
        """
        if name in self.registered:
            return self.registered[name]
        entry = self._find(name)
        try:
            return entry.load()
        except Exception as error:  # whatever the code of a plug-in does
            if name in self.built_in:
                raise
            raise PluginError(
                f"the {self.noun} {name!r} of {_package(entry)} cannot be imported from {entry.value} "
                f"({_in_one_line(error)}). Install what it needs, or another version of it."
            ) from error

    def register(self, name: str) -> Callable[[Part], Part]:
        """A decorator that registers a part under a name; registering it again replaces it."""
        if name in self.built_in:
            raise ValueError(f"{name!r} is a {self.noun} of permalign itself. Choose another name.")

        def register_part(part: Part) -> Part:
            before = self.registered.get(name)
            if before is not None and _full_name(before) != _full_name(part):
                raise ValueError(
                    f"the {self.noun} {name!r} is {_full_name(before)} already, and cannot be {_full_name(part)} too. "
                    "Choose another name."
                )
            self.registered[name] = part
            return part

        return register_part

    def provider(self, name: str) -> dict[str, str] | None:
        """What has to be installed or imported for a part; None for a part of permalign."""
        if name in self.built_in:
            return None
        if name not in _installed(self.group).names and name in self.registered:
            return {"part": self.noun, "name": name, "module": str(self.registered[name].__module__)}
        entry = self._find(name)
        provider = {"part": self.noun, "name": name, "module": entry.module}
        if entry.dist is not None:
            provider |= {"package": entry.dist.name, "version": entry.dist.version}
        return provider

    def _find(self, name: str) -> EntryPoint:
        if name in self.built_in:
            return EntryPoint(name, self.built_in[name], self.group)
        found = list({entry.value: entry for entry in _installed(self.group).select(name=name)}.values())
        if not found:
            raise PluginError(unknown_name(self.noun, name, self.names()))
        if len(found) > 1:
            packages = " and ".join(sorted(map(_package, found)))
            raise PluginError(f"{packages} both offer the {self.noun} {name!r}. Uninstall one of them.")
        return found[0]


REORDERERS = Registry(
    "reorderer",
    "permalign.reorderers",
    {
        "none": "permalign.reorderers:IdentityReorderer",
        "separable": "permalign.reorderers:SeparableReorderer",
        "labelled": "permalign.reorderers:LabelledReorderer",
        "sinkhorn": "permalign.reorderers:SinkhornReorderer",
        "local": "permalign.reorderers:LocalReorderer",
    },
)
HEADS = Registry(
    "head",
    "permalign.heads",
    {
        "tagging": "permalign.heads:TaggingHead",
        "attention": "permalign.heads:AttentionHead",
        "syntactic_attention": "permalign.heads:SyntacticAttentionHead",
        "ssnt": "permalign.heads:SsntHead",
        "swan": "permalign.heads:SwanHead",
        "segments": "permalign.heads:SegmentsHead",
    },
)
ENCODERS = Registry(
    "encoder",
    "permalign.encoders",
    {
        "none": "permalign.encoders:no_encoder",
        "bilstm": "permalign.encoders:BiLstmEncoder",
        "transformer": "permalign.encoders:TransformerEncoder",
        "prefix_sum": "permalign.encoders:PrefixSumEncoder",
        "window": "permalign.encoders:WindowEncoder",
    },
)
METRICS = Registry(
    "metric",
    "permalign.metrics",
    {
        "exact_match": "permalign.evaluation.metrics:exact_match",
        "token_accuracy": "permalign.evaluation.metrics:token_accuracy",
        "execution_accuracy": "permalign.evaluation.metrics:execution_accuracy",
        "well_formed": "permalign.evaluation.metrics:well_formed",
        "bleu": "permalign.evaluation.metrics:bleu",
        "chrf": "permalign.evaluation.metrics:chrf",
    },
)
TASKS = Registry(
    "task",
    "permalign.tasks",
    {
        "arithmetic": "permalign.tasks.arithmetic:Arithmetic",
        "scan-sp": "permalign.tasks.scan:ScanSP",
        "dates": "permalign.tasks.dates:Dates",
        "geoquery": "permalign.tasks.geoquery:GeoQuery",
        "en-ja": "permalign.tasks.translation:EnglishJapanese",
        "zh-en": "permalign.tasks.translation:ChineseEnglish",
        "tatoeba": "permalign.tasks.tatoeba:Tatoeba",
        "zh-en-docs": "permalign.tasks.translation:ChineseEnglishDocs",
        "aligned": "permalign.tasks.translation:Aligned",
        "own": "permalign.tasks.user_data:UserData",
    },
)
REGISTRIES = {registry.noun: registry for registry in (REORDERERS, HEADS, ENCODERS, METRICS, TASKS)}

register_reorderer = REORDERERS.register
register_head = HEADS.register
register_encoder = ENCODERS.register
register_metric = METRICS.register
register_task = TASKS.register


def import_plugins(modules: Sequence[str]) -> None:
    """Import modules that register parts: names of modules, or paths of Python files.

    Raises:
        PluginError: a module cannot be imported.
    """
    for name in modules:
        try:
            _import_file(Path(name)) if name.endswith(".py") else import_module(name)
        except Exception as error:  # whatever the code of a plug-in does
            raise PluginError(
                f"the plug-in {name} cannot be imported ({_in_one_line(error)}).{_advice(name, error)}"
            ) from error


def _in_one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _advice(name: str, error: Exception) -> str:
    """What to do if a plug-in is not found; a module in the working directory is not on Python's path."""
    if name.endswith(".py") and not Path(name).exists():
        return " Give the path of the file that registers it."
    if isinstance(error, ModuleNotFoundError) and error.name == name:
        return f" Install its package or, if it is in a file, give its path: --plugin {name.replace('.', '/')}.py."
    return ""


def require_plugins(providers: object, path: str | Path) -> None:
    """Require the plug-ins that a saved model or run needs, as `Registry.provider` described them when it was saved.

    Raises:
        DataError: one of them is missing; the message names what to install.
    """
    for provider in _well_formed(providers):
        noun, name = provider["part"], provider["name"]
        if name in REGISTRIES[noun].names():
            continue
        package = provider.get("package", "")
        if PACKAGE_NAME.fullmatch(package):
            advice = f"of the package {package}, which is not installed. Install it: pip install {package}"
        else:
            advice = (
                f"that the module {excerpt(provider.get('module', ''))} registers. Import it first; on the command "
                "line, permalign --plugin FILE.py or MODULE"
            )
        raise DataError(f"needs the {noun} {excerpt(name)} {advice}.", path)


def _well_formed(providers: object) -> Iterator[dict[str, str]]:
    """The descriptions that name a type of part and a part."""
    for provider in providers if isinstance(providers, list) else ():
        if (
            isinstance(provider, dict)
            and all(isinstance(value, str) for value in provider.values())
            and provider.get("part") in REGISTRIES
            and "name" in provider
        ):
            yield provider


def _import_file(path: Path) -> None:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)


@cache
def _installed(group: str) -> EntryPoints:
    """The entry points of all installed packages in a group."""
    return entry_points(group=group)


def _package(entry: EntryPoint) -> str:
    return "a package" if entry.dist is None else f"the package {entry.dist.name}"


def _full_name(part: Any) -> str:
    return f"{part.__module__}.{getattr(part, '__qualname__', part)}"
