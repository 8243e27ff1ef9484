"""Strangers who connect: however many they are, peers keep their places and the party its descriptors and memory."""

from __future__ import annotations

import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext, suppress
from typing import Any

import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import PeerLost
from protocols.messages.vertical import Abort, Done
from protocols.transport import zmq_authenticator, zmq_listener
from protocols.transport.channel import Timing
from protocols.transport.descriptors import WANTED, raise_limit
from protocols.transport.peers import Peers
from protocols.transport.receive_quota import MAX_OUTSIDE_BYTES, UNPROVED_BYTES
from protocols.transport.zmq_connections import MAX_EVENTS, WatchedConnections, bounded, due_events, latest
from protocols.transport.zmq_listener import CROWDED, FLOODING, NO_HANDSHAKE, Listener

Within = Callable[[float, Callable[[], Any]], Any]

MOST = 20
TIMING = Timing(timeout_s=2, wait_s=20)

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much came over a connection")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zmq_listener, "MAX_OUTSIDERS", MOST)


@pytest.fixture
def opened() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def connect(listener: Listener) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(listener.address.rpartition(":")[2])), timeout=5)


def is_open(end: socket.socket) -> bool:
    end.setblocking(False)
    with suppress(BlockingIOError):
        try:
            while end.recv(4096):
                pass
        except ConnectionError:
            pass
        return False
    return True


def hear(listener: Listener, peer: str = "b") -> Any:
    return listener.channel(peer).receive()


def settle(condition: Callable[[], bool], seconds: float = 5) -> None:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert condition()


def test_of_too_many_idle_connections_some_are_shut_and_a_peer_stays_and_comes(
    network: Any, within: Within, few: None, opened: ExitStack
) -> None:
    listener = network.listen("b", "c", timing=Timing(timeout_s=10, wait_s=20))
    first = network.connect(listener.address)
    first.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    # The listener's own thread sleeps from here on.
    idle = [opened.enter_context(connect(listener)) for _ in range(3 * MOST)]
    settle(lambda: sum(map(is_open, idle)) == MOST)
    network.connect(listener.address, own="c").send(Done())
    assert within(5, lambda: hear(listener, "c")) == Done()
    first.send(Abort(phase="still here", reason=""))
    assert within(5, lambda: hear(listener)).phase == "still here"
    assert set(network.events) <= {CROWDED, NO_HANDSHAKE}


def test_nobody_is_connected_any_more_when_the_socket_is_closed(
    network: Any, within: Within, monkeypatch: pytest.MonkeyPatch, opened: ExitStack
) -> None:
    """libzmq reads no more from a connection that outlives its socket: a peer that floods it ended the process."""
    listener = network.listen("b")
    peer = network.connect(listener.address)
    peer.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    others = [opened.enter_context(connect(listener)) for _ in range(3)]
    settle(lambda: len(listener._connections._quotas._open) == 4)
    stood: list[bool] = []
    close = WatchedConnections.close

    def closing(connections: WatchedConnections) -> None:
        close(connections)
        assert not listener._socket.closed
        stood.extend([*map(is_open, others), bool(connections._standing)])

    monkeypatch.setattr(WatchedConnections, "close", closing)
    listener.close()
    assert stood == [False] * 4


def test_without_a_limit_all_of_them_stay(network: Any, monkeypatch: pytest.MonkeyPatch, opened: ExitStack) -> None:
    monkeypatch.setattr(zmq_listener, "MAX_OUTSIDERS", 1000)
    listener = network.listen("b", timing=Timing(timeout_s=10, wait_s=20))
    idle = [opened.enter_context(connect(listener)) for _ in range(3 * MOST)]
    time.sleep(0.5)
    assert all(map(is_open, idle))


# A greeting, the head of a frame of a mebibyte, and what need not be a HELLO.
JUNK = (
    b"\xff"
    + bytes(8)
    + b"\x7f\x03\x01"
    + b"CURVE".ljust(52, b"\0")
    + b"\x06"
    + (1 << 20).to_bytes(8, "big")
    + bytes(700)
)


@linux
@pytest.mark.parametrize("words", [b"", JUNK])
def test_a_connection_that_proved_its_key_outlasts_all_that_did_not(
    network: Any, within: Within, few: None, opened: ExitStack, words: bytes
) -> None:
    """A peer that has connected waits for its turn while strangers come by the hundred, and nobody reads."""
    listener = network.listen("b", timing=TIMING)
    waiting = network.connect(listener.address, timing=TIMING)
    waiting.send(Done())
    time.sleep(0.3)
    idle = [opened.enter_context(connect(listener)) for _ in range(100)]
    for end in idle:
        with suppress(OSError):
            end.sendall(words)
    settle(lambda: sum(map(is_open, idle)) < MOST)
    waiting.check()
    assert within(5, lambda: hear(listener)) == Done()
    assert set(network.events) <= {CROWDED, NO_HANDSHAKE}


@linux
def test_strangers_who_send_more_do_not_have_a_handshake_cut_that_takes_a_while(
    network: Any, few: None, opened: ExitStack
) -> None:
    """Ten connections on which nothing came yet stand among twenty: that none does has a chance of 1 in 30 million."""
    listener = network.listen("b", timing=Timing(timeout_s=10, wait_s=20))
    for _ in range(MOST):
        opened.enter_context(connect(listener)).sendall(JUNK)
    time.sleep(0.2)
    slow = [opened.enter_context(connect(listener)) for _ in range(10)]
    time.sleep(0.3)
    assert any(map(is_open, slow))


def test_a_listed_key_is_told_by_what_the_listener_sends(network: Any, within: Within) -> None:
    listener = network.listen("b")
    sent = {}
    for own in ("stranger", "b"):
        address, seen = network.relay(listener.address)
        with pytest.raises(PeerLost, match="refused") if own == "stranger" else nullcontext():
            network.connect(address, own=own).send(Done())
        settle(lambda seen=seen, own=own: len(seen["back"]) > (UNPROVED_BYTES if own == "b" else 234))
        time.sleep(0.1)
        sent[own] = len(seen["back"]) + 1
    assert within(5, lambda: hear(listener)) == Done()
    assert sent["stranger"] <= UNPROVED_BYTES < sent["b"]


@linux
def test_a_peer_that_opens_one_connection_after_the_other_is_bounded_too(
    network: Any, within: Within, few: None, opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_authenticator, "MAX_CONNECTIONS", 1000)
    listener = network.listen("b", "c")
    network.connect(listener.address, own="c").send(Done())
    assert within(5, lambda: hear(listener, "c")) == Done()
    ends = []
    with zmq.Context() as context:
        for _ in range(MOST + 10):
            end = opened.enter_context(context.socket(zmq.DEALER))
            end.linger, keys = 0, network.keys
            end.curve_serverkey, end.curve_secretkey = keys["a"].public, keys["b"].secret
            end.curve_publickey = keys["b"].public
            end.reconnect_ivl = -1
            monitor = opened.enter_context(end.get_monitor_socket(zmq.Event.DISCONNECTED))
            end.connect(listener.address)
            ends.append(monitor)
            time.sleep(0.01)
        # A quarter, and one for each of two peers, are left: others need room for their handshakes.
        n_cut = MOST + 10 - (MOST // 4 + 2)
        settle(lambda: sum(monitor.poll(0) > 0 for monitor in ends) >= n_cut)
        time.sleep(0.2)
        assert sum(monitor.poll(0) > 0 for monitor in ends) == n_cut
        listener.channel("c").check()
        opened.close()


def test_strangers_that_come_and_go_do_not_stop_the_heartbeats_of_a_busy_listener(network: Any, within: Within) -> None:
    """Every connection is two or three events, and ZeroMQ holds two thousand of them."""
    listener = network.listen("b", timing=TIMING)
    peer = network.connect(listener.address, timing=TIMING)
    peer.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    for _ in range(1200):
        connect(listener).close()
    deadline = time.monotonic() + 2 * TIMING.timeout_s
    while time.monotonic() < deadline:
        peer.check()
        time.sleep(0.05)
    listener.channel("b").check()


HANDSHAKE: dict[str, int] = {
    "nothing": 0,
    "half a greeting": 11,
    "a greeting": 64,
    "HELLO": 266,
    "half of INITIATE": 400,
}


@pytest.mark.parametrize("n_bytes", HANDSHAKE.values(), ids=HANDSHAKE)
def test_a_handshake_that_stops_half_way_is_ended_after_the_timeout(network: Any, within: Within, n_bytes: int) -> None:
    timing = Timing(timeout_s=0.5, wait_s=20)
    listener = network.listen("b", timing=timing)
    address, seen = network.relay(listener.address)
    network.connect(address).send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    assert len(seen["there"]) > max(HANDSHAKE.values())
    with connect(listener) as half:
        half.sendall(bytes(seen["there"][:n_bytes]))
        began = time.monotonic()
        settle(lambda: not is_open(half), 5)
        assert time.monotonic() - began < 3


@linux
def test_strangers_together_send_no_more_than_a_greeting_takes(network: Any, within: Within, opened: ExitStack) -> None:
    """A frame of 60 MiB is announced before the handshake is over, and ZeroMQ makes room for it."""
    listener = network.listen("b", timing=Timing(timeout_s=10, wait_s=20))
    greeting = b"\xff" + bytes(8) + b"\x7f\x03\x00CURVE" + bytes(15) + bytes(32)
    frame = b"\x06" + (60 << 20).to_bytes(8, "big")
    sent = [0] * 6

    def flood(place: int, end: socket.socket) -> None:
        with suppress(OSError):
            end.sendall(greeting + frame)
            while sent[place] < 59 << 20:
                sent[place] += end.send(bytes(1 << 20))

    ends = [opened.enter_context(connect(listener)) for _ in sent]
    threads = [threading.Thread(target=flood, args=item, daemon=True) for item in enumerate(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    settle(lambda: sum(n for n, end in zip(sent, ends, strict=True) if is_open(end)) <= MAX_OUTSIDE_BYTES)
    listener.channel("b").check()
    assert FLOODING in network.events
    network.connect(listener.address).send(Done())
    assert within(5, lambda: hear(listener)) == Done()


def test_a_listening_party_takes_the_descriptors_that_it_may_have() -> None:
    code = (
        "import resource; from protocols.transport.descriptors import raise_limit; "
        "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 300)); print(raise_limit()); "
        "print(*resource.getrlimit(resource.RLIMIT_NOFILE)); print(raise_limit())"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["300", "300", "300", "300"]


def test_a_limit_that_is_high_enough_stays() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert raise_limit() >= min(WANTED, before[1] if before[1] != resource.RLIM_INFINITY else WANTED)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] >= before[0]


A, D, F = zmq.Event.ACCEPTED, zmq.Event.DISCONNECTED, zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
moves = st.lists(st.tuples(st.integers(1, 3), st.booleans()), max_size=30)


def told(descriptors: list[tuple[int, bool]], is_open: set[int]) -> list[dict[str, int]]:
    """Events as they can follow each other: a connection ends before its descriptor serves again."""
    found = []
    for descriptor, has_failed in descriptors:
        if has_failed and descriptor in is_open:
            found.append({"event": F, "value": 0})
        found.append({"event": D if descriptor in is_open else A, "value": descriptor})
        is_open ^= {descriptor}
    return found


@given(before=moves, after=moves)
def test_of_events_that_nobody_fetched_enough_is_kept_to_know_who_is_still_there(before: Any, after: Any) -> None:
    is_open: set[int] = set()
    heard, events = told(before, is_open), []
    speaking = sorted(is_open)
    events = told(after, is_open)
    lost = []
    for kept in (events, latest(events)):
        peers = Peers(map(str, speaking), timing=TIMING)
        for event in heard:
            if event["event"] != F:
                peers.note_event(event["value"], is_accepted=event["event"] == A)
        for descriptor in speaking:
            assert peers.take(str(descriptor), b"", descriptor, [b""])
        for event in kept:
            if event["event"] != F:
                peers.note_event(event["value"], is_accepted=event["event"] == A)
        lost.append([peers.is_lost(str(descriptor)) for descriptor in speaking])
    assert lost[0] == lost[1]
    assert len(latest(events)) <= 2 * 3 + 3


@given(moved=moves)
def test_the_end_of_a_connection_waits_and_holds_up_no_other(moved: Any) -> None:
    events = told(moved, set())
    assert due_events(events, is_all=True) == (events, [])
    due, waiting = due_events(events, is_all=False)
    assert D not in [event["event"] for event in due]
    for descriptor in (1, 2, 3):
        mine = [event for event in events if event["value"] == descriptor]
        n_due = next((i for i, event in enumerate(mine) if event["event"] == D), len(mine))
        assert [event for event in due if event["value"] == descriptor] == mine[:n_due]
        assert [event for event in waiting if event["value"] == descriptor] == mine[n_due:]


def test_too_many_news_are_forgotten_and_the_ends_among_them_counted() -> None:
    events = [{"event": kind, "value": 5, "was_cut": 0} for _ in range(MAX_EVENTS) for kind in (A, D)]
    assert bounded(events[:MAX_EVENTS]) == (events[:MAX_EVENTS], 0)
    assert bounded(events) == (events[-2:], MAX_EVENTS - 1)
