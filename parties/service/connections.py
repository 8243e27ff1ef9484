"""Connections of callers: how many there may be over which no token was proved, and how long a request's head may be.

The server's own bound on connections counts everybody's, so that strangers could keep callers out; it keeps a head of
any length, waits a minute for a TLS handshake, and speaks WebSockets past the check of tokens where it finds a library.
"""

from __future__ import annotations

import time
from asyncio import BaseTransport
from typing import Any, cast

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

# Connections over which no token came; beyond that the oldest are shut.
MAX_UNPROVEN = 200

# Bytes of a request before its body, beyond the piece in which they end.
MAX_HEAD_BYTES = 65_536

# Seconds that a TLS handshake may take. Before it is over, a connection does not count as one.
HANDSHAKE_S = 5.0


class CallerConnection(HttpToolsProtocol):
    """A connection; whoever finds a caller's token in a request calls the `prove` of its scope's state."""

    _is_proven = False
    _in_head = True
    _head_bytes = 0
    _began = 0.0

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._began = time.monotonic()
        others = [one for one in cast("set[CallerConnection]", self.connections) if not one._is_proven]
        for one in sorted(others, key=lambda one: one._began)[:-MAX_UNPROVEN]:
            one.transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._head_bytes > MAX_HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")
            return
        self._head_bytes += len(data) if self._in_head else 0
        super().data_received(data)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self.scope["state"]["prove"] = self._prove

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        super().on_headers_complete()

    def _prove(self) -> None:
        self._is_proven = True


class EventLoop(uvloop.Loop):
    """uvloop's event loop, whose servers wait for a TLS handshake no longer than `HANDSHAKE_S`."""

    async def create_server(self, *place: Any, **settings: Any) -> Any:
        if settings.get("ssl") is not None:
            settings["ssl_handshake_timeout"] = HANDSHAKE_S
        return await super().create_server(*place, **settings)


# The part of `uvicorn.Config` that bounds strangers.
SETTINGS: dict[str, Any] = {"http": CallerConnection, "ws": "none", "loop": f"{__name__}:{EventLoop.__name__}"}
