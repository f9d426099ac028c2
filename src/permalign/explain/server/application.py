"""The explorer as an ASGI application: its page, and the API behind it."""

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from permalign import __version__
from permalign.explain.server.answer_cache import AnswerCache
from permalign.explain.server.answers import WorkerSettings
from permalign.explain.server.joint_predictions import JointPredictions
from permalign.explain.server.limits import Limits
from permalign.explain.server.middleware import (
    BodyLimit,
    CancelOnDisconnect,
    HostCheck,
    RateLimit,
    SameSite,
    SecurityHeaders,
)
from permalign.explain.server.page import add_page
from permalign.explain.server.rate_limit import RateLimiter, TooManyRequestsError
from permalign.explain.server.routes import explanation_routes, output_routes, predictions_routes, runs_routes
from permalign.explain.server.schemas import ModelRequest
from permalign.explain.server.served_runs import ServedRun
from permalign.explain.server.worker import WorkerDiedError, worker_command
from permalign.explain.server.worker_messages import Job
from permalign.explain.server.worker_pool import AnswerTimeoutError, WorkerPool


def application(
    runs: dict[str, ServedRun],
    limits: Limits,
    allowed_hosts: Sequence[str] = (),
    command: Sequence[str] | None = None,
) -> ASGIApp:
    """Build the application for some runs.

    Args:
        runs: the runs to offer, by their names.
        limits: how much a request may ask for, and how many requests are accepted.
        allowed_hosts: host names to answer to in addition to localhost and IP addresses.
        command: the command that starts a worker process; None for the usual one.
    """
    num_threads = max(1, (os.cpu_count() or 1) // limits.num_workers)
    pool = WorkerPool(
        worker_command() if command is None else command,
        WorkerSettings(runs, limits, num_threads).to_line(),
        limits.num_workers,
        limits.max_pending,
        limits.timeout_seconds,
    )
    predictions, cache = JointPredictions(pool, limits.max_sentences), AnswerCache()

    async def answer(operation: str, request: ModelRequest) -> Response:
        job = Job(operation, request.model_dump())
        answer = cache.get(job) or await predictions.run(job)
        cache.keep(job, answer)
        return Response(answer.body, answer.status, media_type=answer.media_type)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        await pool.start()
        yield
        await pool.close()

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
    add_page(app)
    for router in (
        runs_routes(runs),
        predictions_routes(runs),
        explanation_routes(limits, answer),
        output_routes(limits, answer),
    ):
        app.include_router(router)
    # From the inside out: a refusal carries the security headers, too.
    limited = RateLimit(
        CancelOnDisconnect(BodyLimit(app, limits.max_body_bytes)),
        RateLimiter(limits.burst, limits.requests_per_second),
    )
    return SecurityHeaders(HostCheck(SameSite(limited), allowed_hosts))


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

    @app.exception_handler(TooManyRequestsError)
    async def busy(_: Request, error: TooManyRequestsError) -> JSONResponse:
        return failure(429, "the server is busy; try again.", {"Retry-After": str(error.retry_after)})

    @app.exception_handler(AnswerTimeoutError)
    async def timed_out(_: Request, error: AnswerTimeoutError) -> JSONResponse:
        return failure(503, "the answer took too long; try a shorter sentence.", {"Retry-After": "5"})

    @app.exception_handler(WorkerDiedError)
    async def died(_: Request, error: WorkerDiedError) -> JSONResponse:
        reason = (
            "the process that computed the answer ended, perhaps for lack of memory; try a shorter sentence."
        )
        return failure(503, reason, {"Retry-After": "5"})

    @app.exception_handler(Exception)
    async def unexpected(_: Request, error: Exception) -> JSONResponse:
        return failure(500, "the server failed; its own output says why.")

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> JSONResponse:
        if error.status_code == 400:  # FastAPI cannot read the body as text
            return failure(422, "the request is invalid: it is not JSON in UTF-8.")
        return failure(error.status_code, str(error.detail))
