"""Who may speak: real sockets against strangers, forgers, scanners and peers that take more than their part."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import zmq

from protocols.errors import PeerAborted, PeerLost, PeerRefused, PeerRestarted, UnexpectedMessage
from protocols.messages.message import Message
from protocols.messages.vertical import Abort, Done, RankChunk
from protocols.transport.channel import Timing
from protocols.transport.codec import encode
from protocols.transport.peers import MAX_WAITING
from protocols.transport.zmq_authenticator import HASTY_KEY, MAX_CONNECTIONS, UNKNOWN_KEY
from protocols.transport.zmq_listener import NO_HANDSHAKE, NOT_IN_RUN, Listener
from tests.support.processes import in_a_fork

Within = Callable[[float, Callable[[], Any]], Any]

HASTY = Timing(timeout_s=1, wait_s=0.6)


def word(text: str) -> Abort:
    return Abort(phase=text, reason="")


def hear(listener: Listener, peer: str = "b") -> Message:
    return listener.channel(peer).receive()


def notice(network: Any, listener: Listener, event: str, seconds: float = 5) -> None:
    """Wait until the listener has noted the event, and nothing else."""
    deadline = time.monotonic() + seconds
    while event not in network.events and time.monotonic() < deadline:
        listener.channel("b").check()
        time.sleep(0.01)
    assert network.events == [event]


def raw(address: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])), timeout=5)


def assert_unharmed(network: Any, within: Within, listener: Listener) -> None:
    """The true peer still connects, speaks and is answered."""
    channel = network.connect(listener.address)
    channel.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    listener.channel("b").send(Done())
    assert within(5, channel.receive) == Done()


def greeting_of(received: bytes) -> bool:
    """Whether these are the 64 bytes that ZMTP sends to everyone who connects, or a beginning of them."""
    return received[:10].startswith(b"\xff"[: len(received)]) and len(received) <= 64


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20, bytes(200)],
    ids=["http", "tls", "zeros"],
)
def test_a_port_scanner_gets_no_answer_and_one_line(network: Any, within: Within, garbage: bytes) -> None:
    listener = network.listen("b", timing=HASTY)
    for _ in range(3):
        with raw(listener.address) as scanner:
            scanner.sendall(garbage)
            scanner.settimeout(3)
            received = b""
            try:
                while data := scanner.recv(4096):
                    received += data
            except ConnectionResetError:
                pass
            assert greeting_of(received)
    notice(network, listener, NO_HANDSHAKE)
    assert_unharmed(network, within, listener)
    network.leave(listener)
    assert network.events == [NO_HANDSHAKE, f"{NO_HANDSHAKE} (3 times in all)"]


def test_a_connection_that_says_nothing_is_ended_after_the_timeout(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=HASTY)
    with raw(listener.address) as silent:
        silent.settimeout(3)
        started = time.monotonic()
        while silent.recv(4096):
            pass
        assert time.monotonic() - started < 2.5
    notice(network, listener, NO_HANDSHAKE)
    assert_unharmed(network, within, listener)


def test_a_plain_text_client_gets_no_answer_and_one_line(network: Any, within: Within) -> None:
    listener = network.listen("b")
    plain = network.connect(listener.address, own=None, server=None, timing=HASTY)
    with pytest.raises(PeerLost, match=r"a handshake was damaged|ended before both sides were known"):
        within(5, plain.receive)
    network.leave(plain)
    notice(network, listener, NO_HANDSHAKE)
    assert_unharmed(network, within, listener)


def test_an_unknown_key_gets_no_answer_and_one_line_however_often_it_tries(network: Any, within: Within) -> None:
    listener = network.listen("b")
    for _ in range(3):
        stranger = network.connect(listener.address, own="stranger")
        with pytest.raises(PeerLost, match="refused the connection"):
            within(5, stranger.receive)
        network.leave(stranger)
    notice(network, listener, UNKNOWN_KEY)
    assert_unharmed(network, within, listener)


def test_a_client_that_was_given_a_wrong_server_key_costs_one_line(network: Any, within: Within) -> None:
    listener = network.listen("b")
    misled = network.connect(listener.address, server="stranger", timing=HASTY)
    with pytest.raises(PeerLost, match="ended before both sides were known"):
        within(5, misled.receive)
    network.leave(misled)
    notice(network, listener, NO_HANDSHAKE)
    assert_unharmed(network, within, listener)


@pytest.mark.parametrize("position", [0, 150, 600], ids=lambda n: f"byte {n}")
def test_an_altered_byte_is_never_read_as_a_message(network: Any, within: Within, position: int) -> None:
    """Bytes 0 to 63 are ZMTP's greeting, up to about 500 is the handshake, the rest are messages."""

    def flip(data: bytes, start: int) -> bytes:
        if not start <= position < start + len(data):
            return data
        altered = bytearray(data)
        altered[position - start] ^= 0x10
        return bytes(altered)

    listener = network.listen("b", timing=HASTY)
    address, _ = network.relay(listener.address, flip)
    channel = network.connect(address, timing=HASTY)
    with pytest.raises(PeerLost):
        within(6, lambda: [channel.send(word("x" * 200)), channel.receive()])
    network.leave(channel)
    notice(network, listener, NO_HANDSHAKE)
    assert_unharmed(network, within, listener)


def test_a_replayed_conversation_is_refused(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=HASTY)
    address, seen = network.relay(listener.address)
    recorded = network.connect(address)
    recorded.send(word("once"))
    assert within(5, lambda: hear(listener)) == word("once")
    with raw(listener.address) as replay:
        replay.settimeout(3)
        replay.sendall(bytes(seen["there"]))
        while replay.recv(4096):
            pass
    notice(network, listener, NO_HANDSHAKE)
    listener.channel("b").check()
    recorded.send(word("twice"))
    assert within(5, lambda: hear(listener)) == word("twice")


def test_a_frame_that_is_sent_twice_ends_the_connection(network: Any, within: Within) -> None:
    """CURVE numbers what it encrypts: the same bytes again are no message."""
    listener = network.listen("b", timing=HASTY)
    copies = []

    def repeat(data: bytes, start: int) -> bytes:
        if start < 500 or len(data) < 200:
            return data
        copies.append(data)
        return data * 2

    address, _ = network.relay(listener.address, repeat)
    channel = network.connect(address, timing=HASTY)
    channel.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    channel.send(word("x" * 200))
    assert within(5, lambda: hear(listener)) == word("x" * 200)
    with pytest.raises(PeerLost):
        within(5, lambda: hear(listener))
    assert len(copies) == 1
    # ZeroMQ tells of no more than an end, as of any broken connection.
    assert network.events == []


@pytest.mark.parametrize("direction", ["there", "back"])
def test_a_byte_that_is_altered_before_the_connection_ends_stops_no_process(network: Any, direction: str) -> None:
    """libzmq took the reason for a full queue, and ended the process when it beat over the dead connection."""
    assert in_a_fork(lambda: beat_after_an_altered_byte(network, direction)) == "'both go on'"


def beat_after_an_altered_byte(network: Any, direction: str) -> str:
    begun, altered = 0.0, list[bytes]()

    def alter(data: bytes, start: int) -> bytes:
        if altered:
            raise ConnectionResetError
        if not begun:
            return data
        altered.append(data)
        return data[:-1] + bytes([data[-1] ^ 1])

    listener = network.listen("b", timing=HASTY)
    address, _ = network.relay(listener.address, alter, altered=direction)
    channel = network.connect(address, timing=HASTY)
    channel.send(Done())
    assert hear(listener) == Done()
    begun = time.monotonic()
    with suppress(PeerLost, PeerRestarted):
        while time.monotonic() < begun + 2:
            for end in (channel, listener.channel("b")):
                end.send(Done())
                time.sleep(0.02)
    time.sleep(max(0.0, begun + 2 - time.monotonic()))
    return "both go on" if altered else "no byte was altered"


def test_a_peer_is_known_by_its_key_whatever_name_it_gives(network: Any, within: Within) -> None:
    """c gives itself b's name as a routing id; b is neither shut out nor are words to b sent to c."""
    listener = network.listen("b", "c")
    with zmq.Context() as context, context.socket(zmq.DEALER) as forger:
        forger.linger = 0
        forger.routing_id = b"b"
        keys = network.keys
        forger.curve_serverkey, forger.curve_secretkey = keys["a"].public, keys["c"].secret
        forger.curve_publickey = keys["c"].public
        forger.connect(listener.address)
        forger.send_multipart(encode(word("forged")))
        assert within(5, lambda: hear(listener, "c")) == word("forged")
        assert_unharmed(network, within, listener)
        assert forger.poll(200) == 0


def test_the_second_connection_with_a_key_is_turned_away_and_told(network: Any, within: Within) -> None:
    listener = network.listen("b")
    first, second = network.connect(listener.address), network.connect(listener.address)
    first.send(word("first"))
    assert within(5, lambda: hear(listener)) == word("first")
    second.send(word("second"))
    notice(network, listener, "turned a connection away: b is connected already")
    answer = within(5, second.receive)
    assert answer == Abort(phase="greeting", reason="another connection with the same key is in use")
    first.send(Done())
    assert within(5, lambda: hear(listener)) == Done()


def test_a_peer_may_leave_and_come_back_until_it_was_heard_and_was_started_again_after(
    network: Any, within: Within
) -> None:
    listener = network.listen("b")
    for text in ("first", "second"):
        channel = network.connect(listener.address)
        channel.send(word(text))
        time.sleep(0.3)
        listener.channel("b").check()
        if text == "first":
            network.leave(channel)
            time.sleep(0.3)
            listener.channel("b").is_ready()
    assert within(5, lambda: hear(listener)) == word("second")
    network.leave(channel)
    network.connect(listener.address).send(word("third"))

    def hear_on() -> None:
        while True:
            try:
                hear(listener)
            except PeerRestarted:
                raise
            except PeerLost:
                # Its end may be noticed before its start.
                time.sleep(0.02)

    with pytest.raises(PeerRestarted, match=r"^b was started again"):
        within(5, hear_on)
    listener.channel("b").reset()
    assert within(5, lambda: hear(listener)) == word("third")


def test_a_peer_that_talks_ahead_of_its_turn_is_stopped(network: Any, within: Within) -> None:
    listener = network.listen("b", "c")
    flooding = network.connect(listener.address)
    chunk = RankChunk(column=0, start=0, ranks=np.zeros(10, np.uint8))
    for _ in range(MAX_WAITING + 1):
        flooding.send(chunk)
    with pytest.raises(UnexpectedMessage, match=f"b sent more than {MAX_WAITING} messages or 256 MiB ahead"):
        within(10, lambda: hear(listener, "c"))


def test_the_death_of_one_peer_is_noticed_while_another_is_waited_for(network: Any, within: Within) -> None:
    listener = network.listen("b", "c")
    dying = network.connect(listener.address)
    dying.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    threading.Timer(0.2, lambda: network.leave(dying)).start()
    started = time.monotonic()
    with pytest.raises(PeerLost, match=r"^b closed the connection"):
        within(5, lambda: hear(listener, "c"))
    assert time.monotonic() - started < 1.2


def test_the_last_words_of_one_peer_are_heard_while_another_is_waited_for(network: Any, within: Within) -> None:
    listener = network.listen("b", "c")
    leaving = network.connect(listener.address)
    leaving.send(word("reading its table"))
    threading.Timer(0.2, lambda: network.leave(leaving)).start()
    with pytest.raises(PeerAborted, match="b ended the run while reading its table"):
        within(5, lambda: hear(listener, "c"))


def test_a_peer_of_which_nothing_more_is_expected_may_leave(network: Any, within: Within) -> None:
    listener = network.listen("b", "c")
    done, late = network.connect(listener.address), None
    done.send(Done())
    assert within(5, lambda: hear(listener)) == Done()
    listener.channel("b").close()
    network.leave(done)
    time.sleep(0.2)
    late = network.connect(listener.address, own="c")
    late.send(Done())
    assert within(5, lambda: hear(listener, "c")) == Done()


def test_without_keys_a_name_that_is_not_in_the_run_is_one_line(network: Any, within: Within) -> None:
    listener = network.listen("b", encrypted=False)
    for _ in range(3):
        network.connect(listener.address, "stranger", own=None, server=None).send(Done())
    notice(network, listener, NOT_IN_RUN)


def test_what_a_peer_said_before_it_left_is_heard_before_its_end(network: Any, within: Within) -> None:
    listener = network.listen("b", "c")
    patient = network.connect(listener.address, own="c")
    patient.send(Done())
    assert within(5, lambda: hear(listener, "c")) == Done()
    for _ in range(30):
        hasty = network.connect(listener.address)
        hasty.send(word("first"))
        assert within(5, lambda: hear(listener)) == word("first")
        for i in range(200):
            hasty.send(RankChunk(column=0, start=i, ranks=np.zeros(3, np.uint8)))
        leaving = threading.Thread(target=lambda hasty=hasty: network.leave(hasty))
        leaving.start()
        starts = within(5, lambda: [hear(listener).start for _ in range(200)])
        leaving.join()
        assert starts == list(range(200))
        listener.channel("b").reset()


class FullDisk(list[str]):
    """Takes no event."""

    def append(self, event: str) -> None:
        raise OSError(event)


def test_peers_are_let_in_after_a_refusal_that_could_not_be_noted(network: Any, within: Within) -> None:
    """The thread that lets them in noted it itself, and ended where the log could not be written."""
    network.events = FullDisk()
    listener = network.listen("b")
    stranger = network.connect(listener.address, own="stranger")
    with pytest.raises(PeerLost, match="refused the connection"):
        within(5, stranger.receive)
    with pytest.raises(OSError, match=UNKNOWN_KEY):
        within(5, lambda: hear(listener))
    assert_unharmed(network, within, listener)


def test_a_peer_that_connects_again_and_again_before_it_is_heard_is_told_that_this_may_be_why(
    network: Any, within: Within
) -> None:
    """The sentence spoke of keys alone, which are the right ones."""
    listener = network.listen("b")
    for _ in range(MAX_CONNECTIONS):
        started_again = network.connect(listener.address)
        within(5, lambda one=started_again: one.send(Done()))
        network.leave(started_again)
    with pytest.raises(PeerRefused, match="or this party connected again and again before it was heard"):
        within(5, network.connect(listener.address).receive)
    notice(network, listener, HASTY_KEY)
