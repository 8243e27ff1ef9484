"""The lines to workers: one that sends without end neither deafens the coordinator nor outlasts its patience."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
import zmq

from parties.errors import Disagreement
from parties.horizontal.round_journal import RoundJournal
from parties.horizontal.worker_admission import WorkerAdmission
from parties.horizontal.worker_connections import MAX_MESSAGES, Connections
from protocols.errors import UnexpectedMessage
from protocols.messages.comparison import Compare
from protocols.messages.horizontal import Join
from protocols.messages.vertical import Done
from protocols.transport.channel import Timing
from protocols.transport.codec import encode
from protocols.transport.memory import memory_pair
from protocols.transport.peers import MAX_WAITING
from protocols.transport.zmq_channel import ConnectedChannel
from protocols.transport.zmq_listener import Listener

LATE = Done()
FRAMES = encode(LATE)

# A worker that sends for ten seconds whatever happens.
FLOODS = """
import sys, time, zmq
socket = zmq.Context().socket(zmq.DEALER)
socket.routing_id, socket.linger = b"bad", 0
socket.connect(sys.argv[1])
frames, end = [bytes.fromhex(word) for word in sys.argv[2:]], time.monotonic() + 10
while time.monotonic() < end:
    try:
        socket.send_multipart(frames, zmq.NOBLOCK)
    except zmq.Again:
        time.sleep(0.0002)
"""


class Workers:
    """A listener, its lines, and two workers that have spoken."""

    def __init__(self) -> None:
        self.listener = Listener(
            "tcp://127.0.0.1:*", {"bad": None, "ok": None}, keys=None, timing=Timing(timeout_s=5, wait_s=5)
        )
        self._context = zmq.Context()
        self.sockets = {name: self._context.socket(zmq.DEALER) for name in ("bad", "ok")}
        for name, socket in self.sockets.items():
            socket.routing_id = name.encode()
            socket.linger, socket.sndhwm = 0, 100_000
            socket.connect(self.listener.address)
            socket.send_multipart(FRAMES)
        self.events: list[str] = []
        channels = [self.listener.channel(name) for name in self.sockets]
        self.lines = Connections(channels, note=lambda event, sentence: self.events.append(sentence))
        for worker in self.lines.all.values():
            worker.is_in = True
        came: set[str] = set()
        for worker, _ in self.lines.answers(list(self.sockets), 5, came):
            came.add(worker.name)

    def hears_ok(self, seconds: float = 3) -> bool:
        self.sockets["ok"].send_multipart(FRAMES)
        came: set[str] = set()
        for worker, _ in self.lines.answers(["ok"], seconds, came):
            came.add(worker.name)
        return came == {"ok"}

    def close(self) -> None:
        self._context.destroy(0)
        self.listener.close()


@pytest.fixture
def workers() -> Iterator[Workers]:
    workers = Workers()
    yield workers
    workers.close()


@pytest.mark.parametrize("is_expelled", [True, False])
@pytest.mark.parametrize("n_junk", [10, 100, 10 * MAX_WAITING])
def test_a_worker_that_nobody_listens_to_does_not_deafen(workers: Workers, is_expelled: bool, n_junk: int) -> None:
    bad = workers.lines.all["bad"]
    if is_expelled:
        workers.lines.expel(bad, "its vector is malformed")
    else:
        workers.lines.lose(bad, "bad did not answer", is_gone=False)
    for _ in range(n_junk):
        workers.sockets["bad"].send_multipart(FRAMES)
    time.sleep(0.2)
    for _ in range(5):
        assert workers.hears_ok()


def test_a_worker_that_was_cut_off_may_come_again(workers: Workers) -> None:
    bad = workers.lines.all["bad"]
    workers.lines.lose(bad, "bad did not answer", is_gone=False)
    for _ in range(2 * MAX_WAITING):
        workers.sockets["bad"].send_multipart(FRAMES)
    deadline = time.monotonic() + 5
    while not workers.listener._peers.is_lost("bad") and time.monotonic() < deadline:
        assert workers.hears_ok()
    bad.channel.reset()
    workers.sockets["bad"].send_multipart(FRAMES)
    while time.monotonic() < deadline and not bad.channel.is_ready():
        time.sleep(0.01)
    assert bad.channel.receive().kind == LATE.kind


def test_patience_ends_while_a_worker_sends_without_end(workers: Workers) -> None:
    workers.sockets["bad"].close()
    workers.lines.lose(workers.lines.all["bad"], "", is_gone=True)
    words = [bytes(frame).hex() for frame in FRAMES]
    flood = subprocess.Popen([sys.executable, "-c", FLOODS, workers.listener.address, *words])
    try:
        while not workers.lines.all["bad"].channel.is_ready():
            time.sleep(0.01)
        workers.lines.all["bad"].is_in = True
        began = time.monotonic()
        heard = [worker.name for worker, _ in workers.lines.answers(["bad", "ok"], 0.5, set())]
        assert time.monotonic() - began < 3
    finally:
        flood.kill()
        flood.wait()
    assert heard == ["bad"] * MAX_MESSAGES
    assert any(f"it sent more than {MAX_MESSAGES} messages where one was due" in event for event in workers.events)


class Endless:
    """A channel of a worker that always has a message there."""

    peer = "bad"

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def is_ready(self) -> bool:
        time.sleep(self._pause_s)
        return True

    def receive(self) -> Done:
        return LATE

    def send(self, message: Any) -> None: ...

    def close(self) -> None: ...


@pytest.mark.parametrize("pause_s", [0.0, 0.005])
def test_messages_do_not_prolong_patience(pause_s: float) -> None:
    channels: Any = [Endless(pause_s)]
    lines = Connections(channels, note=lambda event, sentence: None)
    lines.all["bad"].is_in = True
    began = time.monotonic()
    heard = list(lines.answers(["bad"], 0.1, set()))
    assert time.monotonic() - began < 2
    assert len(heard) == MAX_MESSAGES
    assert lines.all["bad"].is_over


def test_nobody_joins_twice() -> None:
    (near, far), (_, other) = memory_pair("hub", "w0"), memory_pair("hub", "w1")
    lines = Connections([near, other], note=lambda event, sentence: None)
    for _ in range(2):
        key, commitment = b"k" * 32, bytes(32)
        far.send(Join(party="w0", run_id="r", terms={}, key=key, commitment=commitment, answered=0, is_secure=True))
    with pytest.raises(UnexpectedMessage, match=r"^w0 joined twice\. Nothing was released$"):
        WorkerAdmission(lines, run_id="r", terms={}, journal=RoundJournal()).gather(2, wait_s=1, patience_s=1)


@pytest.mark.parametrize("key", [bytes(32), b"\x01" + bytes(31)], ids=["zero", "one"])
def test_a_key_with_which_nobody_could_share_a_secret_is_refused_before_the_other_workers_meet_it(key: bytes) -> None:
    (near, far), (_, other) = memory_pair("hub", "w0"), memory_pair("hub", "w1")
    lines = Connections([near, other], note=lambda event, sentence: None)
    far.send(Join(party="w0", run_id="r", terms={}, key=key, commitment=bytes(32), answered=0, is_secure=True))
    with pytest.raises(Disagreement, match=r"^w0 and this party do not agree: its key for secure"):
        WorkerAdmission(lines, run_id="r", terms={}, journal=RoundJournal()).gather(2, wait_s=0.1, patience_s=1)


def test_a_worker_that_comes_while_its_doctor_has_not_left_yet_is_heard() -> None:
    """What has only looked holds no place, although its connection is still there."""
    timing, look = Timing(timeout_s=5, wait_s=5), Compare(party="w0", run_id="r", terms={})
    listener = Listener("tcp://127.0.0.1:*", {"w0": None}, keys=None, timing=timing)
    doctor, worker = (
        ConnectedChannel(listener.address, name="w0", peer="hub", keys=None, peer_key=None, timing=timing)
        for _ in range(2)
    )
    lines = Connections([listener.channel("w0")], note=lambda event, sentence: None, terms=look)
    try:
        doctor.send(look)
        assert not list(lines.listen(["w0"], 5, until=doctor.is_ready))
        assert doctor.receive() == look
        worker.send(LATE)
        heard: list[Any] = []
        for _, message in lines.listen(["w0"], 5, until=lambda: bool(heard)):
            heard.append(message)
        assert heard == [LATE]
    finally:
        for end in (doctor, worker, listener):
            end.close()


def test_a_worker_that_only_looks_without_end_is_expelled_however_patiently_it_does() -> None:
    near, far = memory_pair("hub", "w0")
    look, events = Compare(party="w0", run_id="r", terms={}), list[str]()
    lines = Connections([near], note=lambda event, sentence: events.append(event), terms=look)
    for _ in range(2 * MAX_MESSAGES):
        if not (worker := lines.all["w0"]).is_over:
            far.send(look)
            assert not list(lines.listen(["w0"], 0.0, until=lambda: False))
            assert worker.is_over or far.receive() == look
    assert worker.is_over
    assert events == ["looked at"] * MAX_MESSAGES
