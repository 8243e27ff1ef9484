"""Sockets of ZeroMQ: bounded both ways, with heartbeats, and a message of too many frames is cut and refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from protocols.errors import DecodeError
from protocols.transport import zmq_socket
from protocols.transport.channel import Timing
from protocols.transport.codec import MAX_ARRAY_BYTES, MAX_ARRAYS, decode
from protocols.transport.receive_quota import FRAME_BYTES
from protocols.transport.zmq_socket import HIGH_WATER_MARK, drain, monitor_events, open_socket, receive_parts

Pair = tuple["zmq.Socket[bytes]", "zmq.Socket[bytes]"]


@pytest.fixture
def pair() -> Iterator[Pair]:
    with zmq.Context() as context:
        near, far = (
            open_socket(context, zmq.PAIR, "tcp://127.0.0.1:*", Timing(timeout_s=2, wait_s=2)) for _ in range(2)
        )
        far.connect(f"tcp://127.0.0.1:{near.bind_to_random_port('tcp://127.0.0.1')}")
        yield near, far
        for socket in (near, far):
            socket.close(linger=0)


def test_queues_messages_and_silence_are_bounded(pair: Pair) -> None:
    near, _ = pair
    assert near.sndhwm == HIGH_WATER_MARK
    assert near.maxmsgsize == MAX_ARRAY_BYTES + FRAME_BYTES
    assert 0 < near.heartbeat_ivl < near.heartbeat_timeout == near.linger == 2000


@pytest.mark.parametrize(("n_more", "comes"), [(0, True), (FRAME_BYTES, False)])
def test_the_largest_array_comes_encrypted_too(monkeypatch: pytest.MonkeyPatch, n_more: int, *, comes: bool) -> None:
    monkeypatch.setattr(zmq_socket, "MAX_ARRAY_BYTES", 1 << 16)
    (public, secret), (of_far, secret_of_far) = zmq.curve_keypair(), zmq.curve_keypair()
    with zmq.Context() as context:
        near, far = (
            open_socket(context, zmq.PAIR, "tcp://127.0.0.1:*", Timing(timeout_s=2, wait_s=2)) for _ in range(2)
        )
        near.curve_server, near.curve_secretkey, near.curve_publickey = True, secret, public
        far.curve_serverkey, far.curve_secretkey, far.curve_publickey = public, secret_of_far, of_far
        far.connect(f"tcp://127.0.0.1:{near.bind_to_random_port('tcp://127.0.0.1')}")
        far.send(bytes((1 << 16) + n_more))
        assert bool(near.poll(5000 if comes else 500)) == comes
        for socket in (near, far):
            socket.close(linger=0)


@pytest.mark.parametrize("n_frames", [1, 2, MAX_ARRAYS + 1, MAX_ARRAYS + 2, 4 * MAX_ARRAYS])
def test_a_message_is_read_whole_or_cut_behind_the_first_frame_too_many(pair: Pair, n_frames: int) -> None:
    near, far = pair
    far.send_multipart([bytes([i % 256]) for i in range(n_frames)])
    far.send(b"next")
    assert near.poll(5000)
    found = receive_parts(near)
    assert len(found) == min(n_frames, MAX_ARRAYS + 2)
    assert near.poll(5000)
    assert receive_parts(near)[0].bytes == b"next"
    with pytest.raises(DecodeError):
        decode([frame.bytes for frame in found])


def test_waiting_messages_are_dropped_up_to_a_number(pair: Pair) -> None:
    near, far = pair
    for n in range(5):
        far.send(bytes([n]))
    assert near.poll(5000)
    while near.poll(100) and near.recv() != b"\1":
        pass
    drain(near, 2)
    assert near.recv() == b"\4"
    drain(near, 9)
    assert not near.poll(0)


def test_news_of_connections_are_told_once(pair: Pair) -> None:
    near, far = pair
    monitor = near.get_monitor_socket()
    far.close(linger=0)
    seen: list[int] = []
    while zmq.EVENT_DISCONNECTED not in seen and monitor.poll(5000):
        seen += [one["event"] for one in monitor_events(monitor)]
    assert seen.count(zmq.EVENT_DISCONNECTED) == 1
    assert monitor_events(monitor) == []
    near.disable_monitor()
    monitor.close(linger=0)
