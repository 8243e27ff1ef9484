"""State of a peer: what it may say ahead of its turn is bounded by messages and by bytes."""

from __future__ import annotations

import pytest

from protocols.messages.vertical import Abort, Outlook
from protocols.transport import peer_state
from protocols.transport.channel import Timing
from protocols.transport.codec import encode
from protocols.transport.conversation import connection_id
from protocols.transport.peer_state import MAX_WAITING, PeerConnection, PeerState


@pytest.fixture
def peer() -> PeerState:
    return PeerState.new(Timing(timeout_s=3, wait_s=10))


def test_messages_are_bounded_in_number(peer: PeerState) -> None:
    assert [peer.keep([b"x"]) for _ in range(MAX_WAITING + 1)] == [True] * MAX_WAITING + [False]
    assert peer.flood_reason.startswith(f"sent more than {MAX_WAITING} messages")
    assert (len(peer.inbox), peer.waiting_bytes) == (MAX_WAITING, MAX_WAITING)


def test_messages_are_bounded_in_bytes_and_one_is_always_taken(
    peer: PeerState, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_state, "MAX_WAITING_BYTES", 10)
    assert peer.keep([bytes(99)])
    assert not peer.keep([b"x"])
    peer.clear()
    assert (peer.waiting_bytes, peer.keep([bytes(5), bytes(5)]), peer.keep([b"x"])) == (0, True, False)


def test_a_new_conversation_has_nothing_of_the_one_before(peer: PeerState) -> None:
    assert peer.token == b""
    peer.keep([b"x"])
    peer.cut_reason, peer.flood_reason, peer.has_left = "why", "much", True
    before = peer.conversation
    peer.begin(PeerConnection(connection_id("shop", "t0", 3), 5, 1))
    assert (peer.cut_reason, peer.flood_reason, peer.has_left, list(peer.inbox)) == ("", "", False, [])
    assert peer.conversation is not before
    assert peer.token == b"t0"
    assert peer.connection is not None
    assert peer.connection.number == 3


def test_a_conversation_that_was_given_up_leaves_nothing_to_send_to_nobody(peer: PeerState) -> None:
    """What this side had said in it had no way to go: sending it ended in an assertion, and a service with it."""
    peer.begin(PeerConnection(connection_id("shop", "t0", 0), 5, 1))
    peer.conversation.keep([b"farewell"])
    peer.keep(encode(Abort(phase="greeting", reason="later", outlook=Outlook.AGAIN)))
    peer.drop_unheard()
    assert (peer.connection, peer.former_token, peer.conversation.next_unsent()) == (None, b"t0", None)
