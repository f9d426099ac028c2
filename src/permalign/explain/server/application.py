"""The explorer as an ASGI application: its page, and the API behind it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from permalign import __version__
from permalign.explain.render.html_page import fragment
from permalign.explain.render.svg import svg
from permalign.explain.server.docs_page import docs_page
from permalign.explain.server.limits import Limits
from permalign.explain.server.middleware import BodyLimit, HostCheck, RateLimit, SecurityHeaders
from permalign.explain.server.rate_limit import RateLimiter, TooManyRequestsError
from permalign.explain.server.schemas import (
    ExplainAnswer,
    ExplainRequest,
    Failure,
    PredictAnswer,
    PredictRequest,
    RunSummary,
    SampleRequest,
    SentenceRequest,
)
from permalign.explain.server.served_runs import ModelCache, ServedRun
from permalign.explain.server.worker import AnswerTimeoutError, ModelWorker
from permalign.explain.trace.build_trace import finite
from permalign.explain.trace.explain import compare, explain, sample
from permalign.explain.trace.trace import Comparison

MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    404: {"model": Failure, "description": "there is no such run or checkpoint"},
    413: {"model": Failure, "description": "the request is too large"},
    422: {"model": Failure, "description": "the request is invalid; the error says what to change"},
    429: {"model": Failure, "description": "there are too many requests; see the header Retry-After"},
    503: {"model": Failure, "description": "the answer took too long"},
}


class RequestError(ValueError):
    """A request that exceeds a limit. Like any other ValueError, its message is sent to the client."""


def application(runs: dict[str, ServedRun], limits: Limits, allowed_hosts: Sequence[str] = ()) -> ASGIApp:
    """Build the application for some runs.

    All files of the page are read now, so no request can reach the file system.

    Args:
        runs: the runs to offer, by their names.
        limits: how much a request may ask for, and how many requests are accepted.
        allowed_hosts: host names to answer to in addition to localhost and IP addresses.
    """
    worker = ModelWorker(limits.max_pending, limits.timeout_seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        worker.close()

    app = FastAPI(
        title="permalign explorer",
        version=__version__,
        summary="How models of permalign get from sentences to outputs.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # FastAPI's pages load scripts from other hosts; /api/docs is our own page
        redoc_url=None,
        lifespan=lifespan,
    )
    _handle_errors(app)
    _add_page(app)
    _add_api(app, ModelCache(runs), limits, worker)
    # From the inside out: a refusal carries the security headers, too.
    limited = RateLimit(
        BodyLimit(app, limits.max_body_bytes), RateLimiter(limits.burst, limits.requests_per_second)
    )
    return SecurityHeaders(HostCheck(limited, allowed_hosts))


def _add_page(app: FastAPI) -> None:
    """Serve the page, its style sheets and its scripts, each under its own name."""
    folders = (files("permalign.explain.render") / "static", files("permalign.explain.server") / "static")
    static = {file.name: file.read_bytes() for folder in folders for file in folder.iterdir()}

    def serve(name: str) -> Callable[[], Response]:
        media_type = MEDIA_TYPES[name[name.rindex(".") :]]
        return lambda: Response(static[name], media_type=media_type)

    app.get("/", include_in_schema=False)(serve("explorer.html"))
    for name in static:
        app.get(f"/static/{name}", include_in_schema=False)(serve(name))

    @app.get("/api/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))


def _add_api(app: FastAPI, models: ModelCache, limits: Limits, worker: ModelWorker) -> None:
    @app.get("/api/runs", summary="List the runs", tags=["explorer"])
    def list_runs() -> tuple[RunSummary, ...]:
        return tuple(
            RunSummary(run.name, run.about, tuple(run.models), run.examples) for run in models.runs.values()
        )

    @app.post(
        "/api/explain",
        summary="Explain how a model gets from a sentence to its output",
        responses=FAILURES,
        tags=["explorer"],
    )
    async def explain_sentence(request: ExplainRequest) -> ExplainAnswer:
        _check_explain_request(request, limits)

        def job() -> ExplainAnswer:
            model = models.get(request.run, request.checkpoint)
            trace = explain(model, request.sentence, request.target)
            return ExplainAnswer(trace, fragment(trace))

        return await worker.run(job)

    @app.post("/api/samples", summary="Draw trees from a model", responses=FAILURES, tags=["explorer"])
    async def draw_samples(request: SampleRequest) -> tuple[ExplainAnswer, ...]:
        _check_length("sentence", request.sentence, limits)
        if request.count > limits.max_samples:
            raise RequestError(
                f"count is {request.count}, but at most {limits.max_samples} samples can be drawn at once."
            )

        def job() -> tuple[ExplainAnswer, ...]:
            model = models.get(request.run, request.checkpoint)
            traces = sample(model, request.sentence, request.count, seed=request.seed)
            return tuple(ExplainAnswer(trace, fragment(trace)) for trace in traces)

        return await worker.run(job)

    @app.post(
        "/api/compare",
        summary="Compare ways of decoding: greedy, Viterbi and the most probable permutation",
        responses=FAILURES,
        tags=["explorer"],
    )
    async def compare_variants(request: SentenceRequest) -> Comparison | None:
        _check_length("sentence", request.sentence, limits)
        return await worker.run(
            lambda: compare(models.get(request.run, request.checkpoint), request.sentence)
        )

    @app.post(
        "/api/predict", summary="Predict the outputs of sentences", responses=FAILURES, tags=["explorer"]
    )
    async def predict(request: PredictRequest) -> tuple[PredictAnswer, ...]:
        if len(request.sentences) > limits.max_sentences:
            raise RequestError(
                f"there are {len(request.sentences)} sentences, but a request may contain at most "
                f"{limits.max_sentences}."
            )
        for sentence in request.sentences:
            _check_length("sentence", sentence, limits)

        def job() -> tuple[PredictAnswer, ...]:
            model = models.get(request.run, request.checkpoint)
            predictions = model.predict(request.sentences, beam=request.beam)
            return tuple(
                PredictAnswer(prediction.text, finite(prediction.score)) for prediction in predictions
            )

        return await worker.run(job)

    @app.post(
        "/api/svg",
        summary="Draw an explanation as an SVG file",
        responses={**FAILURES, 200: {"content": {"image/svg+xml": {}}}},
        response_class=Response,
        tags=["explorer"],
    )
    async def draw_svg(request: ExplainRequest) -> Response:
        _check_explain_request(request, limits)

        def job() -> str:
            model = models.get(request.run, request.checkpoint)
            return svg(explain(model, request.sentence, request.target))

        return Response(await worker.run(job), media_type="image/svg+xml")


def _check_explain_request(request: ExplainRequest, limits: Limits) -> None:
    _check_length("sentence", request.sentence, limits)
    if request.target is not None:
        _check_length("target", request.target, limits)


def _check_length(name: str, text: str, limits: Limits) -> None:
    """Raise a `RequestError` if a text is empty or too long."""
    if len(text) > limits.max_characters:
        raise RequestError(
            f"the {name} has {len(text):,} characters, but at most {limits.max_characters:,} are allowed. Shorten it."
        )
    length = len(text.split())
    if length == 0:
        raise RequestError(f"the {name} is empty; write at least one word.")
    if length > limits.max_length:
        raise RequestError(
            f"the {name} has {length:,} words, but at most {limits.max_length} are allowed. Shorten it."
        )


def _handle_errors(app: FastAPI) -> None:
    """Answer every failure with its reason, as JSON."""

    def failure(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": reason[:1].upper() + reason[1:]}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        field = ".".join(str(key) for key in first["loc"] if key != "body")
        reason = "it is not JSON" if first["type"] == "json_invalid" else first["msg"].lower()
        return failure(422, f"the request is invalid{field and f' at {field}'}: {reason}.")

    @app.exception_handler(ValueError)
    async def refused(_: Request, error: ValueError) -> JSONResponse:
        return failure(422, str(error))

    @app.exception_handler(LookupError)
    async def not_found(_: Request, error: LookupError) -> JSONResponse:
        return failure(404, str(error))

    @app.exception_handler(TooManyRequestsError)
    async def busy(_: Request, error: TooManyRequestsError) -> JSONResponse:
        return failure(429, "the server is busy; try again.", {"Retry-After": str(error.retry_after)})

    @app.exception_handler(AnswerTimeoutError)
    async def timed_out(_: Request, error: AnswerTimeoutError) -> JSONResponse:
        return failure(503, "the answer took too long; try a shorter sentence.", {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return failure(500, "the server failed; its own output says why.")

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> JSONResponse:
        return failure(error.status_code, str(error.detail))
