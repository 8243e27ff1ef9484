"""Connections that a test may open and leave as it likes, and a bound on every wait."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from protocols.transport.channel import Timing
from protocols.transport.keys import generate, read_secret
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener
from tests.support.outcomes import outcomes_of

PATIENT = Timing(timeout_s=10, wait_s=10)


def _within(seconds: float, call: Callable[[], Any]) -> Any:
    """What `call` returns or raises, if it ends in time."""
    outcome: list[tuple[Any, BaseException | None]] = []

    def run() -> None:
        try:
            outcome.append((call(), None))
        except BaseException as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert outcome, f"still waiting after {seconds} s"
    if outcome[0][1] is not None:
        raise outcome[0][1]
    return outcome[0][0]


class Network:
    """Opens listeners and connections, and closes at the end of a test what the test has not closed itself."""

    def __init__(self, folder: Path) -> None:
        self.keys = {name: read_secret(generate(folder, name)[0]) for name in ("a", "b", "c", "stranger")}
        self.events: list[str] = []
        self._leave: dict[int, Callable[[], None]] = {}

    def listen(
        self, *peers: str, encrypted: bool = True, timing: Timing = PATIENT, host: str = "127.0.0.1"
    ) -> Listener:
        listener = Listener(
            f"tcp://{host}:*",
            {name: self.keys[name].public if encrypted else None for name in peers},
            keys=self.keys["a"] if encrypted else None,
            timing=timing,
            on_event=self.events.append,
        )
        self._leave[id(listener)] = listener.close
        return listener

    def connect(
        self,
        address: str,
        name: str = "b",
        *,
        own: str | None = "b",
        server: str | None = "a",
        timing: Timing = PATIENT,
    ) -> ConnectedChannel:
        channel = ConnectedChannel(
            address,
            name=name,
            peer="a",
            keys=self.keys[own] if own else None,
            peer_key=self.keys[server].public if server else None,
            timing=timing,
        )
        self._leave[id(channel)] = channel.close
        return channel

    def relay(
        self,
        address: str,
        alter: Callable[[bytes, int], bytes] = lambda data, position: data,
        *,
        altered: str = "there",
    ) -> tuple[str, dict[str, bytearray]]:
        """An address that passes everything on to `address`, and all bytes that went through so far, by direction.

        `alter` changes what goes in one direction, to `address` by default, given its position in the stream.
        """
        target = ("127.0.0.1", int(address.rpartition(":")[2]))
        server = socket.create_server(("127.0.0.1", 0))
        seen = {"there": bytearray(), "back": bytearray()}

        def pump(source: socket.socket, sink: socket.socket, direction: str) -> None:
            with suppress(OSError):
                while data := source.recv(1 << 16):
                    position = len(seen[direction])
                    seen[direction].extend(data)
                    sink.sendall(alter(data, position) if direction == altered else data)
            for end in (source, sink):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            with server:
                near, far = server.accept()[0], socket.create_connection(target)
                with near, far:
                    threading.Thread(target=pump, args=(far, near, "back"), daemon=True).start()
                    pump(near, far, "there")

        threading.Thread(target=serve, daemon=True).start()
        return f"tcp://127.0.0.1:{server.getsockname()[1]}", seen

    def leave(self, end: Listener | ConnectedChannel) -> None:
        self._leave.pop(id(end))()

    def close(self) -> None:
        """Close all ends at once, as parties do that have finished: one that is alone waits a moment for the others."""
        ends = {str(number): close for number, close in self._leave.items()}
        self._leave.clear()
        for found in outcomes_of(ends).values():
            if isinstance(found, BaseException):
                raise found


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    network = Network(tmp_path)
    yield network
    network.close()


@pytest.fixture
def within() -> Callable[[float, Callable[[], Any]], Any]:
    """Call a function that must end within so many seconds, and return or raise what it does."""
    return _within
