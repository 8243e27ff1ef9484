"""State of a listener's peers: one connection each, bounded memory, and an end that is final once a peer was heard."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from protocols.errors import PeerAborted, PeerRestarted, UnexpectedMessage
from protocols.messages.vertical import Abort, Done
from protocols.transport.channel import Timing
from protocols.transport.codec import Frame, encode
from protocols.transport.conversation import Conversation, connection_id
from protocols.transport.peers import MAX_WAITING, Peers


def frames(text: str = "x") -> list[Frame]:
    return [text.encode()]


@pytest.fixture
def peers() -> Peers:
    found = Peers(["shop", "post"], timing=Timing(timeout_s=3, wait_s=10))
    for descriptor in (5, 6):
        found.note_event(descriptor, is_accepted=True)
    return found


@pytest.mark.parametrize("way", ["end", "flood"])
def test_what_becomes_of_a_peer_that_is_apart_is_told_where_it_is_asked_about_itself(peers: Peers, way: str) -> None:
    """Also once it is forgotten, as one that only looked and comes anew to train."""
    last = [bytes(frame) for frame in encode(Abort(phase="greeting", reason="no rows"))]
    error = PeerAborted if way == "end" else UnexpectedMessage
    for number, is_isolated in enumerate((False, True, True)):
        peers.note_event(5, is_accepted=True)
        peers.take("shop", b"r%d" % number, 5, last)
        if number == 1:
            peers.isolate("shop")
        if way == "flood":
            peers.note_flood(5, "9 MiB")
        peers.note_event(5, is_accepted=False)
        with nullcontext() if is_isolated else pytest.raises(error, match="shop"):
            peers.check("post")
        with pytest.raises(error, match="shop"):
            peers.check("shop")
        peers.forget("shop")


def test_messages_are_kept_in_order_until_they_are_asked_for(peers: Peers) -> None:
    assert peers.route("shop") is None
    for text in "ab":
        assert peers.take("shop", b"r5", 5, frames(text))
    assert (peers.route("shop"), list(peers.descriptors())) == (b"r5", [5])
    assert [peers.pop("shop"), peers.pop("shop")] == [[b"a"], [b"b"]]
    assert not peers.has_waiting("shop")
    assert peers.is_known("post")
    assert not peers.is_known("mall")


def test_another_connection_of_a_peer_is_turned_away_and_shut_if_it_goes_on(peers: Peers) -> None:
    peers.take("shop", b"r5", 5, frames())
    assert not peers.take("shop", b"r6", 6, frames())
    assert peers.listen() == []
    assert not peers.take("shop", b"r6", 6, frames())
    assert peers.listen() == [6]
    assert peers.route("shop") == b"r5"


def test_many_messages_over_a_connection_that_did_not_say_first_what_had_come_shut_it(peers: Peers) -> None:
    """They were dropped without end: those who sent them were never cut off."""
    first, second = (connection_id("shop", "token", number) for number in (0, 1))
    conversation = Conversation()
    conversation.keep(frames())
    said = conversation.next_unsent()
    assert said is not None
    peers.take("shop", first, 5, said)
    assert peers.listen() == []
    for _ in range(MAX_WAITING):
        assert peers.take("shop", second, 6, frames("more"))
    assert peers.listen() == []
    peers.take("shop", second, 6, frames("more"))
    assert peers.listen() == [6]
    assert (peers.route("shop"), [bytes(frame) for frame in peers.pop("shop")]) == (first, [b"x"])


@pytest.mark.parametrize("is_heard", [False, True])
def test_a_peer_may_come_back_until_it_was_heard(peers: Peers, is_heard: bool) -> None:
    peers.take("shop", b"r5", 5, frames("first"))
    if is_heard:
        peers.pop("shop")
    peers.note_event(5, is_accepted=False)
    assert peers.is_away("shop")
    assert peers.take("shop", b"r6", 6, frames("second"))
    # One that was heard is its next process, and the conversation is lost.
    assert peers.is_lost("shop") is is_heard
    if not is_heard:
        assert peers.pop("shop") == [b"second"]


def test_a_descriptor_that_is_used_again_is_another_connection(peers: Peers) -> None:
    peers.take("shop", b"r5", 5, frames())
    peers.note_event(5, is_accepted=False)
    peers.note_event(5, is_accepted=True)
    assert peers.is_away("shop")


def test_a_peer_that_says_too_much_ahead_of_its_turn_is_cut_off(peers: Peers) -> None:
    for _ in range(MAX_WAITING):
        assert peers.take("shop", b"r5", 5, frames())
    peers.check("shop")
    peers.take("shop", b"r5", 5, frames())
    assert peers.listen() == [5]
    for name in ("shop", "post"):
        with pytest.raises(UnexpectedMessage, match=f"shop sent more than {MAX_WAITING} messages"):
            peers.check(name)


def test_a_flood_of_a_peer_that_was_started_again_shuts_the_connection_over_which_it_comes(peers: Peers) -> None:
    """Of a peer that is apart, none but its own check ends the run; what it sent was dropped without end."""
    peers.take("shop", b"r5", 5, frames())
    peers.pop("shop")
    peers.isolate("shop")
    peers.note_event(5, is_accepted=False)
    for _ in range(MAX_WAITING):
        assert peers.take("shop", b"r6", 6, frames())
    assert peers.listen() == []
    peers.take("shop", b"r6", 6, frames())
    assert peers.listen() == [6]
    peers.check("post")
    with pytest.raises(PeerRestarted):
        peers.check("shop")


def test_a_flood_that_another_count_finds_ends_the_run_if_it_is_a_peers(peers: Peers) -> None:
    peers.take("shop", b"r5", 5, frames())
    peers.note_flood(6, "9 MiB")
    peers.check("shop")
    peers.note_flood(5, "9 MiB")
    with pytest.raises(UnexpectedMessage, match="shop sent more than 9 MiB"):
        peers.check("shop")


def test_whoever_was_let_go_may_leave_and_what_it_still_says_is_dropped(peers: Peers) -> None:
    peers.take("shop", b"r5", 5, frames())
    peers.release("shop")
    peers.take("shop", b"r5", 5, frames())
    assert not peers.has_waiting("shop")
    peers.note_event(5, is_accepted=False)
    peers.check("post")


@pytest.mark.parametrize("last", [Done(), Abort(phase="greeting", reason="no rows")])
def test_a_lost_peers_last_words_are_read_before_its_end_is_told(peers: Peers, last: Done | Abort) -> None:
    peers.take("shop", b"r5", 5, [bytes(frame) for frame in encode(last)])
    peers.note_event(5, is_accepted=False)
    if isinstance(last, Done):
        peers.check("shop")
        peers.pop("shop")
        peers.check("shop")
        peers.take("shop", b"r6", 6, frames("another process"))
        with pytest.raises(PeerRestarted):
            peers.check("shop")
    else:
        with pytest.raises(PeerAborted, match="no rows"):
            peers.check("post")


def test_a_forgotten_peer_comes_anew(peers: Peers) -> None:
    peers.take("shop", b"r5", 5, frames())
    peers.pop("shop")
    peers.forget("shop")
    assert peers.route("shop") is None
    assert peers.take("shop", b"r6", 6, frames())
