"""Where a search looks: for an option, a list of values or an interval.

>>> Range.parse("training.learning_rate=1e-4:1e-2:log")
Range(option='training.learning_rate', choices=(), low=0.0001, high=0.01, logarithmic=True)
>>> Range.parse("model.head.hidden_size=64,128,256").choices
(64, 128, 256)
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, Self

import yaml

from permalign.options.run import RunOptions
from permalign.training.experiments import SettingError

Value = float | int | str | bool | None


class Trial(Protocol):
    """What suggests values; a trial of Optuna."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """One of the choices."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """A number in between."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """A whole number in between."""


@dataclass(frozen=True)
class Range:
    """Values that an option may take: one of some, or any between two."""

    option: str
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """``option=a,b,c``, ``option=low:high`` or ``option=low:high:log``; whole numbers if both ends are."""
        option, equals, values = text.partition("=")
        low, *rest = values.split(":")
        if not (option and equals and values):
            raise SettingError(
                f"{text!r} is no range; expected option=a,b,c or option=low:high or option=low:high:log."
            )
        if not rest:
            return cls(option, choices=tuple(_value(value) for value in values.split(",")))
        ends = [_value(end) for end in (low, rest[0])]
        if rest[1:] not in ([], ["log"]) or not all(_is_number(end) for end in ends):
            raise SettingError(
                f"{text!r} is no range; expected {option}=low:high or {option}=low:high:log, in numbers."
            )
        if ends[0] >= ends[1] or (rest[1:] and ends[0] <= 0):
            raise SettingError(
                f"{text!r} is empty; its low end must be below its high end, and above 0 for log."
            )
        return cls(option, low=ends[0], high=ends[1], logarithmic=bool(rest[1:]))

    def suggest(self, trial: Trial) -> Value:
        """A value for a trial."""
        if self.choices:
            choice: Value = trial.suggest_categorical(self.option, self.choices)
            return choice
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.option, self.low, self.high, log=self.logarithmic)
        return trial.suggest_float(self.option, self.low, self.high, log=self.logarithmic)


def _value(text: str) -> Any:
    """A number as Python reads it, for YAML takes 1e-4 for a word; anything else as YAML has it."""
    for number in (int, float):
        try:
            value = number(text)
        except ValueError:
            continue
        if isfinite(value):
            return value
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise SettingError(f"the value {text!r} of a range is not YAML.") from None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def default_ranges(options: RunOptions) -> list[str]:
    """What is searched if nothing else is asked for, as far as the model has it.

    The paper's: embeddings of 128 to 512, one or two layers of 128 to 512 units, a decoder's dropout of .1 to .9, label
    smoothing of 0 or .1, Gumbel temperatures of .1 to 10. Ours: the learning rate, the sizes and dropout of the
    reorderer, and the first steps that train the reorderer alone.
    """
    reorderer, head = options.model.reorderer, options.model.head
    ranges = ["training.learning_rate=0.0003:0.005:log", "model.head.label_smoothing=0.0,0.1"]
    if not reorderer.shared_embeddings and head.pretrained is None:
        ranges += ["model.head.embedding_dim=128,256,512"]
    if head.kind != "tagging":
        ranges += ["model.head.dropout=0.1:0.9", "model.head.hidden_size=128,256,512"]
        ranges += ["model.head.num_layers=1,2"]
    if head.encoder.kind != "none":
        ranges += ["model.head.encoder.hidden_size=128,256,512", "model.head.encoder.num_layers=1,2"]
    if reorderer.kind in ("separable", "sinkhorn"):
        ranges += ["model.reorderer.encoder.dropout=0.0:0.5"]
        ranges += ["model.reorderer.encoder.hidden_size=32,64,128,256"]
    if reorderer.kind == "separable":
        ranges += ["model.reorderer.dropout=0.0:0.5", "model.reorderer.scorer_hidden_size=128,256,512,1024"]
        ranges += [
            "training.reorderer_first.steps=0,200,1000",
            "training.reorderer_first.probability=0.1:0.9",
        ]
    if reorderer.kind == "sinkhorn" or (
        reorderer.kind in ("separable", "labelled") and reorderer.objective in ("hard", "samples")
    ):
        ranges += ["model.reorderer.temperature=0.1:10.0:log"]
    return ranges
