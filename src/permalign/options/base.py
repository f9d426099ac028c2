"""The base class of all options; its errors name the wrong option and suggest the known option nearest to it."""

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Annotated, Any, ClassVar, Self, cast, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from permalign.errors import ConfigError, excerpt, shorten, unknown_name
from permalign.options.renames import new_name_of
from permalign.plugins import PluginError, Registry

MAX_COUNT = 1000
"""The largest number of parts that are built one after the other, such as layers or members of an ensemble."""

MAX_SIZE = 2**31 - 1
"""The largest whole number of an option."""

MAX_SEED = 2**53 - 1
"""The largest seed, which every program that reads JSON can represent."""

NaturalInt = Annotated[int, Field(ge=0, le=MAX_SIZE)]
PositiveInt = Annotated[int, Field(ge=1, le=MAX_SIZE)]
Count = Annotated[int, Field(ge=1, le=MAX_COUNT)]
Fraction = Annotated[float, Field(ge=0.0, lt=1.0)]


class Options(BaseModel):
    """A group of options; an unknown name is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate values, and return them as options.

        Raises:
            ConfigError: a value is not allowed, or a name is unknown; the message suggests the nearest known name.
        """
        try:
            return cls.model_validate(values)
        except ValidationError as error:
            raise ConfigError(_describe(cls, error, values)) from None

    @classmethod
    def class_for(cls, values: object) -> type["Options"]:
        """The class that validates these values: this one, unless they name a part that has options of its own."""
        return cls


@dataclass(frozen=True)
class PartName:
    """Says that an option is the name of a part: a built-in one, or one of a plug-in."""

    registry: Registry

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._require_known, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "enum": self.registry.names()}

    def _require_known(self, name: str) -> str:
        if name not in self.registry.names():
            message = unknown_name(self.registry.noun, name, self.registry.names())
            hint = (
                "" if "did you mean" in message else " If a plug-in offers it, install the plug-in's package."
            )
            raise _part_error(message + hint)
        return name


class PartOptions(Options):
    """The options of a part of a model, which its ``kind`` names.

    The parts of permalign share the options of one class. A plug-in may add its own: those of its class ``Options``, a
    subclass of that class.
    """

    registry: ClassVar[Registry]
    kind: str

    @classmethod
    def class_for(cls, values: object) -> type[Options]:
        """The options of the part that the values name."""
        kind = values.get("kind") if isinstance(values, Mapping) else None
        known = isinstance(kind, str) and kind in cls.registry.names()
        if not known or kind in cls.registry.built_in:
            return cls
        options = getattr(cls.registry.load(str(kind)), "Options", None)
        return options if isinstance(options, type) and issubclass(options, cls) else cls

    @model_validator(mode="wrap")
    @classmethod
    def _validate_by_kind(cls, values: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            options = cls.class_for(values)
        except PluginError as error:
            raise _part_error(str(error)) from None
        return handler(values) if options is cls else cast(Self, options.model_validate(values))


def _part_error(message: str) -> PydanticCustomError:
    """An error whose message is complete."""
    return PydanticCustomError("part", "{message}", {"message": message})


def _describe(cls: type[Options], error: ValidationError, values: Mapping[str, Any]) -> str:
    """Describe the first problem that pydantic found in one sentence."""
    problems = error.errors()
    # An unknown part leaves its options unknown, and a misspelt option leaves the one it meant missing.
    parts = [problem for problem in problems if problem["type"] == "part"]
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    problem = (parts or unknown or problems)[0]
    path = [str(key) for key in problem["loc"] if not str(key).startswith(("literal", "constrained"))]
    option, value = shorten(".".join(path)), excerpt(problem["input"])
    if problem["type"] == "extra_forbidden":
        return f"unknown option {option}; {_suggest(cls, path, values)}"
    if problem["type"] == "part":
        return f"{option}: {problem['msg']}"
    if problem["type"] == "missing":
        return f"{option} is missing."
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"{option} is {value}, but must be a mapping from options to values. Or leave it out."
    return f"{option} is {value}: {problem['msg'].lower()}."


def _suggest(cls: type[Options], path: list[str], values: Any) -> str:
    """Suggest the new name of a renamed option, or else the known option with the nearest name, or else all of them."""
    *parents, name = path
    owner = cls
    for parent in parents:
        values = values[int(parent)] if parent.isdigit() else values.get(parent, {})
        if not parent.isdigit():  # an index into a list is not the name of an option
            owner = _options_class(owner.model_fields[parent].annotation).class_for(values)
    suggestion = new_name_of(name, owner.model_fields)
    if suggestion is None:
        suggestion = next(iter(get_close_matches(name, owner.model_fields, n=1)), None)
    if suggestion is None:
        return f"choose from {', '.join(owner.model_fields)}."
    return f"did you mean {'.'.join([*parents, suggestion])}?"


def _options_class(annotation: Any) -> type[Options]:
    """The class of the options in a field that contains options, or a list of options."""
    inner: type[Options] = next(iter(get_args(annotation)), annotation)
    return inner
