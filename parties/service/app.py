"""The HTTP interface: routes, status codes and the OpenAPI page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel

from opboost.errors import OpBoostError
from parties.config.serve_section import HttpSection
from parties.errors import PartyError, Unavailable
from parties.service.requests import ScoresAnswer, ScoresBody
from parties.service.versions import Versions


class Refusal(BaseModel):
    """Why there is no answer."""

    detail: str


REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": Refusal, "description": "The body is no JSON."},
    401: {"model": Refusal, "description": "No token of the file."},
    408: {"model": Refusal, "description": "The body came too slowly."},
    413: {"model": Refusal, "description": "Too many records, or too large a body."},
    422: {"model": Refusal, "description": "The request does not fit the model. Nothing was asked."},
    503: {"model": Refusal, "description": "A passive party is away, or too many requests wait."},
    504: {"model": Refusal, "description": "No answer in time."},
}


class _DistinctKeys(Request):
    """A request whose JSON has no key twice: of two values for a column, one would be scored without a word."""

    async def json(self) -> Any:
        try:
            return json.loads(await self.body(), object_pairs_hook=_distinct)
        except (ValueError, RecursionError):
            raise HTTPException(400, "the body is no JSON. Nothing was asked") from None


class _Route(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_distinct(request: Request) -> Response:
            return await handle(_DistinctKeys(request.scope, request.receive))

        return handle_distinct


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise HTTPException(400, "an object of the body has a key twice. Nothing was asked")
    return document


Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def make_app(
    versions: Versions, limits: HttpSection, *, lifespan: Lifespan, note: Callable[[str, str], None]
) -> FastAPI:
    """The application of a service; access to it is checked by `parties.service.access.Gate`, `note` logs defects."""
    app = FastAPIOffline(title="opboost", redoc_url=None, lifespan=lifespan, max_body_size=limits.max_body_bytes)
    app.router.route_class = _Route

    @app.post("/v1/scores", response_model=ScoresAnswer, responses=REFUSALS)
    async def scores(body: ScoresBody, request: Request) -> Response:
        """Score records."""
        if len(body.records) > limits.max_records:
            return _refusal(413, f"{len(body.records)} records; at most {limits.max_records} are scored at once")
        caller = getattr(request.state, "caller", "")
        return await _until_left(request, versions.score(body, caller=caller))

    @app.get("/v1/models")
    async def models() -> dict[str, Any]:
        """Names of the model that answers and of its shadow, and why one of them could not score now."""
        return {
            role: {"model": version.name, "away": version.scorer.refusal or None}
            for role, version in zip(("answering", "shadow"), versions.all, strict=False)
        }

    @app.get("/health", responses={503: REFUSALS[503]})
    async def health() -> Response:
        """Whether the process works; otherwise it should be started again."""
        if all(version.scorer.is_alive for version in versions.all):
            return JSONResponse({"status": "ok"})
        return _refusal(503, "a scorer has stopped")

    @app.get("/ready", responses={503: REFUSALS[503]})
    async def ready() -> Response:
        """Whether a request would be scored now; who is away is for callers with a token alone."""
        if versions.answering.scorer.refusal:
            return _refusal(503, "records cannot be scored now; /v1/models says why")
        return JSONResponse({"status": "ok"})

    @app.get("/metrics")
    async def metrics() -> Response:
        """Metrics in Prometheus's text format."""
        are_ready = {version.name: not version.scorer.refusal for version in versions.all}
        return Response(versions.metrics.text(are_ready), media_type="text/plain; version=0.0.4")

    _handle_errors(app, note)
    return app


async def _until_left(request: Request, scoring: Coroutine[Any, Any, dict[str, Any]]) -> Response:
    """The answer to a request whose body was read; it is given up when the caller closes the connection."""
    task, leaving = asyncio.create_task(scoring), asyncio.create_task(_left(request))
    leaving.add_done_callback(lambda _: task.cancel())
    try:
        return JSONResponse(await task)
    except asyncio.CancelledError:
        if not leaving.done():
            raise
        return _refusal(499, "the caller closed the connection")
    finally:
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _handle_errors(app: FastAPI, note: Callable[[str, str], None]) -> None:
    """Expected errors as one sentence; what a request held is not repeated."""

    @app.exception_handler(Unavailable)
    async def unavailable(request: Request, error: Unavailable) -> Response:
        return _refusal(503, f"{error}. No score was computed")

    @app.exception_handler(TimeoutError)
    async def late(request: Request, error: TimeoutError) -> Response:
        return _refusal(504, "the scores did not come in time")

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        if not request.headers.get("content-type", "").startswith("application/json"):
            return _refusal(
                422, "the body must be JSON, with the header 'Content-Type: application/json'. Nothing was asked"
            )
        fault = error.errors()[0]
        place = ".".join(str(part) for part in fault["loc"] if part != "body" and len(str(part)) <= 40)
        return _refusal(422, f"{place or 'the body'}: {fault['msg']}. Nothing was asked")

    @app.exception_handler(Exception)
    async def defect(request: Request, error: Exception) -> Response:
        note("defect", f"a request ended with {type(error).__name__}, which is a defect of this program")
        return _refusal(500, "a defect of the service; no score was computed")

    async def unfit(request: Request, error: Exception) -> Response:
        return _refusal(422, str(error))

    app.add_exception_handler(PartyError, unfit)
    app.add_exception_handler(OpBoostError, unfit)


def _refusal(status: int, detail: str) -> Response:
    return JSONResponse({"detail": detail}, status, {"Retry-After": "1"} if status == 503 else None)
