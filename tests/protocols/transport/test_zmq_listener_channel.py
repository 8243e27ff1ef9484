"""A listener's channel to one peer: it speaks for that peer alone, and counts what went over."""

from __future__ import annotations

import time

import pytest

from protocols.messages.vertical import Done
from protocols.transport.channel import Timing
from protocols.transport.codec import Frame, encode
from protocols.transport.peers import Peers
from protocols.transport.zmq_listener_channel import ListenerChannel


class Listening:
    """Notes what is asked of it."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self.deadlines: list[float] = []
        self.checked: list[str] = []

    def send(self, peer: str, frames: list[Frame], kind: str) -> None:
        self.sent.append((peer, kind))

    def receive(self, peer: str, deadline: float) -> list[Frame]:
        self.deadlines.append(deadline)
        return [bytes(frame) for frame in encode(Done())]

    def is_ready(self, peer: str) -> bool:
        return peer == "shop"

    def check(self, peer: str) -> None:
        self.checked.append(peer)


@pytest.fixture
def peers() -> Peers:
    return Peers(["shop", "post"], timing=Timing(timeout_s=3, wait_s=10))


def test_everything_is_about_the_one_peer_and_counted(peers: Peers) -> None:
    listening = Listening()
    channel = ListenerChannel(listening, peers, "shop", wait_s=10)
    channel.send(Done())
    channel.check()
    assert channel.receive() == Done()
    assert channel.is_ready()
    assert not ListenerChannel(listening, peers, "post", wait_s=10).is_ready()
    assert (listening.sent, listening.checked) == ([("shop", "done")], ["shop"])
    assert channel.traffic.sent_bytes == channel.traffic.received_bytes > 0


def test_a_peer_has_come_once_it_spoke_and_is_to_come_again_after_another_beginning(peers: Peers) -> None:
    channel = ListenerChannel(Listening(), peers, "shop", wait_s=10)
    assert not channel.has_come()
    peers.note_event(5, is_accepted=True)
    peers.take("shop", b"route", 5, [bytes(frame) for frame in encode(Done())])
    assert channel.has_come()
    channel.reset()
    assert not channel.has_come()


@pytest.mark.parametrize("renews_deadline", [False, True])
def test_a_reset_renews_the_deadline_only_where_that_is_asked(peers: Peers, renews_deadline: bool) -> None:
    listening = Listening()
    channel = ListenerChannel(listening, peers, "shop", wait_s=10)
    channel.receive()
    time.sleep(0.01)
    channel.reset(renews_deadline=renews_deadline)
    channel.receive()
    first, second = listening.deadlines
    assert (second > first) is renews_deadline
