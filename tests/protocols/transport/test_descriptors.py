"""File descriptors: bytes of a connection are counted, a look takes none away, and a shut one ends for both sides."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import suppress

import pytest

from protocols.transport import descriptors
from protocols.transport.descriptors import (
    WANTED,
    acknowledged_bytes,
    counts_bytes,
    raise_limit,
    received_bytes,
    remote,
    shut,
    unsent_bytes,
)
from tests.support.addresses import has_ipv6

Pair = tuple[socket.socket, socket.socket]


@pytest.fixture(params=["127.0.0.1", "::1"])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    if request.param == "::1" and not has_ipv6():
        pytest.skip("this machine has no IPv6 on loopback")
    family = socket.AF_INET6 if ":" in request.param else socket.AF_INET
    with (
        socket.create_server((request.param, 0), family=family) as server,
        socket.create_connection(server.getsockname()[:2], 5) as near,
        server.accept()[0] as far,
    ):
        near.settimeout(5)
        far.settimeout(5)
        yield near, far


def test_the_other_end_is_told_by_its_address_and_the_socket_stays_open(pair: Pair) -> None:
    near, far = pair
    for _ in range(2):
        assert remote(far.fileno()) == near.getsockname()
    near.sendall(b"x")
    assert far.recv(1) == b"x"


@pytest.mark.skipif(not counts_bytes(), reason="the kernel does not tell how much came over a connection")
def test_bytes_are_counted_on_both_ends(pair: Pair) -> None:
    near, far = pair
    near.sendall(bytes(1000))
    got = b""
    while len(got) < 1000:
        got += far.recv(1000)
    assert received_bytes(far.fileno()) == 1000
    assert received_bytes(near.fileno()) == 0
    far.sendall(b"y")
    near.recv(1)
    assert acknowledged_bytes(near.fileno()) >= 1000
    assert unsent_bytes(near.fileno()) == 0


def test_what_is_no_connection_counts_nothing_and_stays_open() -> None:
    reading, writing = os.pipe()
    try:
        assert remote(reading) is None
        assert [count(reading) for count in (received_bytes, acknowledged_bytes, unsent_bytes)] == [0, 0, 0]
        shut(reading)
        os.write(writing, b"x")
        assert os.read(reading, 1) == b"x"
    finally:
        os.close(reading)
        os.close(writing)
    assert remote(reading) is None


def test_a_shut_connection_ends_for_both_sides(pair: Pair) -> None:
    near, far = pair
    shut(far.fileno())
    assert near.recv(1) == b""
    assert far.fileno() >= 0


@pytest.mark.parametrize("delivers", [True, False])
def test_what_was_sent_before_is_delivered_where_that_is_asked_for(pair: Pair, *, delivers: bool) -> None:
    near, far = pair
    far.setblocking(False)
    n_sent = far.send(bytes(1 << 22))
    shut(far.fileno(), delivers=delivers)
    far.close()
    n_came = 0
    with suppress(ConnectionError):
        while piece := near.recv(1 << 16):
            n_came += len(piece)
    assert (n_came == n_sent) == delivers


def test_the_limit_is_raised_as_far_as_it_may_and_no_further(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "setrlimit", lambda kind, limits: asked.append(limits))
    for soft, hard, found in ((1024, 4096, 4096), (1024, WANTED * 2, WANTED), (4096, 4096, 4096), (-1, -1, WANTED)):
        monkeypatch.setattr(resource, "getrlimit", lambda kind, limits=(soft, hard): limits)
        assert raise_limit() == found
    assert asked == [(4096, 4096), (WANTED, WANTED * 2)]

    def refuse(kind: int, limits: tuple[int, int]) -> None:
        raise ValueError

    monkeypatch.setattr(resource, "setrlimit", refuse)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (1024, 4096))
    assert descriptors.raise_limit() == 1024
