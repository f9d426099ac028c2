"""The requests and answers of the API, in addition to the types of `permalign.explain`."""

from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, Field

from permalign.explain.server.served_runs import BEST
from permalign.explain.trace.trace import Trace


class ModelRequest(BaseModel):
    """A request to one model."""

    model_config = ConfigDict(extra="forbid")

    run: str = Field(description="the name of a run, from /api/runs")
    checkpoint: str = Field(BEST, description="the name of a checkpoint of that run, or best")


class SentenceRequest(ModelRequest):
    """A sentence for one model."""

    sentence: str = Field(description="words, separated by spaces")


class ExplainRequest(SentenceRequest):
    """A sentence to explain."""

    target: str | None = Field(None, description="explain this output instead of the model's own")


class SampleRequest(SentenceRequest):
    """A sentence for which to draw trees."""

    count: int = Field(8, ge=1, description="how many trees to draw")
    seed: int = Field(0, ge=0, lt=2**32, description="the same seed draws the same trees")


class PredictionsRequest(BaseModel):
    """A request for predictions that a run has stored."""

    model_config = ConfigDict(extra="forbid")

    run: str = Field(description="the name of a run, from /api/runs")
    split: str = Field(description="one of its splits, from /api/runs")
    only_wrong: bool = Field(False, description="leave out what is correct")
    min_length: int = Field(0, ge=0, description="the smallest number of words of a sentence")
    max_length: int | None = Field(None, ge=0, description="the largest number of words of a sentence")
    start: int = Field(0, ge=0, description="how many of the predictions to skip")
    count: int = Field(20, ge=1, le=100, description="how many predictions to send")


class ExpectedRequest(BaseModel):
    """A request for the expected output of a sentence."""

    model_config = ConfigDict(extra="forbid")

    run: str = Field(description="the name of a run, from /api/runs")
    sentence: str = Field(max_length=4000, description="words, separated by spaces")


class PredictRequest(ModelRequest):
    """Sentences for which to predict outputs."""

    sentences: list[str] = Field(min_length=1, description="sentences of words, separated by spaces")
    beam: int | None = Field(
        None, ge=1, le=10, description="the width of the beam search; null for that of the run"
    )


@dataclass(frozen=True)
class RunSummary:
    """A run that the server offers.

    Attributes:
        name: the name by which requests choose the run.
        about: the kinds of its reorderer and its head.
        checkpoints: the names of its models: best, then the checkpoints of training, oldest first.
        examples: some sentences to try.
        splits: the splits of which it has stored predictions.
    """

    name: str
    about: str
    checkpoints: tuple[str, ...]
    examples: tuple[str, ...] = ()
    splits: tuple[str, ...] = ()


@dataclass(frozen=True)
class ExpectedAnswer:
    """The expected output of a sentence; null if no stored prediction of the run has the sentence."""

    expected: str | None


@dataclass(frozen=True)
class ExplainAnswer:
    """A trace, and the same as HTML for a page: the picture, probabilities and a description in words."""

    trace: Trace
    html: str


@dataclass(frozen=True)
class PredictAnswer:
    """A predicted output and its log-probability, which is null if the model found no output."""

    output: str
    log_prob: float | None


@dataclass(frozen=True)
class Failure:
    """The reason for which a request failed."""

    error: str
