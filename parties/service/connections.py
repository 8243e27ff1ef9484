"""Connections of callers: how many there may be over which no token was proved, and how long a request's head may be.

The server's own bound on connections counts everybody's, so that strangers could keep callers out. It keeps a head of
any length, and as many headers and pipelined requests as 256 KiB hold, which cost it ten megabytes and a second. It
holds any number of connections for a minute until their TLS handshake is over, reads what comes over those that it has
closed for half a minute more, and speaks WebSockets past the check of tokens where it finds a library. That a
connection is lost it tells the newest of its requests alone, and it does not read on to notice while others wait.
"""

from __future__ import annotations

import time
from asyncio import BaseTransport, Transport
from collections.abc import Sequence
from typing import Any, Self, cast

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from protocols.transport.descriptors import raise_limit

# Connections over which no token came; beyond that the oldest are shut.
MAX_UNPROVEN = 200

# Bytes of a request before its body, beyond the piece in which they end.
MAX_HEAD_BYTES = 65_536

# Headers of a request, trailers among them, and requests of a connection that wait until those before are answered.
MAX_HEADERS, MAX_PIPELINED = 100, 16

# Seconds that a TLS handshake may take, and connections of which it is not over; beyond that the oldest are shut. Each
# of them takes fifty kilobytes, and a caller's has its time also where thousands come in a second.
HANDSHAKE_S, MAX_HANDSHAKES = 5.0, 1000

# How often to look whether an answer over TLS is sent.
FLUSH_LOOK_S = 0.05


class CallerConnection(HttpToolsProtocol):
    """A connection; whoever finds a caller's token in a request calls the `prove` of its scope's state.

    Attributes
    ----------
    is_made : bool
    below : Transport or None
        What is below TLS.
    """

    is_made = False
    below: Transport | None = None
    _is_proven = False
    _in_head = True
    _head_bytes = 0
    _began = 0.0
    _unanswered: Sequence[RequestResponseCycle] = ()

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.is_made = True
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
        # The parser ends with whatever is raised in its callbacks, and the connection with it.
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many pipelined requests")
        super().on_message_begin()
        self._in_head = True
        self.scope["state"]["prove"] = self._prove

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._head_bytes = False, 0
        was_read = not self.flow.read_paused
        super().on_headers_complete()
        self._unanswered = [*(one for one in self._unanswered if not one.response_complete), self.cycle]
        # Reading, which ends where a request waits, goes on up to `MAX_PIPELINED`: only then is a loss noticed.
        if was_read:
            self.flow.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        for one in self._unanswered:
            one.disconnected = not one.response_complete
            one.message_event.set()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._leave()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._leave()

    def _prove(self) -> None:
        self._is_proven = True

    def _leave(self) -> None:
        """End a stranger's connection with its answer: TLS would read on until the other end ends it, too."""
        if self.below is None or self._is_proven or not self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() and not self.below.is_closing():
            self.loop.call_later(FLUSH_LOOK_S, self._leave)
        else:
            self.below.close()


class EncryptedConnection(SSLProtocol):  # type: ignore[misc]
    """TLS under a caller's connection, which the server meets when the handshake is over.

    Parameters
    ----------
    loop : EventLoop
    caller : CallerConnection
    context : SSLContext
    begun : dict of EncryptedConnection to Transport
        All connections to the server, the oldest first.
    most : int
        Beyond so many the oldest are forgotten, and shut where their handshake is not over.
    """

    def __init__(self, loop: Any, caller: Any, context: Any, begun: dict[Self, Transport], most: int) -> None:
        super().__init__(loop, caller, context, None, server_side=True, ssl_handshake_timeout=HANDSHAKE_S)
        self._caller, self._begun, self._most = caller, begun, most

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self._begun[self] = self._caller.below = cast("Transport", transport)
        while len(self._begun) > self._most:
            oldest = next(iter(self._begun))
            below = self._begun.pop(oldest)
            if not oldest._caller.is_made:
                below.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._begun.pop(self, None)
        super().connection_lost(error)


class EventLoop(uvloop.Loop):
    """uvloop's event loop, whose servers bound how many TLS handshakes there are and how long they take."""

    async def create_server(self, protocol_factory: Any, *place: Any, ssl: Any = None, **settings: Any) -> Any:
        make = protocol_factory
        if ssl is not None:
            begun: dict[EncryptedConnection, Transport] = {}
            most = min(MAX_HANDSHAKES, raise_limit() // 4)

            def make() -> EncryptedConnection:
                return EncryptedConnection(self, protocol_factory(), ssl, begun, most)

        return await super().create_server(make, *place, **settings)


# The part of `uvicorn.Config` that bounds strangers.
SETTINGS: dict[str, Any] = {"http": CallerConnection, "ws": "none", "loop": f"{__name__}:{EventLoop.__name__}"}
