"""The routes of the API: each checks what a request asks for, and lets a worker process answer it."""

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import APIRouter, HTTPException, Response

from permalign.explain.server.limits import Limits
from permalign.explain.server.schemas import (
    ExpectedAnswer,
    ExpectedRequest,
    ExplainAnswer,
    ExplainRequest,
    Failure,
    ModelRequest,
    PredictAnswer,
    PredictionsRequest,
    PredictRequest,
    RunSummary,
    SampleRequest,
    SentenceRequest,
)
from permalign.explain.server.served_runs import ServedRun
from permalign.explain.server.stored_predictions import PredictionsPage, find_expected, select_page
from permalign.explain.trace.trace import Comparison

FAILURES: dict[int | str, dict[str, Any]] = {
    404: {"model": Failure, "description": "there is no such run or checkpoint"},
    413: {"model": Failure, "description": "the request is too large"},
    415: {"model": Failure, "description": "the request is not declared as JSON"},
    422: {"model": Failure, "description": "the request is invalid; the error says what to change"},
    429: {"model": Failure, "description": "there are too many requests; see the header Retry-After"},
    503: {"model": Failure, "description": "the answer took too long, or too much memory"},
}

Answering = Callable[[str, ModelRequest], Awaitable[Response]]
"""Answers a request for an operation, given by its name."""


class RequestError(ValueError):
    """A request that exceeds a limit. Like any other ValueError, its message is sent to the client."""


def runs_routes(runs: dict[str, ServedRun]) -> APIRouter:
    """Return the route that says which runs there are."""
    router = APIRouter(prefix="/api", tags=["explorer"])

    @router.get("/runs", summary="List the runs")
    def list_runs() -> tuple[RunSummary, ...]:
        return tuple(
            RunSummary(run.name, run.about, tuple(run.models), run.examples, tuple(run.predictions))
            for run in runs.values()
        )

    return router


def predictions_routes(runs: dict[str, ServedRun]) -> APIRouter:
    """Return the routes to predictions that runs have stored; they run no model."""
    router = APIRouter(prefix="/api", tags=["explorer"], responses=FAILURES)

    def find(name: str) -> ServedRun:
        if name not in runs:
            raise HTTPException(404, f"there is no run of that name; choose one of {', '.join(runs)}.")
        return runs[name]

    @router.post("/predictions", summary="List the stored predictions of a split, wrong ones first")
    def list_predictions(request: PredictionsRequest) -> PredictionsPage:
        files = find(request.run).predictions
        if request.split not in files:
            raise HTTPException(
                404, f"there are no predictions of that split; choose one of {', '.join(files)}."
            )
        choice = request.model_dump(exclude={"run", "split"})
        return select_page(files[request.split], **choice)

    @router.post("/expected", summary="Look up the expected output of a sentence in the stored predictions")
    def look_up(request: ExpectedRequest) -> ExpectedAnswer:
        return ExpectedAnswer(find_expected(list(find(request.run).predictions.values()), request.sentence))

    return router


def explanation_routes(limits: Limits, answer: Answering) -> APIRouter:
    """Return the routes that explain one sentence."""
    router = APIRouter(prefix="/api", tags=["explorer"], responses=FAILURES)

    @router.post(
        "/explain",
        summary="Explain how a model gets from a sentence to its output",
        response_model=ExplainAnswer,
    )
    async def explain_sentence(request: ExplainRequest) -> Response:
        _check_explain_request(request, limits)
        return await answer("explain", request)

    @router.post(
        "/compare",
        summary="Compare ways of decoding: greedy, Viterbi and the most probable permutation",
        response_model=Comparison | None,
    )
    async def compare_variants(request: SentenceRequest) -> Response:
        _check_length("sentence", request.sentence, limits)
        return await answer("compare", request)

    @router.post(
        "/svg",
        summary="Draw an explanation as an SVG file",
        responses={200: {"content": {"image/svg+xml": {}}}},
        response_class=Response,
    )
    async def draw_svg(request: ExplainRequest) -> Response:
        _check_explain_request(request, limits)
        return await answer("svg", request)

    return router


def output_routes(limits: Limits, answer: Answering) -> APIRouter:
    """Return the routes that may ask for several outputs at once."""
    router = APIRouter(prefix="/api", tags=["explorer"], responses=FAILURES)

    @router.post("/samples", summary="Draw trees from a model", response_model=tuple[ExplainAnswer, ...])
    async def draw_samples(request: SampleRequest) -> Response:
        _check_length("sentence", request.sentence, limits)
        if request.count > limits.max_samples:
            raise RequestError(
                f"count is {request.count}, but at most {limits.max_samples} samples can be drawn at once."
            )
        return await answer("samples", request)

    @router.post(
        "/predict", summary="Predict the outputs of sentences", response_model=tuple[PredictAnswer, ...]
    )
    async def predict(request: PredictRequest) -> Response:
        if len(request.sentences) > limits.max_sentences:
            raise RequestError(
                f"there are {len(request.sentences)} sentences, but a request may contain at most "
                f"{limits.max_sentences}."
            )
        for sentence in request.sentences:
            _check_length("sentence", sentence, limits)
        return await answer("predict", request)

    return router


def _check_explain_request(request: ExplainRequest, limits: Limits) -> None:
    _check_length("sentence", request.sentence, limits)
    if request.target is not None:
        _check_length("target", request.target, limits)


def _check_length(name: str, text: str, limits: Limits) -> None:
    """Raise a `RequestError` if a text is empty or too long, or cannot be written in an answer."""
    if len(text) > limits.max_characters:
        raise RequestError(
            f"the {name} has {len(text):,} characters, but at most {limits.max_characters:,} are allowed. Shorten it."
        )
    if any("\ud800" <= character <= "\udfff" for character in text):
        raise RequestError(
            f"the {name} has half of a surrogate pair (\\ud...), which is not valid text. Remove it."
        )
    length = len(text.split())
    if length == 0:
        raise RequestError(f"the {name} is empty; write at least one word.")
    if length > limits.max_length:
        raise RequestError(
            f"the {name} has {length:,} words, but at most {limits.max_length} are allowed. Shorten it."
        )
