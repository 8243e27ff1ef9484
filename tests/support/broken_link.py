"""TCP forwarder on loopback that breaks every connection after a while, as a bad network does."""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress


class BrokenLink:
    """Forwards to a port, and breaks all connections again and again.

    Parameters
    ----------
    port : int
        Of the party that listens.
    lasts_s : float
        Seconds from break to break.
    growth : float
        By what they grow with every break: on a busy machine, a handshake may need more than the first of them.

    Attributes
    ----------
    port : int
        To connect to.
    n_breaks : int
        Connections that were broken.
    is_down : bool
        Whether it breaks connections at once, as a forwarder does that reaches nobody.
    """

    def __init__(self, port: int, lasts_s: float, *, growth: float = 1.0) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._target, self._lasts_s, self._growth = port, lasts_s, growth
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.port = self._server.getsockname()[1]
        self.n_breaks, self.is_down = 0, False
        self._thread.start()

    def close(self) -> None:
        """Break everything for good."""
        self._is_over.set()
        self._thread.join(5)

    def _serve(self) -> None:
        pairs: dict[socket.socket, socket.socket] = {}
        with closing(self._server), selectors.DefaultSelector() as selector:
            selector.register(self._server, selectors.EVENT_READ)
            next_break = time.monotonic() + self._lasts_s
            while not self._is_over.is_set():
                for key, _ in selector.select(0.02):
                    if key.fileobj is self._server:
                        self._accept(selector, pairs)
                    elif key.fileobj in pairs and not _passed_on(key.fileobj, pairs[key.fileobj]):
                        self._end(selector, pairs, key.fileobj)
                if self.is_down or time.monotonic() > next_break:
                    self._lasts_s *= self._growth
                    next_break = time.monotonic() + self._lasts_s
                    self.n_breaks += len(pairs) // 2
                    for end in list(pairs):
                        self._end(selector, pairs, end)
            for end in list(pairs):
                self._end(selector, pairs, end)

    def _accept(self, selector: selectors.BaseSelector, pairs: dict[socket.socket, socket.socket]) -> None:
        near, _ = self._server.accept()
        try:
            far = socket.create_connection(("127.0.0.1", self._target), 1)
        except OSError:
            near.close()
            return
        pairs[near], pairs[far] = far, near
        for end in (near, far):
            end.settimeout(5)
            selector.register(end, selectors.EVENT_READ)

    def _end(
        self, selector: selectors.BaseSelector, pairs: dict[socket.socket, socket.socket], end: socket.socket
    ) -> None:
        if end in pairs:
            other = pairs.pop(end)
            del pairs[other]
            for one in (end, other):
                selector.unregister(one)
                one.close()


def _passed_on(source: socket.socket, sink: socket.socket) -> bool:
    with suppress(OSError):
        data = source.recv(1 << 16)
        sink.sendall(data)
        return bool(data)
    return False


@contextmanager
def broken_link(port: int, lasts_s: float, *, growth: float = 1.0) -> Iterator[BrokenLink]:
    """A link to a port that breaks every so many seconds."""
    link = BrokenLink(port, lasts_s, growth=growth)
    try:
        yield link
    finally:
        link.close()
