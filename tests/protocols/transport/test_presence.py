"""Whether a peer is there: every end of it has its own error, and those who are busy or not yet met are waited for."""

from __future__ import annotations

import time
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from protocols.errors import PeerAborted, PeerLost, PeerRefused, PeerRestarted, UnexpectedMessage
from protocols.messages.vertical import Abort, Done
from protocols.transport import liveness, presence
from protocols.transport.channel import Timing
from protocols.transport.codec import encode
from protocols.transport.presence import Presence

TIMING = Timing(timeout_s=3, wait_s=10, stall_s=5)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """Time that passes when it is told to."""
    clock = SimpleNamespace(now=time.monotonic())
    for module in (liveness, presence):
        monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def attempt(**changes: Any) -> Any:
    return SimpleNamespace(
        **{"is_flooding": False, "failure": "", "is_refused": False, "is_met": False, "is_over": False, **changes}
    )


def error_of(peer: Presence, waiting: Iterable[Any] = ()) -> str:
    return str(peer.lost(waiting))


def test_a_peer_that_was_never_met_is_waited_for_until_the_time_is_over(clock: SimpleNamespace) -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    for _ in range(20):
        clock.now += 0.5
        peer.note_connection(stands=False)
        peer.refuse_to_wait()
    assert not peer.is_lost
    clock.now += 0.5
    peer.note_attempt(attempt(failure="its handshake was damaged"))
    peer.note_attempt(attempt())
    with pytest.raises(PeerLost, match=r"could not be reached at tcp://127.0.0.1:5555 within 10 s; its handshake was"):
        peer.refuse_to_wait()


def test_a_connection_that_does_not_come_back_in_time_loses_the_peer(clock: SimpleNamespace) -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.was_joined = True
    for stands in (False, True, False):
        assert not peer.is_lost
        for _ in range(20):
            clock.now += 0.5
            peer.note_connection(stands=stands)
    assert not peer.is_lost
    clock.now += 0.5
    peer.note_connection(stands=False)
    assert peer.is_lost
    assert peer.is_beyond_reach
    assert "was silent for 3 s, and could not be reached again within 10 s" in error_of(peer)


def test_of_a_peer_that_is_busy_the_program_is_waited_for_and_not_the_connection(clock: SimpleNamespace) -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.was_joined = True
    peer.note_attempt(attempt(is_refused=True))
    for _ in range(10):
        clock.now += 0.5
        peer.note_connection(stands=False)
        peer.refuse_to_wait()
    assert not peer.is_lost
    clock.now += 0.5
    peer.note_connection(stands=False)
    with pytest.raises(PeerLost, match="has said nothing for 5 s"):
        peer.refuse_to_wait()


def test_a_peer_that_was_busy_and_cannot_be_reached_any_more_is_away(clock: SimpleNamespace) -> None:
    """It was waited for as long as for one that still turns connections away."""
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.was_joined = True
    peer.note_attempt(attempt(is_refused=True, is_over=True))
    peer.note_attempt(attempt())
    assert peer.is_busy
    peer.note_attempt(attempt(is_over=True))
    for _ in range(21):
        assert not peer.is_lost
        clock.now += 0.5
        peer.note_attempt(attempt())
        peer.note_connection(stands=False)
        peer.refuse_to_wait()
    assert peer.is_lost


def test_refusals_between_connections_that_are_broken_keep_nobody_waiting(clock: SimpleNamespace) -> None:
    """Each alone ended the other's timer."""
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.was_joined = True
    for number in range(100):
        clock.now += 0.5
        peer.note_attempt(attempt(is_refused=number % 2 == 0, is_over=True))
        peer.note_connection(stands=False)
        peer.note_silence(is_awaited=peer.is_busy)
        peer.refuse_to_wait()
        if peer.is_lost:
            break
    assert 9 < 0.5 * number < 21


def test_silence_counts_only_while_something_is_awaited(clock: SimpleNamespace) -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.was_joined = True
    for is_awaited in (True, False, True):
        assert not peer.silence.is_stall
        for _ in range(10):
            clock.now += 0.5
            peer.note_silence(is_awaited=is_awaited)
    assert not peer.silence.is_stall
    clock.now += 0.5
    peer.note_silence(is_awaited=True)
    assert peer.is_beyond_reach
    assert not peer.is_lost


def test_a_refusal_ends_the_wait_for_a_peer_that_was_never_met() -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.note_attempt(attempt(is_refused=True, failure="refused the connection"))
    assert peer.is_beyond_reach
    with pytest.raises(PeerRefused, match=r"a at tcp://127.0.0.1:5555 refused the connection"):
        peer.refuse_to_wait()


def test_whoever_is_cut_off_is_told_apart_by_what_it_did() -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.note_attempt(attempt(is_flooding=True))
    with pytest.raises(
        UnexpectedMessage, match="a sent more than 256 MiB ahead of its turn, or heartbeats without end"
    ):
        peer.refuse_to_wait()
    peer.cut("confirmed what was not sent")
    with pytest.raises(UnexpectedMessage, match="a confirmed what was not sent, and was cut off"):
        peer.refuse_to_wait()


def test_what_a_lost_peer_said_last_comes_before_how_it_was_lost() -> None:
    peer = Presence("a", "tcp://127.0.0.1:5555", TIMING)
    peer.has_left = True
    assert error_of(peer) == "a closed the connection"
    assert isinstance(peer.lost([encode(Done())]), PeerLost)
    assert isinstance(peer.lost([encode(Done()), encode(Abort(phase="training", reason="out of memory"))]), PeerAborted)
    peer.is_forgotten = True
    assert isinstance(peer.lost([]), PeerRestarted)
