"""The explorer as an application: its page, and the API behind it."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException

from permalign import __version__
from permalign.explain.render.html_page import fragment
from permalign.explain.render.svg import svg
from permalign.explain.server.docs_page import docs_page
from permalign.explain.server.limits import Limits, TooManyError, TooSlowError, Workshop
from permalign.explain.server.middleware import Guard
from permalign.explain.server.schemas import (
    AboutSentence,
    Answered,
    Explained,
    ExplainQuestion,
    Failure,
    PredictQuestion,
    RunInfo,
    SampleQuestion,
)
from permalign.explain.server.served_runs import Models, Run
from permalign.explain.trace.encoded_sentence import finite
from permalign.explain.trace.explaining import compare, explain, sample
from permalign.explain.trace.records import Comparison

Result = TypeVar("Result")
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
FAILURES: dict[int | str, dict[str, Any]] = {
    404: {"model": Failure, "description": "there is no such run or checkpoint"},
    413: {"model": Failure, "description": "the request is too large"},
    422: {"model": Failure, "description": "the question is not one; the error says what to change"},
    429: {"model": Failure, "description": "too many requests; see the header Retry-After"},
    503: {"model": Failure, "description": "the answer took too long"},
}


class QuestionError(ValueError):
    """A question that cannot be answered, in plain words; a ValueError of ours is one too."""


def application(runs: dict[str, Run], limits: Limits, hosts: Sequence[str] = ()) -> Guard:
    """An application for some runs. Files of the page are read now: no request leads to the file system."""
    workshop = Workshop(limits.waiting, limits.seconds)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        workshop.close()

    app = FastAPI(
        title="permalign explorer",
        version=__version__,
        summary="How models of permalign get from sentences to outputs.",
        openapi_url="/api/openapi.json",
        docs_url=None,  # these pages load scripts from elsewhere; /api/docs is our own
        redoc_url=None,
        lifespan=lifespan,
    )
    _handle_errors(app)
    _add_page(app)
    _add_api(app, Models(runs), limits, workshop)
    return Guard(app, limits, hosts)


def _add_page(app: FastAPI) -> None:
    """The page and what it is made of, each under its own name."""
    folders = (files("permalign.explain.render") / "static", files("permalign.explain.server") / "static")
    static = {entry.name: entry.read_bytes() for folder in folders for entry in folder.iterdir()}

    def serve(name: str) -> Callable[[], Response]:
        kind = TYPES[name[name.rindex(".") :]]
        return lambda: Response(static[name], media_type=kind)

    app.get("/", include_in_schema=False)(serve("explorer.html"))
    for name in static:
        app.get(f"/static/{name}", include_in_schema=False)(serve(name))

    @app.get("/api/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))


def _add_api(app: FastAPI, models: Models, limits: Limits, workshop: Workshop) -> None:
    async def ask(work: Callable[[], Result]) -> Result:
        return await workshop.do(work)

    @app.get("/api/runs", summary="The runs that can be asked", tags=["explorer"])
    def runs() -> tuple[RunInfo, ...]:
        return tuple(
            RunInfo(run.name, run.about, tuple(run.models), run.examples) for run in models.runs.values()
        )

    @app.post("/api/explain", summary="How a model gets to its output", responses=FAILURES, tags=["explorer"])
    async def explain_sentence(question: ExplainQuestion) -> Explained:
        _require_short("sentence", question.sentence, limits)
        if question.target is not None:
            _require_short("target", question.target, limits)

        def work() -> Explained:
            model = models.get(question.run, question.checkpoint)
            trace = explain(model, question.sentence, question.target)
            return Explained(trace, fragment(trace))

        return await ask(work)

    @app.post("/api/samples", summary="Trees drawn from a model", responses=FAILURES, tags=["explorer"])
    async def draw_samples(question: SampleQuestion) -> tuple[Explained, ...]:
        _require_short("sentence", question.sentence, limits)
        if question.count > limits.samples:
            raise QuestionError(
                f"count is {question.count}, but at most {limits.samples} samples can be drawn at once."
            )

        def work() -> tuple[Explained, ...]:
            model = models.get(question.run, question.checkpoint)
            drawn = sample(model, question.sentence, question.count, seed=question.seed)
            return tuple(Explained(trace, fragment(trace)) for trace in drawn)

        return await ask(work)

    @app.post("/api/compare", summary="Several ways of decoding", responses=FAILURES, tags=["explorer"])
    async def compare_variants(question: AboutSentence) -> Comparison | None:
        _require_short("sentence", question.sentence, limits)
        return await ask(lambda: compare(models.get(question.run, question.checkpoint), question.sentence))

    @app.post("/api/predict", summary="Outputs of several sentences", responses=FAILURES, tags=["explorer"])
    async def predict(question: PredictQuestion) -> tuple[Answered, ...]:
        if len(question.sentences) > limits.batch:
            raise QuestionError(
                f"there are {len(question.sentences)} sentences, but at most {limits.batch} fit a request."
            )
        for sentence in question.sentences:
            _require_short("sentence", sentence, limits)

        def work() -> tuple[Answered, ...]:
            model = models.get(question.run, question.checkpoint)
            found = model.predict(question.sentences, beam=question.beam)
            return tuple(Answered(one.text, finite(one.score)) for one in found)

        return await ask(work)

    @app.post(
        "/api/svg",
        summary="The picture of a trace, as a file",
        responses={**FAILURES, 200: {"content": {"image/svg+xml": {}}}},
        response_class=Response,
        tags=["explorer"],
    )
    async def picture(question: ExplainQuestion) -> Response:
        _require_short("sentence", question.sentence, limits)
        if question.target is not None:
            _require_short("target", question.target, limits)
        drawn = await ask(
            lambda: svg(
                explain(models.get(question.run, question.checkpoint), question.sentence, question.target)
            )
        )
        return Response(drawn, media_type="image/svg+xml")


def _require_short(name: str, text: str, limits: Limits) -> None:
    """An `QuestionError` for a text that is empty or too long."""
    if len(text) > limits.characters:
        raise QuestionError(
            f"the {name} has {len(text):,} characters, but at most {limits.characters:,} are read. Shorten it."
        )
    words = len(text.split())
    if words == 0:
        raise QuestionError(f"the {name} is empty; write at least one word.")
    if words > limits.words:
        raise QuestionError(
            f"the {name} has {words:,} words, but at most {limits.words} are read. Shorten it."
        )


def _handle_errors(app: FastAPI) -> None:
    """Every failure is an answer with a reason."""

    def failure(status: int, reason: str, headers: dict[str, str] | None = None) -> JSONResponse:
        return JSONResponse({"error": reason[:1].upper() + reason[1:]}, status, headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"] if part != "body")
        reason = "could not be read as JSON" if first["type"] == "json_invalid" else first["msg"].lower()
        return failure(422, f"the question is wrong{place and f' at {place}'}: {reason}.")

    @app.exception_handler(ValueError)
    async def refused(_: Request, error: ValueError) -> JSONResponse:
        return failure(422, str(error))

    @app.exception_handler(LookupError)
    async def unknown(_: Request, error: LookupError) -> JSONResponse:
        return failure(404, str(error))

    @app.exception_handler(TooManyError)
    async def busy(_: Request, error: TooManyError) -> JSONResponse:
        return failure(429, "the server is busy; try again.", {"Retry-After": str(error.seconds)})

    @app.exception_handler(TooSlowError)
    async def slow(_: Request, error: TooSlowError) -> JSONResponse:
        return failure(503, "the answer took too long; try a shorter sentence.", {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return failure(500, "something went wrong here; the server's own output says what.")

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> JSONResponse:
        return failure(error.status_code, str(error.detail))
