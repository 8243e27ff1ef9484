"""Access to the HTTP service: bearer tokens from a file, a time for bodies, and a count of every answer.

Tokens are compared by their SHA-256 digests in constant time, with every caller's, so neither the time nor the answer
tells how much of a token was right. Who has none is refused before its body is read.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import time
from hashlib import sha256
from pathlib import Path

from fastapi import HTTPException
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from parties.errors import ConfigError
from parties.service.metrics import ServiceMetrics
from parties.storage.paths import odd_kind
from protocols.transport.keys import NAME_PATTERN, check_private

# Paths that need no token: they tell whether the service is up, and how it is asked.
OPEN_PATHS = re.compile(r"/(health|ready|openapi\.json|docs|static-offline-docs/.*)")

# Shorter tokens could be guessed.
MIN_TOKEN = 32

_LINE = re.compile(rf"(?P<name>{NAME_PATTERN})\s+(?P<token>[A-Za-z0-9._~+/=-]{{{MIN_TOKEN},}})")


class Tokens:
    """The callers' tokens, of which digests are kept.

    Parameters
    ----------
    path : Path
        A caller's name and its token a line; lines that begin with ``#`` are passed over.

    Raises
    ------
    ConfigError, KeyFileError
        If the file cannot be read, is not private, or has a line that is no name and token.
    """

    def __init__(self, path: Path) -> None:
        try:
            check_private(path)
            if kind := odd_kind(path):
                raise ConfigError(f"{path} is {kind}, where a file of tokens is needed")
            lines = path.read_text(encoding="utf-8").splitlines()
        except OSError as error:
            raise ConfigError(f"{path} cannot be read as a file of tokens: {error.strerror}") from None
        except ValueError:
            raise ConfigError(f"{path} cannot be read as a file of tokens: it is no text") from None
        entries = [(n, text) for n, line in enumerate(lines, 1) if (text := line.strip()) and not text.startswith("#")]
        self._digests: dict[str, bytes] = {}
        for n, text in entries:
            match = _LINE.fullmatch(text)
            if match is None or match["name"] in self._digests:
                raise ConfigError(
                    f"{path}: line {n} must be a name, once, and a token of at least {MIN_TOKEN} letters, digits or "
                    "any of -._~+/="
                )
            self._digests[match["name"]] = sha256(match["token"].encode()).digest()
        if not self._digests:
            raise ConfigError(f"{path} holds no token, so nobody could call")

    def caller(self, authorization: str) -> str | None:
        """The name of the caller with this ``Authorization`` header; None if it has no token of the file."""
        scheme, _, token = authorization.partition(" ")
        digest, matched = sha256(token.strip().encode()).digest(), None
        for name, known in self._digests.items():
            if hmac.compare_digest(known, digest):
                matched = name
        return matched if scheme.lower() == "bearer" else None

    def changed(self, new: Tokens) -> set[str]:
        """The callers who have no token among the new ones, or another one."""
        return {name for name, digest in self._digests.items() if new._digests.get(name) != digest}


class Gate:
    """ASGI middleware: authenticates, bounds how long a body may take, and counts answers.

    The caller's name stands in the state of the request's scope.

    Parameters
    ----------
    app : ASGI application
    tokens : Tokens
        Replaced when the file is read again.
    body_s : float
        How long a body may take to come.
    metrics : ServiceMetrics
    """

    def __init__(self, app: ASGIApp, *, tokens: Tokens, body_s: float, metrics: ServiceMetrics) -> None:
        self._app = app
        self.tokens = tokens
        self._body_s = body_s
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if OPEN_PATHS.fullmatch(scope["path"]):
            await self._app(scope, receive, _closing(send))
            return
        began = time.perf_counter()
        caller = self.tokens.caller(Headers(scope=scope).get("authorization", ""))

        async def counting(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.count_answer(caller or "", message["status"], time.perf_counter() - began)
            await send(message)

        state = scope.setdefault("state", {})
        if caller is None:
            refusal = JSONResponse({"detail": "a bearer token is needed"}, 401, {"WWW-Authenticate": "Bearer"})
            await refusal(scope, receive, _closing(counting))
        elif not state.get("prove", bool)(caller):
            refusal = JSONResponse({"detail": "this caller has too many connections"}, 503, {"Retry-After": "1"})
            await refusal(scope, receive, _closing(counting))
        else:
            state["caller"] = caller
            await self._app(scope, self._timed(receive), counting)

    def _timed(self, receive: Receive) -> Receive:
        deadline, is_whole = asyncio.get_running_loop().time() + self._body_s, False

        async def timed() -> Message:
            nonlocal is_whole
            if is_whole:
                return await receive()
            try:
                async with asyncio.timeout_at(deadline):
                    message = await receive()
            except TimeoutError:
                late = f"the body did not come within {self._body_s:g} s"
                raise HTTPException(408, late, {"Connection": "close"}) from None
            is_whole = not message.get("more_body", False)
            return message

        return timed


def _closing(send: Send) -> Send:
    """Sends one answer and ends the connection, over which anything could come of whoever has no token."""

    async def last(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", []), (b"connection", b"close")]
        await send(message)

    return last
