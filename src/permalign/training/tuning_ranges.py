"""The search space of `permalign tune`: for each option, a list of values or an interval.

>>> Range.parse("training.learning_rate=1e-4:1e-2:log")
Range(option='training.learning_rate', choices=(), low=0.0001, high=0.01, logarithmic=True)
>>> Range.parse("model.head.hidden_size=64,128,256").choices
(64, 128, 256)
"""

from dataclasses import dataclass
from math import isfinite
from typing import Any, Protocol, Self

from permalign.errors import excerpt
from permalign.options.run import RunOptions
from permalign.training.experiments import SettingError
from permalign.yaml_files import YamlError, parse_yaml

Value = float | int | str | bool | None


class Trial(Protocol):
    """The interface of Optuna's trials, which suggest values for options."""

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        """Suggest one of the choices."""

    def suggest_float(self, name: str, low: float, high: float, *, log: bool = False) -> float:
        """Suggest a number between low and high."""

    def suggest_int(self, name: str, low: int, high: int, *, log: bool = False) -> int:
        """Suggest an integer between low and high."""


@dataclass(frozen=True)
class Range:
    """The values that an option may take: one of the choices, or any number between low and high.

    Attributes:
        option: the dotted name of the option.
        choices: the values to choose from; empty for an interval.
        low: the lower end of the interval.
        high: the upper end of the interval.
        logarithmic: whether to search the interval on a logarithmic scale.
    """

    option: str
    choices: tuple[Value, ...] = ()
    low: float = 0.0
    high: float = 0.0
    logarithmic: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse ``option=a,b,c``, ``option=low:high`` or ``option=low:high:log``; integer ends give integers."""
        option, equals, values = text.partition("=")
        low, *high_and_scale = values.split(":")
        if not (option and equals and values):
            raise SettingError(
                f"{text!r} is not a range; expected option=a,b,c or option=low:high or option=low:high:log."
            )
        if not high_and_scale:
            return cls(option, choices=tuple(_value(value) for value in values.split(",")))
        high, *scale = high_and_scale
        ends = [_value(end) for end in (low, high)]
        if scale not in ([], ["log"]) or not all(_is_number(end) for end in ends):
            raise SettingError(
                f"{text!r} is not a range; expected {option}=low:high or {option}=low:high:log, with numbers."
            )
        if ends[0] >= ends[1] or (scale and ends[0] <= 0):
            raise SettingError(f"{text!r} is an empty range; low must be below high, and above 0 for log.")
        return cls(option, low=ends[0], high=ends[1], logarithmic=bool(scale))

    def suggest(self, trial: Trial) -> Value:
        """Suggest a value for a trial."""
        if self.choices:
            choice: Value = trial.suggest_categorical(self.option, self.choices)
            return choice
        if isinstance(self.low, int) and isinstance(self.high, int):
            return trial.suggest_int(self.option, self.low, self.high, log=self.logarithmic)
        return trial.suggest_float(self.option, self.low, self.high, log=self.logarithmic)


def _value(text: str) -> Any:
    """Parse a number as in Python, because 1e-4 is a string in YAML; parse anything else as YAML."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if isfinite(value):
            return value
    try:
        return parse_yaml(text)
    except YamlError:
        raise SettingError(f"the value {excerpt(text)} of a range is not YAML.") from None


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and isfinite(value)


def default_ranges(options: RunOptions) -> list[str]:
    """The default search space, restricted to the options that the model has.

    The following ranges are those of the ReMoto paper: embeddings of size 128 to 512, one or two layers of 128 to 512
    units, decoder dropout from 0.1 to 0.9, label smoothing of 0 or 0.1, and Gumbel temperatures from 0.1 to 10. The
    search space also has the learning rate, sizes and dropout of the reorderer, and ``training.reorderer_first``.
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
