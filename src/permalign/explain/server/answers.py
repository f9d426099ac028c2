"""What a worker process computes for each operation of the API, as the bytes that are sent to the client."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter

from permalign.errors import PermalignError
from permalign.explain.render.html_page import fragment
from permalign.explain.render.svg import svg
from permalign.explain.server.limits import Limits
from permalign.explain.server.schemas import (
    ExplainAnswer,
    ExplainRequest,
    PredictAnswer,
    PredictRequest,
    SampleRequest,
    SentenceRequest,
)
from permalign.explain.server.served_runs import ModelCache, Search, ServedRun, UnknownModelError
from permalign.explain.server.worker_messages import Answer, Job
from permalign.explain.trace.build_trace import finite
from permalign.explain.trace.explain import compare, explain, sample
from permalign.explain.trace.trace import Comparison, Trace
from permalign.models.base import Model


def explain_sentence(model: Model, request: ExplainRequest, limits: Limits, search: Search) -> ExplainAnswer:
    """Explain the model's own output, or a given one."""
    trace = _explain(model, request, limits, search)
    return ExplainAnswer(trace, fragment(trace))


def draw_samples(
    model: Model, request: SampleRequest, limits: Limits, search: Search
) -> tuple[ExplainAnswer, ...]:
    """Draw trees."""
    traces = sample(model, request.sentence, request.count, seed=request.seed)
    return tuple(ExplainAnswer(trace, fragment(trace)) for trace in traces)


def compare_variants(
    model: Model, request: SentenceRequest, limits: Limits, search: Search
) -> Comparison | None:
    """Compare ways of decoding."""
    return compare(model, request.sentence, beam=search.beam)


def predict_outputs(
    model: Model, request: PredictRequest, limits: Limits, search: Search
) -> tuple[PredictAnswer, ...]:
    """Predict outputs; the operations that are allowed are those of all sentences together."""
    max_operations = limits.max_operations / len(request.sentences)
    predictions = model.predict(
        request.sentences,
        beam=request.beam or search.beam,
        length_penalty=search.length_penalty,
        max_operations=max_operations,
    )
    return tuple(PredictAnswer(prediction.text, finite(prediction.score)) for prediction in predictions)


def draw_svg(model: Model, request: ExplainRequest, limits: Limits, search: Search) -> str:
    """Draw an explanation."""
    return svg(_explain(model, request, limits, search))


def _explain(model: Model, request: ExplainRequest, limits: Limits, search: Search) -> Trace:
    return explain(
        model,
        request.sentence,
        request.target,
        beam=search.beam,
        length_penalty=search.length_penalty,
        max_operations=limits.max_operations,
    )


@dataclass(frozen=True)
class Operation:
    """An operation of the API.

    Attributes:
        request: the type of its requests.
        compute: computes the answer to a request.
        encode: turns an answer into bytes.
        media_type: what these bytes are.
    """

    request: type[SentenceRequest] | type[PredictRequest]
    compute: Callable[[Model, Any, Limits, Search], Any]
    encode: Callable[[Any], bytes]
    media_type: str = "application/json"


OPERATIONS = {
    "explain": Operation(ExplainRequest, explain_sentence, TypeAdapter(ExplainAnswer).dump_json),
    "samples": Operation(SampleRequest, draw_samples, TypeAdapter(tuple[ExplainAnswer, ...]).dump_json),
    "compare": Operation(SentenceRequest, compare_variants, TypeAdapter(Comparison | None).dump_json),
    "predict": Operation(PredictRequest, predict_outputs, TypeAdapter(tuple[PredictAnswer, ...]).dump_json),
    "svg": Operation(ExplainRequest, draw_svg, str.encode, "image/svg+xml"),
}


@dataclass(frozen=True)
class WorkerSettings:
    """What a worker process has to know.

    Attributes:
        runs: the runs by their names.
        limits: how much a request may ask for.
        num_threads: how many threads torch may use.
    """

    runs: dict[str, ServedRun]
    limits: Limits
    num_threads: int

    def to_line(self) -> bytes:
        """Return the settings as one line of JSON."""
        return TypeAdapter(WorkerSettings).dump_json(self) + b"\n"

    @staticmethod
    def from_line(line: bytes) -> "WorkerSettings":
        """Read what `to_line` wrote."""
        return TypeAdapter(WorkerSettings).validate_json(line)


def answer_job(
    job: Job, models: ModelCache, limits: Limits, before: Callable[[], None] = lambda: None
) -> Answer:
    """Answer a job; what is wrong with the request is an answer, too.

    Args:
        job: the job.
        models: the models that requests may name.
        limits: how much a request may ask for.
        before: called when the model is in memory, before it computes anything.
    """
    operation = OPERATIONS[job.operation]
    request = operation.request.model_validate(job.request)
    try:
        model = models.get(request.run, request.checkpoint)
    except UnknownModelError as error:
        return Answer.failure(404, str(error))
    except (PermalignError, OSError) as error:  # it could be read when the server started
        logging.getLogger(__name__).warning("permalign: %s", error)
        return Answer.failure(
            410,
            f"the model of {request.run} can no longer be read, because its folder was moved, deleted or changed. "
            "Put it back, or choose another run.",
        )
    before()
    try:
        answer = operation.compute(model, request, limits, models.runs[request.run].search)
        return Answer(200, operation.media_type, operation.encode(answer))
    except ValueError as error:
        return Answer.failure(422, str(error))
