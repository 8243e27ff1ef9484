"""One contract for two carriers: memory, and ZeroMQ with CURVE."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from protocols.errors import DecodeError, Outlook, PeerAborted, PeerLost, PeerRestarted, UnexpectedMessage
from protocols.messages.fields import MAX_REASON
from protocols.messages.prediction import Answers, Ask
from protocols.messages.vertical import Abort, Done, RankChunk
from protocols.transport.channel import Channel, abort, ends_with_abort, expect, loss_of_peer
from protocols.transport.codec import Frame, encode, size_bytes
from protocols.transport.memory import CAPACITY, MemoryChannel, memory_pair
from protocols.transport.peer_state import MAX_WAITING
from protocols.transport.receive_quota import MAX_AHEAD_BYTES

Within = Callable[[float, Callable[[], Any]], Any]


@dataclass
class Ends:
    """Two connected channels, party a's and party b's, and how each party leaves."""

    a: Channel
    b: Channel
    leave: dict[str, Callable[[], None]]

    def channel(self, party: str) -> Channel:
        return self.a if party == "a" else self.b


@pytest.fixture(params=["memory", "curve"])
def ends(request: pytest.FixtureRequest, within: Within) -> Ends:
    if request.param == "memory":
        a, b = memory_pair("a", "b")
        return Ends(a, b, {"a": a.close, "b": b.close})
    network = request.getfixturevalue("network")
    listener = network.listen("b")
    connected = network.connect(listener.address)
    connected.send(Done())
    within(5, listener.channel("b").receive)
    connected.traffic.sent_bytes = 0
    return Ends(
        listener.channel("b"), connected, {"a": lambda: network.leave(listener), "b": lambda: network.leave(connected)}
    )


def chunk(start: int, n_bytes: int = 3) -> RankChunk:
    return RankChunk(column=0, start=start, ranks=np.full(n_bytes, start % 251, np.uint8))


DIRECTIONS = pytest.mark.parametrize(("sender", "reader"), [("a", "b"), ("b", "a")])


@DIRECTIONS
def test_messages_arrive_whole_and_in_order(ends: Ends, within: Within, sender: str, reader: str) -> None:
    for i in range(50):
        ends.channel(sender).send(chunk(i))
    received = within(10, lambda: [expect(ends.channel(reader), RankChunk) for _ in range(50)])
    assert [(message.start, message.ranks.tolist()) for message in received] == [(i, [i] * 3) for i in range(50)]


def test_both_directions_are_independent(ends: Ends, within: Within) -> None:
    ends.a.send(Ask(ids=("x",), desensitized=False))
    ends.b.send(Done())
    assert (within(5, ends.a.receive).kind, within(5, ends.b.receive).kind) == ("done", "ask")


@DIRECTIONS
def test_both_ends_count_the_same_bytes_and_the_sender_may_audit_every_frame(
    ends: Ends, within: Within, sender: str, reader: str
) -> None:
    audited: list[tuple[str, int]] = []

    def audit(kind: str, frames: Sequence[Frame]) -> None:
        audited.append((kind, size_bytes(frames)))

    ends.channel(sender).traffic.on_send = audit
    for message in (chunk(0, 1000), Done()):
        ends.channel(sender).send(message)
        within(5, ends.channel(reader).receive)
    sent = ends.channel(sender).traffic.sent_bytes
    assert sent == ends.channel(reader).traffic.received_bytes == sum(n_bytes for _, n_bytes in audited)
    assert [kind for kind, _ in audited] == ["rank chunk", "done"]
    assert ends.channel(reader).traffic.sent_bytes == 0


def test_an_expected_message_is_returned_and_another_one_is_refused_by_name(ends: Ends, within: Within) -> None:
    ends.b.send(Done())
    assert within(5, lambda: expect(ends.a, Done)) == Done()
    ends.b.send(Done())
    with pytest.raises(UnexpectedMessage, match="b sent 'done' where 'ask' was due"):
        within(5, lambda: expect(ends.a, Ask))


def test_an_abort_arrives_as_the_peers_reason(ends: Ends, within: Within) -> None:
    abort(ends.a, "growing trees", "the power went out")
    with pytest.raises(PeerAborted, match="a ended the run while growing trees: the power went out"):
        within(5, lambda: expect(ends.b, Done))


@DIRECTIONS
def test_a_peer_that_closes_is_noticed_within_a_second(ends: Ends, within: Within, sender: str, reader: str) -> None:
    ends.leave[sender]()
    started = time.monotonic()
    with pytest.raises(PeerLost, match=rf"^{sender} closed the c"):
        within(5, ends.channel(reader).receive)
    with pytest.raises(PeerLost):
        within(5, ends.channel(reader).check)
    with pytest.raises(PeerLost):
        within(5, lambda: ends.channel(reader).send(Done()))
    assert time.monotonic() - started < 1


@DIRECTIONS
def test_what_was_sent_before_closing_is_still_delivered(ends: Ends, within: Within, sender: str, reader: str) -> None:
    for i in range(10):
        ends.channel(sender).send(chunk(i, 100_000))
    ends.leave[sender]()
    received = within(5, lambda: [expect(ends.channel(reader), RankChunk).start for _ in range(10)])
    assert received == list(range(10))
    with pytest.raises(PeerLost):
        within(5, ends.channel(reader).receive)


@DIRECTIONS
def test_an_abort_to_a_peer_that_has_left_is_no_error(ends: Ends, within: Within, sender: str, reader: str) -> None:
    ends.leave[sender]()
    # A goodbye can be lost with its connection on a busy machine: then the loss is noticed after the timeout of 10 s.
    with pytest.raises(PeerLost):
        within(20, ends.channel(reader).receive)
    within(5, lambda: abort(ends.channel(reader), "greeting", "no longer needed"))


@DIRECTIONS
def test_who_looks_after_a_peer_learns_that_it_begins_again_while_it_stays_connected(
    ends: Ends, within: Within, sender: str, reader: str
) -> None:
    """Who waits for another party reads nothing of this one."""
    abort(ends.channel(sender), "growing", "another party was started again", Outlook.AGAIN)

    def look() -> None:
        while True:
            ends.channel(reader).check()
            time.sleep(0.002)

    with pytest.raises(PeerRestarted, match="begins again"):
        within(5, look)


@DIRECTIONS
def test_a_sender_whose_peer_aborted_and_left_learns_why(ends: Ends, within: Within, sender: str, reader: str) -> None:
    out, into = ends.channel(sender), ends.channel(reader)

    def stop_reading() -> None:
        time.sleep(0.5)
        abort(into, "reading", "a rank is too high")
        ends.leave[reader]()

    def send_on() -> None:
        while True:
            out.send(chunk(0, 1 << 14))
            # Without a pause it is cut off for what it sends ahead of its turn, and may come back too late.
            time.sleep(0.002)

    stopping = threading.Thread(target=stop_reading, daemon=True)
    stopping.start()
    with pytest.raises(PeerAborted, match=f"{reader} ended the run while reading: a rank is too high"):
        within(10, send_on)
    stopping.join(10)


def test_closing_twice_is_no_error(ends: Ends, within: Within) -> None:
    for channel in (ends.a, ends.b, ends.a, ends.b):
        within(5, channel.close)


def test_a_living_peer_passes_the_check(ends: Ends, within: Within) -> None:
    for _ in range(3):
        within(5, ends.a.check)
        within(5, ends.b.check)


def test_a_party_that_is_busy_learns_that_its_peer_ended_the_run(ends: Ends, within: Within) -> None:
    """What the peer said before its last words waits unread: the busy party has not come to it."""
    ends.b.send(Done())
    within(5, ends.a.receive)
    ends.b.send(Done())
    abort(ends.b, "growing", "it was told to stop")
    ends.leave["b"]()

    def grow_trees() -> None:
        while True:
            ends.a.check()
            time.sleep(0.01)

    with pytest.raises(PeerAborted, match="b ended the run while growing: it was told to stop"):
        within(5, grow_trees)


@DIRECTIONS
def test_large_messages_pass(ends: Ends, within: Within, sender: str, reader: str) -> None:
    bits = np.random.default_rng(0).integers(0, 256, (1 << 14, 2000), np.uint8)
    status = np.zeros(1 << 14, np.uint8)
    ends.channel(sender).send(Answers(status=status, bits=bits))
    received = within(20, lambda: expect(ends.channel(reader), Answers))
    assert np.array_equal(received.bits, bits)


@DIRECTIONS
def test_a_slow_reader_loses_nothing_of_what_its_quota_allows(
    ends: Ends, within: Within, sender: str, reader: str
) -> None:
    """Memory holds the sender back after a few messages; a connection that is too far ahead is cut off."""
    n_messages, n_bytes = MAX_WAITING, 1 << 18
    assert n_messages * n_bytes < MAX_AHEAD_BYTES / 2
    out, into = ends.channel(sender), ends.channel(reader)
    thread = threading.Thread(target=lambda: [out.send(chunk(i, n_bytes)) for i in range(n_messages)], daemon=True)
    thread.start()
    held_at = -1
    while held_at != out.traffic.sent_bytes:
        held_at = out.traffic.sent_bytes
        time.sleep(0.2)
    if isinstance(out, MemoryChannel):
        assert held_at < 2 * CAPACITY * n_bytes
    assert within(20, lambda: [expect(into, RankChunk).start for _ in range(n_messages)]) == list(range(n_messages))
    thread.join(5)
    assert not thread.is_alive()


@DIRECTIONS
def test_bytes_that_are_no_message_are_refused(
    ends: Ends, within: Within, sender: str, reader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for carrier in ("memory", "zmq_channel", "zmq_listener_channel"):
        monkeypatch.setattr(f"protocols.transport.{carrier}.encode", lambda message: [b"\x80", b"garbage"])
    ends.channel(sender).send(Done())
    # Of several peers it must be known which one it was.
    with pytest.raises(
        DecodeError, match=f"^{ends.channel(reader).peer} sent a message that cannot be read: the header"
    ):
        within(5, ends.channel(reader).receive)


def test_of_what_waits_only_what_could_end_the_run_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    longest = Abort(phase="\U0010ffff" * 200, reason="\U0010ffff" * MAX_REASON)
    assert ends_with_abort([encode(Done()), encode(longest)])
    long = encode(Ask(ids=("k",) * 100_000, desensitized=True))
    monkeypatch.setattr("protocols.transport.channel.decode", lambda frames: pytest.fail("decoded"))
    assert not ends_with_abort([long])
    assert isinstance(loss_of_peer("b", [long], "left"), PeerLost)
