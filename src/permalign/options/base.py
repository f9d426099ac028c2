"""The base class of all options; its errors name the wrong option and suggest the known option nearest to it."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from permalign.errors import ConfigError, excerpt, shorten
from permalign.options.renames import new_name_of

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
            raise ConfigError(_describe(cls, error)) from None


def _describe(cls: type[Options], error: ValidationError) -> str:
    """Describe the first problem that pydantic found in one sentence."""
    problems = error.errors()
    # A misspelt name leaves the option it meant missing, so unknown names are reported first.
    unknown = [problem for problem in problems if problem["type"] == "extra_forbidden"]
    problem = (unknown or problems)[0]
    path = [str(key) for key in problem["loc"] if not str(key).startswith(("literal", "constrained"))]
    option, value = shorten(".".join(path)), excerpt(problem["input"])
    if unknown:
        return f"unknown option {option}; {_suggest(cls, path)}"
    if problem["type"] == "missing":
        return f"{option} is missing."
    if problem["type"] in ("model_type", "model_attributes_type"):
        return f"{option} is {value}, but must be a mapping from options to values. Or leave it out."
    return f"{option} is {value}: {problem['msg'].lower()}."


def _suggest(cls: type[Options], path: list[str]) -> str:
    """Suggest the new name of a renamed option, or else the known option with the nearest name, or else all of them."""
    *parents, name = path
    owner = cls
    for parent in parents:
        if not parent.isdigit():  # an index into a list is not the name of an option
            owner = _options_class(owner.model_fields[parent].annotation)
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
