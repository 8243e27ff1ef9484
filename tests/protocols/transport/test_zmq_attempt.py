"""A connection of a party that connects: it meets, ends and is refused once, and never connects again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
import zmq

from protocols.errors import PeerLost
from protocols.transport.channel import Timing
from protocols.transport.zmq_attempt import Attempt
from tests.support.addresses import free_addresses

TIMING = Timing(timeout_s=1, wait_s=2)


@pytest.fixture
def context() -> Iterator[zmq.Context[zmq.Socket[bytes]]]:
    with zmq.Context() as found:
        yield found


def attempt(context: zmq.Context[zmq.Socket[bytes]], address: str) -> Attempt:
    return Attempt(context, address, name=b"shop", keys=None, peer_key=None, timing=TIMING)


def until(made: Attempt, condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 5
    while not condition() and time.monotonic() < deadline:
        made.follow()
        time.sleep(0.01)
    return condition()


def test_it_meets_a_listener_under_its_name_and_notices_the_end(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    listener = context.socket(zmq.ROUTER)
    made = attempt(context, f"tcp://127.0.0.1:{listener.bind_to_random_port('tcp://127.0.0.1')}")
    assert until(made, lambda: made.is_met)
    made.socket.send(b"hello")
    assert listener.recv_multipart() == [b"shop", b"hello"]
    listener.send_multipart([b"shop", b"answer"])
    assert made.socket.poll(5000)
    assert [bytes(frame) for frame in made.take()] == [b"answer"]
    listener.close(linger=0)
    assert until(made, lambda: made.is_over)
    made.close(is_lost=True)
    with pytest.raises(PeerLost, match="the connection was closed"):
        made.follow()


def test_where_nobody_listens_it_is_over_in_time(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    (address,) = free_addresses(1)
    made = attempt(context, address)
    assert until(made, lambda: made.is_over)
    assert (made.is_met, made.is_refused) == (False, False)
    made.close(is_lost=True)


def test_an_address_that_is_none_is_one_sentence(context: zmq.Context[zmq.Socket[bytes]]) -> None:
    with pytest.raises(PeerLost, match="cannot connect to nowhere: "):
        attempt(context, "nowhere")
