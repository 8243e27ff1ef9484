"""Connections of callers: how many each caller and all strangers may have, and how long and large a head may be.

The server's own bound on connections counts everybody's, so that strangers could keep callers out. It keeps a head of
any length, and as many headers and pipelined requests as 256 KiB hold, which cost it ten megabytes and a second. It
holds any number of connections for a minute until their TLS handshake is over, and for ever those over which a byte of
a next request came. It reads what comes over those that it has closed for half a minute more, takes trailers for
headers, and speaks WebSockets past the check of tokens where it finds a library. That a connection is lost it tells the
newest of its requests alone, and it does not read on to notice while others wait.
"""

from __future__ import annotations

import time
from asyncio import AbstractServer, BaseTransport, TimerHandle, Transport
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]

from protocols.transport.descriptors import raise_limit

# Connections over which no token came; beyond that the oldest are shut.
MAX_UNPROVEN = 200

# Connections of one caller; beyond that its oldest idle ones are shut, or it is refused.
MAX_OF_CALLER = 200

# Bytes of a request without a byte of its body among them (a head, trailers, a chunk's extensions), beyond the piece in
# which they end: the parser copies a header anew with every piece.
MAX_HEAD_BYTES = 65_536

# Headers of a request, trailers among them, and requests of a connection that wait until those before are answered.
MAX_HEADERS, MAX_PIPELINED = 100, 16

# Seconds that a TLS handshake may take, and connections of which it is not over; beyond that the oldest are shut. Each
# of them takes fifty kilobytes, and a caller's has its time also where thousands come in a second.
HANDSHAKE_S, MAX_HANDSHAKES = 5.0, 1000

# How often to look whether an answer over TLS is sent.
FLUSH_CHECK_S = 0.05


class CallerConnection(HttpToolsProtocol):
    """A connection; whoever finds a caller's token in a request calls the `prove` of its scope's state.

    Parameters
    ----------
    head_s : float
        How long the head of a request may take to come.
    **given
        What the server gives to its protocol.

    Attributes
    ----------
    is_made : bool
    below : Transport or None
        What is below TLS.
    listener : EncryptedListener or None
        Where the connection came in, over TLS.
    """

    is_made = False
    below: Transport | None = None
    listener: EncryptedListener | None = None
    _caller: str | None = None
    _bodiless_bytes = 0
    _began = 0.0
    _head_timer: TimerHandle | None = None
    _unanswered: Sequence[RequestResponseCycle] = ()
    _is_stopping = False

    def __init__(self, *, head_s: float, **given: Any) -> None:
        super().__init__(**given)
        self._head_s = head_s

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self.is_made = True
        self._began = time.monotonic()
        for connection in self._all_of(None)[:-MAX_UNPROVEN]:
            connection.transport.abort()
        # The server stopped while the handshake was under way, and has told the connections that it knew.
        if self.listener is not None and not self.listener.is_open:
            self.shutdown()

    def data_received(self, data: bytes) -> None:
        if self._bodiless_bytes > MAX_HEAD_BYTES:
            self.send_400_response("The head of the request is too long.")
            return
        self._bodiless_bytes += len(data)
        # The server's own timer ends here, whatever came: an empty line or a body that was answered already, too.
        if self._is_idle() and self._head_timer is None:
            self._head_timer = self.loop.call_later(self._head_s, self.transport.abort)
        super().data_received(data)

    def on_message_begin(self) -> None:
        # The parser ends with whatever is raised in its callbacks, and the connection with it.
        if len(self.pipeline) >= MAX_PIPELINED:
            raise ValueError("too many pipelined requests")
        super().on_message_begin()
        self.scope["state"]["prove"] = self._prove

    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_HEADERS:
            raise ValueError("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._stop_head_timer()
        was_read = not self.flow.read_paused
        super().on_headers_complete()
        # Trailers are counted with the headers, and the request does not have them.
        self.headers = self.headers.copy()
        self._unanswered = [*(cycle for cycle in self._unanswered if not cycle.response_complete), self.cycle]
        # Reading, which ends where a request waits, goes on up to `MAX_PIPELINED`: only then is a loss noticed.
        if was_read:
            self.flow.resume_reading()

    def on_body(self, body: bytes) -> None:
        self._bodiless_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._bodiless_bytes = 0
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        for cycle in self._unanswered:
            cycle.disconnected = not cycle.response_complete
            cycle.message_event.set()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._leave()

    def send_400_response(self, msg: str) -> None:
        super().send_400_response(msg)
        self._leave()

    def shutdown(self) -> None:
        """The server stops: end the connection, after the answer that is under way."""
        self._is_stopping = True
        super().shutdown()
        self._leave()

    def forget(self, callers: Collection[str]) -> None:
        """Take the connection for a stranger's if it is one of these callers', until a token comes over it again."""
        if self._caller in callers:
            self._caller = None

    def _prove(self, caller: str) -> bool:
        """Take the connection for this caller's; False if it has too many, and a request is at work over each."""
        if caller != self._caller:
            others = self._all_of(caller)
            n_over = max(0, len(others) + 1 - MAX_OF_CALLER)
            idle = [connection for connection in others if connection._is_idle()][:n_over]
            if len(idle) < n_over:
                return False
            # They are among the connections for a moment more, and are found here again if others come meanwhile.
            for connection in idle:
                connection.transport.abort()
            self._caller = caller
        return True

    def _all_of(self, caller: str | None) -> list[CallerConnection]:
        """A caller's connections, or strangers', the oldest first."""
        matching = (
            connection for connection in cast("set[CallerConnection]", self.connections) if connection._caller == caller
        )
        return sorted(matching, key=lambda connection: connection._began)

    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _leave(self) -> None:
        """End what is below TLS, which would read on until the other end ends it, too.

        A stranger's connection ends with its answer, and when the server stops a caller's does.
        """
        may_stay = self._caller is not None and not self._is_stopping
        if self.below is None or may_stay or not self.transport.is_closing():
            return
        if self.transport.get_write_buffer_size() and not self.below.is_closing():
            self.loop.call_later(FLUSH_CHECK_S, self._leave)
        else:
            self.below.close()


@dataclass(slots=True)
class EncryptedListener:
    """Where connections over TLS come in.

    Attributes
    ----------
    most : int
        Connections beyond so many are forgotten, the oldest first, and shut where their handshake is not over.
    begun : dict of EncryptedConnection to Transport
        All others, the oldest first.
    server : AbstractServer or None
        None until it listens.
    """

    most: int
    begun: dict[EncryptedConnection, Transport] = field(default_factory=dict)
    server: AbstractServer | None = None

    @property
    def is_open(self) -> bool:
        return self.server is None or self.server.is_serving()

    def add(self, connection: EncryptedConnection, below: Transport) -> None:
        """Count a connection, of which this is below TLS."""
        self.begun[connection] = below
        while len(self.begun) > self.most:
            oldest = next(iter(self.begun))
            below = self.begun.pop(oldest)
            if not oldest.caller.is_made:
                below.abort()


class EncryptedConnection(SSLProtocol):  # type: ignore[misc]
    """TLS under a caller's connection, which the server meets when the handshake is over.

    Parameters
    ----------
    loop : EventLoop
    caller : CallerConnection
    context : SSLContext
    listener : EncryptedListener
    """

    def __init__(self, loop: Any, caller: CallerConnection, context: Any, listener: EncryptedListener) -> None:
        super().__init__(loop, caller, context, None, server_side=True, ssl_handshake_timeout=HANDSHAKE_S)
        self.caller, caller.listener = caller, listener
        self._listener = listener

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.caller.below = cast("Transport", transport)
        self._listener.add(self, self.caller.below)

    def connection_lost(self, error: Exception | None) -> None:
        self._listener.begun.pop(self, None)
        super().connection_lost(error)


class EventLoop(uvloop.Loop):
    """uvloop's event loop, whose servers bound how many TLS handshakes there are and how long they take."""

    async def create_server(self, protocol_factory: Any, *place: Any, ssl: Any = None, **settings: Any) -> Any:
        if ssl is None:
            return await super().create_server(protocol_factory, *place, **settings)
        listener = EncryptedListener(min(MAX_HANDSHAKES, raise_limit() // 4))

        def make() -> EncryptedConnection:
            return EncryptedConnection(self, protocol_factory(), ssl, listener)

        listener.server = await super().create_server(make, *place, **settings)
        return listener.server


def connection_settings(head_s: float) -> dict[str, Any]:
    """The part of `uvicorn.Config` that bounds connections, with the seconds that the head of a request may take."""
    return {"http": partial(CallerConnection, head_s=head_s), "ws": "none", "loop": f"{__name__}:{EventLoop.__name__}"}
