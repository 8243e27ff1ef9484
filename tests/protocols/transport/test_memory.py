"""Channels in one process: in order, bounded, through the codec, and a closed end is noticed on both sides."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from protocols.errors import PeerAborted, PeerLost
from protocols.messages.id_alignment import CommonIds, OrderShare
from protocols.messages.vertical import Abort, Done
from protocols.transport.memory import CAPACITY, memory_pair


def test_messages_come_in_order_and_each_end_names_the_other() -> None:
    a, b = memory_pair("bank", "shop")
    assert (a.peer, b.peer) == ("shop", "bank")
    for n in range(3):
        a.send(OrderShare(random=bytes([n]) * 32))
    assert [b.receive().random[0] for _ in range(3)] == [0, 1, 2]  # type: ignore[attr-defined]
    assert a.traffic.sent_bytes == b.traffic.received_bytes > 0
    assert not a.is_ready()
    assert a.has_come()


def test_what_was_sent_does_not_change_with_the_senders_array() -> None:
    a, b = memory_pair("bank", "shop")
    bits = np.zeros(4, np.uint8)
    a.send(CommonIds(bits=bits))
    bits[:] = 1
    found = b.receive()
    assert isinstance(found, CommonIds)
    assert not found.bits.any()


def test_a_sender_waits_while_too_much_is_on_its_way() -> None:
    a, b = memory_pair("bank", "shop")

    def send() -> None:
        for _ in range(CAPACITY + 1):
            a.send(Done())

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    thread.join(0.1)
    assert thread.is_alive()
    b.receive()
    thread.join(5)
    assert not thread.is_alive()


def test_what_was_said_before_the_end_is_heard_and_then_the_end() -> None:
    a, b = memory_pair("bank", "shop")
    a.send(Done())
    a.close()
    b.check()
    assert b.receive() == Done()
    for call in (b.receive, b.check, lambda: b.send(Done())):
        with pytest.raises(PeerLost, match="bank closed the channel"):
            call()


def test_a_termination_message_is_the_reason_of_the_end() -> None:
    a, b = memory_pair("bank", "shop")
    a.send(Abort(phase="greeting", reason="no rows"))
    a.close()
    for call in (b.check, lambda: b.send(Done())):
        with pytest.raises(PeerAborted, match="no rows"):
            call()
