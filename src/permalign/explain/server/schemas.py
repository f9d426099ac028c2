"""What is said over the API: questions as they are checked, answers around the types of `permalign.explain`."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from permalign.explain.server.served_runs import BEST
from permalign.explain.trace.records import Trace


class Question(BaseModel):
    """About one model."""

    model_config = ConfigDict(extra="forbid")

    run: str = Field(description="a name from /api/runs")
    checkpoint: str = Field(BEST, description="a checkpoint of that run, or best")


class AboutSentence(Question):
    """A sentence for one model."""

    sentence: str = Field(description="words, separated by spaces")


class ExplainQuestion(AboutSentence):
    """A sentence to explain."""

    target: str | None = Field(None, description="explain this output instead of the model's own")


class SampleQuestion(AboutSentence):
    """A sentence to draw trees for."""

    count: int = Field(8, ge=1, description="how many trees to draw")
    seed: int = Field(0, ge=0, lt=2**32, description="the same seed draws the same trees")


class PredictQuestion(Question):
    """Some sentences to answer."""

    sentences: list[str] = Field(min_length=1, description="words, separated by spaces")
    beam: int = Field(5, ge=1, le=10, description="how many prefixes the search keeps")


@dataclass(frozen=True)
class RunInfo:
    """A run that can be asked.

    Attributes:
        name: to ask for it.
        about: what it is made of.
        checkpoints: the names of its models: best, then those of training, oldest first.
        examples: sentences to try.
    """

    name: str
    about: str
    checkpoints: tuple[str, ...]
    examples: tuple[str, ...] = ()


@dataclass(frozen=True)
class Explained:
    """A trace, and the same as markup (picture, figures, words) for a page."""

    trace: Trace
    html: str


@dataclass(frozen=True)
class Answered:
    """An output, and its log-probability (null if the model found none)."""

    output: str
    log_prob: float | None


@dataclass(frozen=True)
class Failure:
    """What went wrong, in plain words."""

    error: str
