"""A conversation outlives its connections: every message comes once and in order, however often the link breaks."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st

from protocols.errors import PeerAborted, PeerLost, PeerRestarted, ProtocolError, UnexpectedMessage
from protocols.messages.liveness import Received
from protocols.messages.vertical import Abort, Done, RankChunk
from protocols.transport import conversation, zmq_channel
from protocols.transport.channel import Channel, Timing, expect
from protocols.transport.codec import Frame, encode
from protocols.transport.conversation import (
    MARK_BYTES,
    Conversation,
    connection_id,
    is_any_heartbeat,
    mark,
    read_connection_id,
    read_received,
)
from protocols.transport.liveness import HEARTBEAT
from tests.support.broken_link import BrokenLink, broken_link

Within = Callable[[float, Callable[[], Any]], Any]

TIMING = Timing(timeout_s=3, wait_s=5)


def chunk(start: int, n_bytes: int = 3) -> RankChunk:
    return RankChunk(column=0, start=start, ranks=np.full(n_bytes, start % 251, np.uint8))


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])


def exchange(a: Channel, b: Channel, within: Within, n: int, n_bytes: int = 20_000) -> tuple[list[int], list[int]]:
    """Both send and read in turn; what each has heard."""
    heard: dict[str, list[int]] = {"a": [], "b": []}

    def talk(name: str, channel: Channel) -> None:
        with suppress(ProtocolError, zmq.ZMQError):
            for i in range(n):
                channel.send(chunk(i, n_bytes))
                heard[name].append(expect(channel, RankChunk).start)
                time.sleep(0.002)
            # The link may break under the last message: like parties that close, both go on until both were heard.
            end = time.monotonic() + 10
            while min(map(len, heard.values())) < n and time.monotonic() < end:
                channel.is_ready()
                time.sleep(0.002)

    thread = threading.Thread(target=talk, args=("b", b), daemon=True)
    thread.start()
    within(15, lambda: talk("a", a))
    thread.join(10)
    return heard["a"], heard["b"]


def test_every_message_comes_once_and_in_order_however_often_the_link_breaks(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=TIMING)
    with broken_link(port_of(listener.address), 0.4) as link:
        b, n = network.connect(f"tcp://127.0.0.1:{link.port}", timing=TIMING), 200
        returns: list[str] = []
        b.traffic.on_return = returns.append
        # Who connects speaks first; the listener is spoken to only then.
        b.send(Done())
        a = listener.channel("b")
        assert within(5, a.receive) == Done()
        assert exchange(a, b, within, n) == (list(range(n)), list(range(n)))
        assert link.n_breaks >= 2
        assert returns[0].startswith("a was reached over another connection; ")


def test_without_what_is_kept_messages_are_lost(network: Any, within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin: after a break both go on with the next message."""

    def resume(talk: Conversation, count: int) -> int:
        while talk._kept:
            talk._kept.popleft()
            talk._n_confirmed += 1
        talk._n_sent = talk._n_confirmed
        return 0

    monkeypatch.setattr(conversation.Conversation, "resume", resume)
    monkeypatch.setattr(conversation.Conversation, "confirm", lambda talk, count: None)
    with pytest.raises(AssertionError):
        test_every_message_comes_once_and_in_order_however_often_the_link_breaks(
            network, lambda seconds, call: within(min(seconds, 4), call)
        )


def test_a_link_that_stays_away_for_a_while_is_waited_for_and_not_longer(network: Any, within: Within) -> None:
    timing = Timing(timeout_s=2, wait_s=2)
    listener = network.listen("b", timing=timing)
    with broken_link(port_of(listener.address), 60) as link:
        b, a = network.connect(f"tcp://127.0.0.1:{link.port}", timing=timing), listener.channel("b")
        b.send(Done())
        assert within(5, a.receive) == Done()
        link.is_down = True
        time.sleep(0.3)
        a.send(chunk(1))
        b.send(chunk(2))
        threading.Timer(0.7, setattr, (link, "is_down", False)).start()
        reading = threading.Thread(target=lambda: expect(b, RankChunk), daemon=True)
        reading.start()
        assert within(5, lambda: expect(a, RankChunk)).start == 2
        reading.join(5)
        link.is_down = True
        started = time.monotonic()
        with pytest.raises(PeerLost, match=r"^b .* did not come back within 2 s$"):
            within(6, a.receive)
        with pytest.raises(PeerLost, match=r"^a .* could not be reached again within 2 s$"):
            within(6, b.receive)
        assert time.monotonic() - started < 6


def test_a_peer_that_turned_connections_away_and_then_is_away_is_not_waited_for_longer(
    network: Any, within: Within
) -> None:
    """It does not read, so that what comes over connection after connection waits, and the next one is refused."""
    timing = Timing(timeout_s=2, wait_s=2)
    listener = network.listen("b", timing=timing)
    with broken_link(port_of(listener.address), 0.5) as link:
        b = network.connect(f"tcp://127.0.0.1:{link.port}", timing=timing)
        b.send(Done())
        assert within(5, listener.channel("b").receive) == Done()
        deadline = time.monotonic() + 20
        while not b._presence.is_busy:
            assert not b.is_ready()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        link.is_down = True
        with pytest.raises(PeerLost, match=r"^a .* could not be reached again within 2 s$"):
            within(10, b.receive)


def test_a_forwarder_that_reaches_nobody_yet_is_no_wrong_key(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=TIMING)
    with broken_link(port_of(listener.address), 60) as link:
        link.is_down = True
        b = network.connect(f"tcp://127.0.0.1:{link.port}", timing=Timing(timeout_s=0.5, wait_s=10))
        threading.Timer(2, setattr, (link, "is_down", False)).start()
        within(8, lambda: b.send(Done()))
        assert within(5, listener.channel("b").receive) == Done()


def test_a_program_that_was_started_again_is_told_from_a_broken_link(network: Any, within: Within) -> None:
    listener = network.listen("b", timing=TIMING)
    port = port_of(listener.address)
    b = network.connect(listener.address, timing=TIMING)
    b.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    # What a kill leaves behind: no word, and nobody at the port.
    listener._peers.to_acknowledge = lambda **_: iter(())
    listener._peers.are_confirmed = lambda: True
    network.leave(listener)
    again = zmq_channel_listener(network, port)
    with pytest.raises(PeerRestarted, match=r"^a was started again"):
        within(5, lambda: answering(again, b))
    b.reset()
    b.send(Done())
    assert within(5, again.channel("b").receive) == Done()
    again.close()


def zmq_channel_listener(network: Any, port: int) -> Any:
    from protocols.transport.zmq_listener import Listener

    peers = {"b": network.keys["b"].public}
    return Listener(f"tcp://127.0.0.1:{port}", peers, keys=network.keys["a"], timing=TIMING)


def answering(listener: Any, b: Channel) -> Any:
    """What b hears while the listener looks at its connections."""
    while not b.is_ready():
        listener.channel("b").is_ready()
        time.sleep(0.01)
    return b.receive()


def test_what_is_said_over_a_stolen_name_of_a_conversation_is_refused(network: Any, within: Within) -> None:
    """c names b's conversation as its own: it is c's by its key, and has no conversation of that name."""
    listener = network.listen("b", "c", timing=TIMING)
    b = network.connect(listener.address, timing=TIMING)
    b.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    c = network.connect(listener.address, own="c", timing=TIMING)
    c._attempt.close(is_lost=True)
    c._token, c._number = b._token, 7
    c._presence.was_joined = True
    c._connect()
    with pytest.raises(PeerRestarted):
        within(5, lambda: answering(listener, c))
    b.send(chunk(1))
    assert within(5, listener.channel("b").receive).start == 1


@given(st.lists(st.sampled_from(["keep", "send", "confirm", "break"]), max_size=60), st.randoms())
def test_the_other_end_gets_every_kept_message_once_and_in_order(steps: list[str], random: Any) -> None:
    """Against a twin that holds a list of all messages, and a link that loses any number of the last ones."""
    ours, said, heard, on_the_way = Conversation(), 0, list[bytes](), list[bytes]()
    for step in [*steps, "break", *["send"] * len(steps)]:
        if step == "keep":
            ours.keep([b"%d" % said])
            said += 1
        elif step == "send" and (frames := ours.next_unsent()) is not None:
            on_the_way.append(bytes(frames[0]))
            ours.sent()
        elif step == "confirm":
            heard += on_the_way
            on_the_way = []
            ours.confirm(len(heard))
        elif step == "break":
            heard += on_the_way[: random.randint(0, len(on_the_way))]
            on_the_way = []
            ours.resume(len(heard))
    heard += on_the_way
    assert heard == [b"%d" % i for i in range(said)]
    ours.confirm(said)
    assert ours.is_confirmed


@pytest.mark.parametrize("count", [0, 3])
def test_a_count_that_cannot_be_is_refused(count: int) -> None:
    ours = Conversation()
    for _ in range(2):
        ours.keep([b""])
        ours.sent()
    ours.confirm(1)
    with pytest.raises(UnexpectedMessage, match=f"has received {count} messages; 1 to 2 can be"):
        ours.resume(count)


@pytest.mark.parametrize("ends", ["reset", "close"])
def test_a_party_that_leaves_is_not_held_by_a_count_that_cannot_be(network: Any, within: Within, ends: str) -> None:
    """A service begins again after each conversation, whatever the other end says then."""
    listener = network.listen("b")
    b = network.connect(listener.address)
    b.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    route = listener._peers.route("b")
    for _ in range(3):
        listener._socket.send_multipart([route, *encode(Received(count=7))])
    time.sleep(0.2)
    getattr(b, ends)()
    if ends == "reset":
        b.send(chunk(1))
        listener.channel("b").reset()
        assert within(5, listener.channel("b").receive).start == 1


def test_a_count_that_cannot_be_ends_the_conversation(network: Any, within: Within) -> None:
    listener = network.listen("b")
    b = network.connect(listener.address)
    b.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    listener._socket.send_multipart([listener._peers.route("b"), *encode(Received(count=7))])
    with pytest.raises(UnexpectedMessage, match=r"^a says that it has received 7 messages"):
        within(5, b.receive)


def test_the_same_messages_are_not_sent_again_without_end() -> None:
    """Whoever comes back again and again, and says that nothing has come, would use this party's line for good."""
    ours = Conversation()

    def came_back(count: int, n_times: int) -> None:
        for _ in range(n_times):
            while ours.next_unsent() is not None:
                ours.sent()
            ours.resume(count)

    came_back(0, 2 * conversation.MAX_FRUITLESS)  # Where nothing was sent, the links may break as often as they like.
    for _ in range(3):
        ours.keep(encode(Done()))
    came_back(0, conversation.MAX_FRUITLESS)
    came_back(1, conversation.MAX_FRUITLESS)  # One has come.
    with pytest.raises(UnexpectedMessage, match="came back 65 times"):
        came_back(1, 2)


def test_a_word_is_told_from_every_other_message() -> None:
    received = Received(count=7, is_last=True)
    assert read_received(encode(received)) == received
    assert read_received(encode(Done())) is None
    assert read_received([b"received"]) is None
    assert read_received([*encode(received), b""]) is None


def test_a_connection_goes_by_party_conversation_and_number() -> None:
    assert read_connection_id(connection_id("b", "abc", 3)) == ("b", b"abc", 3)
    assert read_connection_id(b"b") == ("b", b"", 0)
    assert read_connection_id(b"b\0abc\0-1") == ("b", b"", 0)
    assert read_connection_id(b"\0\1\0\2\3") == ("", b"", 0)


def test_nothing_is_said_over_a_connection_before_both_know_from_where_on(network: Any, within: Within) -> None:
    """A message that comes before the answer to `Received` is dropped: it comes again."""
    b = network.connect(network.listen("b", timing=TIMING).address, timing=TIMING)
    b._presence.was_joined, b._is_joined = True, False
    b._attempt.take = lambda: encode(Done())
    b._take_next()
    assert not b._inbox
    assert b._conversation.n_received == 0


@pytest.mark.parametrize("lost", [[0], [1], [0, 1], [0, 1, 2]])
def test_frames_that_are_left_out_on_the_way_come_again_over_another_connection(
    lost: list[int], network: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CURVE would not notice: the run went on with a message less, and the model was another one."""
    listener = network.listen("b", timing=TIMING)
    b = network.connect(listener.address, timing=TIMING)
    b.send(Done())
    assert within(5, listener.channel("b").receive) == Done()
    unsent, struck = Conversation.next_unsent, set[int]()

    def without(talk: Conversation) -> list[Frame] | None:
        frames = unsent(talk)
        if frames is None or talk.n_received < 4 or id(talk) in struck:
            return frames
        struck.add(id(talk))
        return [frame for place, frame in enumerate(frames) if place not in lost] or list(HEARTBEAT)

    monkeypatch.setattr(Conversation, "next_unsent", without)
    assert exchange(listener.channel("b"), b, within, 8, 3) == (list(range(8)), list(range(8)))
    assert len(struck) == 2


def test_a_message_is_taken_whole_and_in_its_turn_alone() -> None:
    theirs = Conversation()
    for frames in ([mark(1, 1)], [b"h", mark(2, 1)], [b"h", mark(1, 2)], [b"h", b"array", b"next", mark(2, 1)]):
        assert not theirs.received(list(frames))
    taken = [b"h", b"array", mark(1, 2)]
    assert theirs.received(taken)
    assert (taken, theirs.n_received) == ([b"h", b"array"], 1)
    assert not theirs.received([b"h", b"array", mark(1, 2)])


def test_what_follows_is_no_part_of_a_message_whose_last_frames_are_left_out() -> None:
    """A heartbeat was taken for a chunk of 41 ranks where the chunk and the mark were left out before it."""
    theirs = Conversation()
    header = encode(chunk(0, len(HEARTBEAT[0])))[0]
    for rest in ([*HEARTBEAT], encode(Received(count=0)), [*HEARTBEAT, mark(1, 255)], [mark(1, 255)]):
        assert not theirs.received([header, *rest])
    for alone in (mark(1, 255), mark(0, 255)):
        assert not is_any_heartbeat([alone])
        assert not theirs.received([alone])
    assert theirs.n_received == 0
    # How a program of another version begins.
    assert theirs.received(encode(Done()))


@pytest.mark.parametrize("sender", ["a", "b"])
def test_a_message_that_is_left_out_is_missed_though_none_follows(
    sender: str, network: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both waited for each other for ever, and each heard that the other one goes on."""
    timing = Timing(timeout_s=3, wait_s=5, stall_s=2)
    listener = network.listen("b", timing=timing)
    ends = {"b": network.connect(listener.address, timing=timing), "a": listener.channel("b")}
    ends["b"].send(Done())
    assert within(5, ends["a"].receive) == Done()
    ends["a"].send(Done())
    assert within(5, ends["b"].receive) == Done()
    ask, struck, unsent = chunk(7), list[int](), Conversation.next_unsent

    def answer(end: Channel) -> None:
        assert expect(end, RankChunk).start == 7
        end.send(Done())

    answering = threading.Thread(target=answer, args=(ends["a" if sender == "b" else "b"],), daemon=True)

    def without(talk: Conversation) -> Any:
        frames = unsent(talk)
        if frames is not None and len(frames) > 2 and not struck:
            struck.append(len(frames))
            return list(HEARTBEAT)
        return frames

    monkeypatch.setattr(Conversation, "next_unsent", without)
    answering.start()
    ends[sender].send(ask)
    assert within(10, ends[sender].receive) == Done()
    answering.join(5)
    assert struck == [3]


@pytest.mark.parametrize("frames", [[*HEARTBEAT, mark(1, 255)], encode(Done())], ids=["heartbeat", "message"])
def test_a_connection_over_which_the_answer_to_a_count_was_left_out_is_over(frames: list[Frame], network: Any) -> None:
    """This party waited for the answer, as long as the other one went on."""
    b = network.connect(network.listen("b", timing=TIMING).address, timing=TIMING)
    b._presence.was_joined, b._is_joined = True, False
    b._conversation.received([b"h", mark(1, 1)])
    for left_out in (False, True):
        b._attempt.take = lambda left_out=left_out: list(frames if left_out else HEARTBEAT)
        b._take_next()
        assert b._attempt.is_over is left_out


def test_a_first_message_that_is_left_out_is_missed_and_the_conversation_begins_again(
    network: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other end had heard of nobody, and waited until its time was over."""
    timing = Timing(timeout_s=3, wait_s=20, stall_s=2)
    listener = network.listen("b", timing=timing)
    b, unsent, struck = network.connect(listener.address, timing=timing), Conversation.next_unsent, list[int]()

    def without(talk: Conversation) -> Any:
        frames = unsent(talk)
        if frames is not None and not struck:
            struck.append(len(frames))
            return list(HEARTBEAT)
        return frames

    def greet() -> None:
        with suppress(PeerRestarted):
            b.send(Done())
            b.receive()
        b.reset()
        b.send(chunk(7))

    monkeypatch.setattr(Conversation, "next_unsent", without)
    greeting = threading.Thread(target=greet, daemon=True)
    greeting.start()
    assert within(10, listener.channel("b").receive).start == 7
    greeting.join(5)
    assert struck == [2]


def test_a_count_that_is_left_out_is_told_again(network: Any, within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection stood, and both waited: the one for an answer, the other for the peer to come back."""
    timing = Timing(timeout_s=3, wait_s=20, stall_s=2)
    with broken_link(port_of((listener := network.listen("b", timing=timing)).address), 60) as link:
        b, a = network.connect(f"tcp://127.0.0.1:{link.port}", timing=timing), listener.channel("b")
        b.send(Done())
        assert within(5, a.receive) == Done()
        acknowledgement, struck = Conversation.acknowledgement, list[int]()

        def without(conversation: Conversation, **options: Any) -> Any:
            frames = acknowledgement(conversation, **options)
            if conversation is b._conversation and not struck:
                struck.append(len(frames))
                return list(HEARTBEAT)
            return frames

        monkeypatch.setattr(Conversation, "acknowledgement", without)
        link.is_down = True
        time.sleep(0.3)
        b.send(chunk(7))
        link.is_down = False
        waiting = threading.Thread(target=lambda: struck.append(expect(b, RankChunk).start), daemon=True)
        waiting.start()
        assert within(10, a.receive).start == 7
        a.send(chunk(8))
        waiting.join(5)
        assert struck == [1, 8]


def test_last_words_that_were_not_taken_yet_are_told_by_whoever_was_busy(network: Any, within: Within) -> None:
    timing = Timing(timeout_s=3, wait_s=0.4)
    listener = network.listen("b", timing=timing)
    b, a = network.connect(listener.address, timing=timing), listener.channel("b")
    b.send(Done())
    assert within(5, a.receive) == Done()
    a.send(Done())
    a.send(Abort(phase="training", reason="no power"))
    time.sleep(0.2)
    listener._peers.to_acknowledge = lambda **_: iter(())
    listener._peers.are_confirmed = lambda: True
    network.leave(listener)
    time.sleep(0.6)
    with pytest.raises(PeerAborted, match="no power"):
        within(5, lambda: b.send(Done()))


def test_constants_leave_room_for_the_window_of_ranks() -> None:
    assert conversation.MAX_UNSENT >= conversation.ACKNOWLEDGE_EVERY
    assert zmq_channel.RETRY_S < zmq_channel.LONGEST_RETRY_S
    assert BrokenLink.__doc__


class Taker:
    """A listed peer with a socket of its own, which takes what it is sent and says nothing of it."""

    def __init__(self, address: str) -> None:
        self._context, self._address, self._number = zmq.Context(), address, 0
        self._is_over = threading.Event()
        self.socket = self.open()

    def open(self, *, rcvhwm: int = 0) -> Any:
        """Another connection of the same conversation."""
        found = self._context.socket(zmq.DEALER)
        found.linger, found.rcvhwm, found.rcvbuf = 0, rcvhwm, 4096
        found.routing_id = connection_id("b", "t" * 32, self._number)
        found.connect(self._address)
        self._number += 1
        return found

    @contextmanager
    def taking(self) -> Iterator[None]:
        thread = threading.Thread(target=self._take)
        thread.start()
        yield
        self._is_over.set()
        thread.join()

    def _take(self) -> None:
        while not self._is_over.is_set():
            if self.socket.poll(20):
                self.socket.recv_multipart()

    def close(self) -> None:
        self._context.destroy(linger=0)


@pytest.fixture
def taker(network: Any, within: Within) -> Iterator[tuple[Channel, Any, Taker]]:
    """The channel to a taker that has greeted, and its listener."""
    listener = network.listen("b", encrypted=False, timing=Timing(timeout_s=1, wait_s=5, send_s=0.5))
    peer, channel = Taker(listener.address), listener.channel("b")
    peer.socket.send_multipart(encode(Done()))
    assert within(5, channel.receive) == Done()
    yield channel, listener, peer
    peer.close()


def send_much(channel: Channel) -> int:
    n_sent = 0
    with suppress(PeerLost):
        while n_sent < 40:
            channel.send(chunk(n_sent))
            n_sent += 1
    return n_sent


def test_what_is_kept_for_a_peer_that_never_says_what_has_come_is_bounded(
    taker: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel, listener, peer = taker
    monkeypatch.setattr(conversation, "MAX_KEPT", 20)
    with peer.taking():
        assert within(8, lambda: send_much(channel)) == 19
    assert len(listener._peers.conversation("b")._kept) == 20


def test_without_that_bound_all_is_kept(taker: Any, within: Within, monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken twin."""
    channel, _, peer = taker
    monkeypatch.setattr(Conversation, "is_behind", property(lambda talk: talk.n_unsent > 0))
    with peer.taking():
        assert within(8, lambda: send_much(channel)) == 40


def test_a_peer_that_says_what_has_come_is_sent_any_number(
    network: Any, within: Within, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation, "MAX_KEPT", 20)
    listener = network.listen("b", timing=TIMING)
    b, a, heard = network.connect(listener.address, timing=TIMING), listener.channel("b"), list[int]()
    b.send(Done())
    assert within(5, a.receive) == Done()
    reading = threading.Thread(target=lambda: heard.extend(expect(b, RankChunk).start for _ in range(60)), daemon=True)
    reading.start()
    for i in range(60):
        within(5, lambda i=i: a.send(chunk(i)))
    reading.join(5)
    assert heard == list(range(60))


def test_bytes_are_bounded_as_well() -> None:
    ours = Conversation()
    for count in (1, 2):
        ours.keep([memoryview(bytearray(1)).cast("B")] if count == 1 else [b"x" * 8])
        ours.sent()
    assert (ours.is_behind, ours._kept_bytes) == (False, 9 + 2 * MARK_BYTES)
    ours.confirm(1)
    assert ours._kept_bytes == 8 + MARK_BYTES


def test_the_last_word_to_a_peer_that_reads_nothing_does_not_wait_for_it(network: Any, within: Within) -> None:
    listener = network.listen("b", encrypted=False, timing=Timing(timeout_s=10, wait_s=5, stall_s=60))
    peer, channel = Taker(listener.address), listener.channel("b")
    peer.socket.close(0)
    peer.socket = peer.open(rcvhwm=1)
    peer.socket.send_multipart(encode(Done()))
    assert within(5, channel.receive) == Done()
    route = listener._peers.route("b")
    with suppress(zmq.Again):
        while True:
            listener._socket.send_multipart([route, *encode(chunk(0, 1 << 20))], flags=zmq.NOBLOCK)
    within(4, lambda: channel.send(Abort(phase="training", reason="over")))
    peer.close()


def test_a_peer_that_comes_back_whenever_it_is_cut_off_does_not_keep_a_listener_open(
    taker: Any, within: Within
) -> None:
    _, listener, _ = taker
    listener._connections.cut_stuck = lambda *, is_over: True
    within(5, listener.close)
