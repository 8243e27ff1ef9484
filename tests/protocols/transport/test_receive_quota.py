"""A peer with a key, or a name in plain text, that sends without end: it is cut off before it fills the memory."""

from __future__ import annotations

import math
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from typing import Any

import numpy as np
import pytest

from protocols.errors import ProtocolError, UnexpectedMessage
from protocols.messages.vertical import Done, RankChunk
from protocols.transport import presence, receive_quota, zmq_attempt, zmq_listener
from protocols.transport.channel import Timing
from protocols.transport.codec import MAX_ARRAYS
from protocols.transport.receive_quota import UNPROVED_BYTES, Cut, Outsiders, ReceiveQuotas
from protocols.transport.zmq_listener import FLOODING

Within = Callable[[float, Callable[[], Any]], Any]

LIMIT = 8 << 20
MORE, COMMAND, LONG_MORE = b"\x01", b"\x04", b"\x03"

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells how much came over a connection")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    for user in (zmq_listener, presence, zmq_attempt):
        monkeypatch.setattr(user, "MAX_AHEAD_BYTES", LIMIT)


def greet(peer: socket.socket, name: bytes, kind: bytes) -> None:
    """Speak ZMTP without keys until both sides are ready for messages."""
    peer.sendall(b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + bytes(32))
    body = b"\x05READY"
    for key, value in ((b"Socket-Type", kind), (b"Identity", name)):
        body += bytes([len(key)]) + key + len(value).to_bytes(4, "big") + value
    peer.sendall(COMMAND + bytes([len(body)]) + body)
    heard = b""
    while b"READY" not in heard:
        heard += peer.recv(1 << 10)


def flood(peer: socket.socket, frames: bytes, most: int) -> int:
    """Send the same frames over and over, until the other side has enough; returns how many bytes left."""
    n_sent = 0
    with suppress(OSError):
        while n_sent < most:
            peer.sendall(frames)
            n_sent += len(frames)
    return n_sent


FRAMES = {
    "large frames": LONG_MORE + (1 << 20).to_bytes(8, "big") + bytes(1 << 20),
    "small frames": (MORE + b"\x20" + bytes(32)) * (1 << 15),
}


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
def test_a_message_without_end_is_cut_off_at_the_listener(
    network: Any, within: Within, narrow: None, frames: bytes
) -> None:
    listener = network.listen("b", "c", encrypted=False)
    sent: list[int] = []
    with socket.create_connection(("127.0.0.1", int(listener.address.rpartition(":")[2]))) as peer:
        greet(peer, b"b", b"DEALER")
        sender = threading.Thread(target=lambda: sent.append(flood(peer, frames, 400 << 20)), daemon=True)
        sender.start()
        deadline = time.monotonic() + 20
        while sender.is_alive() and time.monotonic() < deadline:
            listener.channel("c").check()
            time.sleep(0.01)
        assert not sender.is_alive()
    assert 0 < sent[0] < 200 << 20
    listener.channel("c").check()
    assert network.events == [FLOODING]
    channel = network.connect(listener.address, "c", own=None, server=None)
    channel.send(Done())
    assert within(5, listener.channel("c").receive) == Done()


@pytest.mark.parametrize("frames", FRAMES.values(), ids=FRAMES)
def test_a_message_without_end_is_cut_off_at_the_one_who_connects(
    network: Any, within: Within, narrow: None, frames: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is told nothing more, whether the news that its connection has ended came already or not."""
    sent: list[int] = []
    ends: list[dict[str, bool]] = []
    with closing(socket.create_server(("127.0.0.1", 0))) as server:

        def serve() -> None:
            peer = server.accept()[0]
            with peer:
                greet(peer, b"", b"ROUTER")
                sent.append(flood(peer, frames, 400 << 20))

        threading.Thread(target=serve, daemon=True).start()
        channel = network.connect(f"tcp://127.0.0.1:{server.getsockname()[1]}", own=None, server=None)
        with pytest.raises(UnexpectedMessage, match=r"^a sent more than 8 MiB ahead of its turn, or "):
            within(20, channel.receive)
    attempt, close = channel._attempt, channel._attempt.close
    monkeypatch.setattr(attempt, "follow", lambda: None)
    monkeypatch.setattr(attempt, "is_over", False)
    monkeypatch.setattr(attempt, "close", lambda **end: (ends.append(end), close(**end)))
    within(5, channel.close)
    assert ends == [{"is_lost": True}]


def test_messages_that_are_large_together_are_cut_off_and_end_the_run(
    network: Any, within: Within, narrow: None
) -> None:
    listener = network.listen("b", "c")
    flooding = network.connect(listener.address)
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(4 << 20, np.uint8))
    flooding.send(Done())
    assert within(5, listener.channel("b").receive) == Done()

    def send() -> None:
        with suppress(ProtocolError):
            for _ in range(200):
                flooding.send(chunk)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    time.sleep(0.5)
    with pytest.raises(UnexpectedMessage, match=r"^b sent more than 8 MiB ahead of its turn$"):
        within(10, listener.channel("c").receive)
    sender.join(10)
    assert not sender.is_alive()


def test_messages_that_are_large_together_are_cut_off_at_the_one_who_connects(
    network: Any, within: Within, narrow: None
) -> None:
    # Whoever was cut off is waited for as long as this.
    listener = network.listen("b", timing=Timing(timeout_s=10, wait_s=2))
    channel = network.connect(listener.address)
    channel.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(4 << 20, np.uint8))

    def send() -> None:
        with suppress(ProtocolError):
            for _ in range(200):
                listener.channel("b").send(chunk)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    time.sleep(0.5)
    with pytest.raises(UnexpectedMessage, match=r"^a sent more than 8 MiB ahead of its turn, or "):
        within(10, lambda: [channel.receive() for _ in range(200)])
    network.leave(channel)
    sender.join(15)
    assert not sender.is_alive()


def test_whoever_is_read_may_send_more_than_the_limit_in_all(network: Any, within: Within, narrow: None) -> None:
    listener = network.listen("b")
    channel = network.connect(listener.address)
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(1 << 20, np.uint8))
    for _ in range(3 * LIMIT >> 20):
        channel.send(chunk)
        assert within(5, listener.channel("b").receive).start == 0
        listener.channel("b").send(chunk)
        assert within(5, channel.receive).start == 0
    assert network.events == []


@pytest.mark.parametrize("n_frames", [MAX_ARRAYS + 2, 3000])
def test_of_a_message_with_too_many_frames_no_more_is_kept_than_shows_it(
    network: Any, within: Within, n_frames: int
) -> None:
    listener = network.listen("b")
    channel = network.connect(listener.address)
    channel._attempt.socket.send_multipart([b"x"] * n_frames)
    taken: list[int] = []
    take = listener._peers.take
    listener._peers.take = lambda *what: (taken.append(len(what[-1])), take(*what))[1]
    channel.send(Done())
    # It comes over another connection, for which its sender looks again: what came before it was no message.
    deadline = time.monotonic() + 20
    while not listener.channel("b").is_ready() and time.monotonic() < deadline:
        channel.is_ready()
    assert within(20, listener.channel("b").receive) == Done()
    assert taken[0] == MAX_ARRAYS + 2


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        near = socket.create_connection(server.getsockname())
        far = server.accept()[0]
    with near, far:
        yield near, far


def test_what_was_taken_counts_no_more(pair: tuple[socket.socket, socket.socket]) -> None:
    near, far = pair
    for taken, is_cut in (([900], False), ([0], True)):
        arrivals = ReceiveQuotas(1000)
        arrivals.begin(far.fileno())
        near.sendall(bytes(900))
        time.sleep(0.05)
        arrivals.take(far.fileno(), taken)
        assert arrivals.cut_off() == ([Cut(far.fileno(), is_flooding=True)] if is_cut else [])


def test_several_connections_share_what_so_many_peers_may_send() -> None:
    arrivals = ReceiveQuotas(1000, n_peers=1)
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        ends = [(socket.create_connection(server.getsockname()), server.accept()[0]) for _ in range(3)]
    for (near, far), size in zip(ends, (300, 600, 500), strict=True):
        arrivals.begin(far.fileno())
        near.sendall(bytes(size))
    time.sleep(0.05)
    cut = arrivals.cut_off()
    assert cut == [Cut(ends[1][1].fileno(), is_flooding=True)]
    for near, far in ends:
        near.close()
        far.close()


@pytest.mark.parametrize(("beat_s", "is_cut"), [(0.1, False), (math.inf, True)])
def test_heartbeats_of_an_old_connection_are_allowed_for(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch, beat_s: float, is_cut: bool
) -> None:
    """Where nobody spoke for a second; what comes beyond them is counted as ever."""
    near, far = pair
    arrivals = ReceiveQuotas(1000, beat_s=beat_s)
    arrivals.begin(far.fileno())
    near.sendall(bytes(1100))
    time.sleep(0.05)
    later = time.monotonic() + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert bool(arrivals.cut_off()) == is_cut
    if not is_cut:
        near.sendall(bytes(4000))
        time.sleep(0.05)
        later += 0.06
        assert arrivals.cut_off() == [Cut(far.fileno(), is_flooding=True)]


def test_heartbeats_are_not_allowed_for_where_no_peer_speaks(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A peer may have hundreds of connections over which it says nothing: in a day that would be 8 GiB."""
    near, far = pair
    arrivals = ReceiveQuotas(2000, outsiders=Outsiders(most=9, most_proved=9, most_bytes=1000), beat_s=0.01)
    arrivals.begin(far.fileno())
    near.sendall(bytes(1100))
    time.sleep(0.05)
    later = time.monotonic() + 1.0
    monkeypatch.setattr(time, "monotonic", lambda: later)
    arrivals.keep([far.fileno()])
    assert arrivals.cut_off() == []
    later += 0.06
    arrivals.keep([])
    assert arrivals.cut_off() == [Cut(far.fileno(), is_flooding=True)]


@pytest.mark.parametrize(("most_proved", "is_cut"), [(3, False), (8, True)])
def test_silent_connections_of_a_listed_key_do_not_crowd_out_one_whose_handshake_takes_a_while(
    monkeypatch: pytest.MonkeyPatch, most_proved: int, is_cut: bool
) -> None:
    """Without a bound of their own they are spared, and what comes next is cut off again and again."""
    with ExitStack() as stack:
        ends = [[stack.enter_context(end) for end in socket.socketpair()] for _ in range(9)]
        *silent, slow = (far.fileno() for _, far in ends)
        monkeypatch.setattr(
            receive_quota, "acknowledged_bytes", lambda descriptor: UNPROVED_BYTES + (descriptor != slow)
        )
        quotas = ReceiveQuotas(1000, outsiders=Outsiders(most=8, most_proved=most_proved, most_bytes=1000))
        for descriptor in (*silent, slow):
            quotas.begin(descriptor)
        cut = {one.descriptor for one in quotas.cut_off()}
        assert (slow in cut) is is_cut
        assert len(cut & set(silent)) == (0 if is_cut else len(silent) - most_proved)


def test_heartbeats_take_no_more_than_is_allowed_for(network: Any, within: Within) -> None:
    """Over a connection under CURVE that nobody speaks over, as the kernel counts them."""
    timing = Timing(timeout_s=1, wait_s=10)
    listener = network.listen("b", timing=timing)
    client = network.connect(listener.address, timing=timing)
    client.send(Done())
    within(10, listener.channel("b").receive)
    arrivals = listener._connections._quotas
    (connection,) = arrivals._open.values()
    time.sleep(3)
    assert connection.received - connection.taken > 1000
    assert arrivals._ahead(connection, arrivals._beat_rate) == 0


def test_what_is_no_connection_counts_nothing() -> None:
    arrivals = ReceiveQuotas(0)
    arrivals.begin(1 << 20)
    assert arrivals.cut_off() == []
