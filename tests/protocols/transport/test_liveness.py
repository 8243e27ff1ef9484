"""A peer's program that hangs behind sockets that answer: given up after a while; one that works or waits is not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import zmq

from protocols.errors import PeerAborted, PeerLost, PeerRestarted, UnexpectedMessage
from protocols.messages.liveness import Heartbeat
from protocols.messages.vertical import Abort, Done, RankChunk
from protocols.transport import liveness, zmq_listener
from protocols.transport.channel import Channel, Timing, expect
from protocols.transport.codec import encode
from protocols.transport.liveness import HEARTBEAT, Silence, is_heartbeat
from protocols.transport.zmq_listener import Listener

Within = Callable[[float, Callable[[], Any]], Any]

STALL_S = 0.8
# Transport heartbeats go on all the time: whatever is noticed here is not the network.
TIMING = Timing(timeout_s=10, wait_s=10, stall_s=STALL_S)
HANGS = "is connected, but its program has said nothing for 0.8 s"


@pytest.fixture
def ends(network: Any, within: Within) -> tuple[Channel, Channel, Listener]:
    """The channels of a and of b, who have begun to talk."""
    listener = network.listen("b", "c", timing=TIMING)
    b = network.connect(listener.address, timing=TIMING)
    b.send(Done())
    a = listener.channel("b")
    assert within(5, a.receive) == Done()
    a.send(Done())
    assert within(5, b.receive) == Done()
    return a, b, listener


@contextmanager
def alive(*channels: Channel) -> Iterator[None]:
    """A program that looks at its channels now and then."""
    is_over = threading.Event()

    def look() -> None:
        while not is_over.wait(0.02):
            for channel in channels:
                channel.check()

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    yield
    is_over.set()
    thread.join(5)


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_program_that_hangs_is_given_up_after_the_stall(ends: Any, within: Within, who: str) -> None:
    """One end is waited for by the other one, and never looked at."""
    waiting = ends[1] if who == "a" else ends[0]
    began = time.monotonic()
    with pytest.raises(PeerLost, match=f"^{who} {HANGS}"):
        within(10, waiting.receive)
    assert STALL_S * 0.9 < time.monotonic() - began < STALL_S + 2


def test_without_a_bound_on_its_silence_a_program_that_hangs_is_waited_for(
    monkeypatch: pytest.MonkeyPatch, ends: Any
) -> None:
    """What the test above would show if silence were not counted."""
    monkeypatch.setattr(Silence, "listen", lambda silence: None)
    deadline = time.monotonic() + 3 * STALL_S
    while time.monotonic() < deadline:
        assert not ends[0].is_ready()
        time.sleep(0.02)


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_program_that_goes_on_is_waited_for(ends: Any, within: Within, who: str) -> None:
    working, waiting = (ends[0], ends[1]) if who == "a" else (ends[1], ends[0])
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(waiting.receive()), daemon=True)
    with alive(working):
        thread.start()
        time.sleep(3 * STALL_S)
        assert thread.is_alive()
    working.send(Abort(phase="done", reason=""))
    thread.join(5)
    assert [message.phase for message in found] == ["done"]
    assert working.traffic.sent_bytes > waiting.traffic.sent_bytes / 10


def test_two_that_wait_for_a_third_know_of_each_other(network: Any, ends: Any, within: Within) -> None:
    """a waits for c, which has not come; b waits for a."""
    a, b, listener = ends
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(b.receive()), daemon=True)]
    threads.append(threading.Thread(target=lambda: found.append(listener.channel("c").receive()), daemon=True))
    for thread in threads:
        thread.start()
    time.sleep(3 * STALL_S)
    assert all(thread.is_alive() for thread in threads)
    network.connect(listener.address, own="c", timing=TIMING).send(Abort(phase="c is here", reason=""))
    threads[1].join(5)
    a.send(Abort(phase="b may go on", reason=""))
    threads[0].join(5)
    assert [message.phase for message in found] == ["c is here", "b may go on"]


def test_a_sender_whose_reader_hangs_is_not_stuck(
    network: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zmq_listener, "MAX_AHEAD_BYTES", 8 << 20)
    b = network.connect(network.listen("b", timing=TIMING).address, timing=TIMING)
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(1 << 16, np.uint8))

    def send_for_ever() -> None:
        while True:
            b.send(chunk)

    with pytest.raises(PeerLost, match=r"^a (closed the connection|is connected, but)"):
        within(30, send_for_ever)


def test_a_sender_whose_reader_is_slow_waits(network: Any, within: Within) -> None:
    """What waits is enough for some stalls, and the reader looks at nothing but the next message."""
    timing = Timing(timeout_s=10, wait_s=10, stall_s=2)
    listener = network.listen("b", timing=timing)
    b = network.connect(listener.address, timing=timing)
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(1 << 16, np.uint8))
    errors: list[PeerLost] = []

    def send_for_ever() -> None:
        try:
            while True:
                for _ in range(20):
                    b.send(chunk)
                expect(b, Done)
        except PeerLost as error:
            errors.append(error)

    sender = threading.Thread(target=send_for_ever, daemon=True)
    sender.start()
    channel = listener.channel("b")
    for i in range(1, 31):
        within(5, channel.receive)
        time.sleep(0.2)
        if i % 20 == 0:
            channel.send(Done())
    assert errors == []
    network.leave(listener)
    sender.join(10)
    assert [str(error)[:23] for error in errors] == ["a closed the connection"]


@pytest.mark.parametrize("who", ["a", "b"])
def test_a_reader_that_is_alive_and_reads_nothing_is_given_up(network: Any, within: Within, who: str) -> None:
    """It says that it goes on all the time."""
    timing = Timing(timeout_s=10, wait_s=10, stall_s=30, send_s=1)
    listener, context = network.listen("b", encrypted=False, timing=timing), zmq.Context()
    other = context.socket(zmq.DEALER if who == "b" else zmq.ROUTER)
    other.linger, other.rcvhwm = 0, 1
    sender: Channel
    if who == "b":
        other.routing_id = b"b"
        other.connect(listener.address)
        other.send_multipart(encode(Done()))
        sender = listener.channel("b")
        assert within(5, sender.receive) == Done()
        route: list[bytes] = []
    else:
        port = other.bind_to_random_port("tcp://127.0.0.1")
        sender = network.connect(f"tcp://127.0.0.1:{port}", own=None, server=None, timing=timing)
        sender.send(Done())
        route = [other.recv_multipart()[0]]
    is_over = threading.Event()

    def beat() -> None:
        while not is_over.wait(0.1):
            other.send_multipart([*route, *HEARTBEAT], zmq.NOBLOCK)

    beating = threading.Thread(target=beat, daemon=True)
    beating.start()
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(1 << 18, np.uint8))

    def send_for_ever() -> None:
        while True:
            sender.send(chunk)

    try:
        with pytest.raises(PeerLost, match=f"^{who} is connected, but has read nothing for 1 s; a 'rank"):
            within(20, send_for_ever)
        with pytest.raises(PeerLost):
            within(0.5, lambda: sender.send(Done()))
    finally:
        is_over.set()
        beating.join(5)
        context.destroy(0)


@pytest.mark.parametrize("who", ["a", "b"])
def test_heartbeats_without_end_are_a_flood(ends: Any, within: Within, who: str) -> None:
    a, b, listener = ends
    route, socket = listener._peers.route("b"), listener._socket if who == "a" else b._attempt.socket

    def flood() -> None:
        frames = [route, *HEARTBEAT] if who == "a" else [*HEARTBEAT]
        end = time.monotonic() + 10
        while time.monotonic() < end and not is_over.is_set():
            try:
                socket.send_multipart(frames, zmq.NOBLOCK)
            except zmq.ZMQError:
                time.sleep(0.0001)

    is_over = threading.Event()
    sender = threading.Thread(target=flood, daemon=True)
    sender.start()
    error = UnexpectedMessage if who == "a" else PeerLost
    with pytest.raises(error, match="heartbeats without end"):
        within(8, (b if who == "a" else a).receive)
    is_over.set()
    sender.join(5)


@pytest.mark.parametrize(
    ("frames", "learned"),
    [(HEARTBEAT, PeerRestarted), (encode(Done()), (PeerAborted, PeerRestarted))],
    ids=["heartbeats", "messages"],
)
def test_a_second_connection_that_goes_on_is_shut(network: Any, within: Within, frames: Any, learned: Any) -> None:
    """Told so, or, when it asks for its conversation over another connection, that there is none.

    A shut connection resets those who still write to it: what it was told last may be lost with what it wrote.
    """
    # Nobody hangs here, however slow the machine.
    timing = Timing(timeout_s=10, wait_s=10, stall_s=10)
    listener = network.listen("b", timing=timing)
    first, second = (network.connect(listener.address, timing=timing) for _ in range(2))
    first.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    attempt, end = second._attempt, time.monotonic() + 10
    # One that was shut before it knew that it was connected begins anew, and says nothing here.
    while not attempt.is_met and time.monotonic() < end:
        second._follow_events()
    while not attempt.is_over and time.monotonic() < end:
        with suppress(zmq.Again):
            attempt.socket.send_multipart(frames, zmq.NOBLOCK)
        listener.channel("b").check()
        second._follow_events()
    assert attempt.is_over
    while not second.is_ready() and time.monotonic() < end:
        listener.channel("b").check()
    with pytest.raises(learned):
        within(1, lambda: expect(second, Done))
    first.send(Done())
    assert within(5, listener.channel("b").receive) == Done()


def test_whoever_comes_to_after_it_was_given_up_learns_so(ends: Any, within: Within) -> None:
    a, b, _ = ends
    with pytest.raises(PeerLost, match=f"^b {HANGS}"):
        within(10, a.receive)
    with pytest.raises(PeerLost, match=r"^a (closed the connection|is connected)"):
        within(5, b.receive)


def test_a_peer_of_which_nothing_more_is_expected_may_be_silent(ends: Any) -> None:
    a, _, listener = ends
    a.close()
    deadline = time.monotonic() + 2 * STALL_S
    while time.monotonic() < deadline:
        listener.channel("c").check()
        time.sleep(0.02)


def test_a_heartbeat_is_no_message_and_takes_no_place(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=TIMING)
    early = network.connect(listener.address, timing=TIMING)
    for _ in range(50):
        early._attempt.socket.send_multipart(HEARTBEAT)
    time.sleep(0.5)
    assert not listener.channel("b").is_ready()
    network.connect(listener.address, timing=TIMING).send(Done())
    assert within(5, listener.channel("b").receive) == Done()


def test_only_the_very_bytes_are_a_heartbeat() -> None:
    assert is_heartbeat(HEARTBEAT)
    assert is_heartbeat([memoryview(bytes(HEARTBEAT[0]))])
    for frames in ([], [b""], [*HEARTBEAT, b""], [bytes(HEARTBEAT[0]) + b"\x00"], [bytes(HEARTBEAT[0])[:-1]]):
        assert not is_heartbeat(frames)
    assert Heartbeat.kind.encode() in bytes(HEARTBEAT[0])


def test_silence_counts_only_while_somebody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(liveness.time, "monotonic", lambda: now[0])
    silence = Silence(10.0)
    silence.end()
    for passed, is_stall in ((5, False), (1000, False), (0.5, False)):
        now[0] += passed
        silence.listen()
        assert silence.is_stall is is_stall
    for _ in range(8):
        assert not silence.is_stall
        now[0] += 1
        silence.listen()
    assert silence.is_stall
    silence.end()
    assert not silence.is_stall
