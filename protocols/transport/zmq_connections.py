"""Monitor thread of a listening socket's connections: events and receive quotas.

ZeroMQ tells of connections that begin and end through a queue of a thousand events, and stops where that is full: then
no heartbeat goes out any more. It accepts whoever connects, as long as there are file descriptors. So somebody has to
read the events and to cut off those who take too much, whatever the party's own thread does meanwhile.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence

import zmq

from protocols.transport.receive_quota import QUOTA_CHECK_S, Cut, ReceiveQuotas
from protocols.transport.zmq_socket import CLOSING_S, HIGH_WATER_MARK, has_arrived, monitor_events, receive_parts

FAILED = zmq.Event.HANDSHAKE_FAILED_NO_DETAIL | zmq.Event.HANDSHAKE_FAILED_AUTH

# Events that wait for the party's own thread. Strangers who come and go while it is busy must not fill the memory.
MAX_EVENTS = 10_000

# How often to look whether connections that were ended here are over.
_ENDING_LOOK_S = 0.002


class WatchedConnections:
    """Monitors the connections of a socket; its findings are fetched by the party's own thread.

    Parameters
    ----------
    socket : zmq.Socket
    quotas : ReceiveQuotas
        Not to be used by anybody else.

    Attributes
    ----------
    n_forgotten : int
        Connections that began and ended while nobody fetched events, and whose events were dropped.
    """

    def __init__(self, socket: zmq.Socket[bytes], quotas: ReceiveQuotas) -> None:
        self._socket = socket
        self._monitor = socket.get_monitor_socket(zmq.Event.ACCEPTED | zmq.Event.DISCONNECTED | FAILED)
        self._quotas = quotas
        self._events: list[dict[str, int]] = []
        self._standing: set[int] = set()
        self.n_forgotten = 0
        self._cut: list[Cut] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="opboost connections", daemon=True)
        self._thread.start()

    def new_events(self) -> list[dict[str, int]]:
        """The events since the last call; that of a connection's end says whether it `was_cut` off here."""
        with self._lock:
            self._follow()
            found, self._events = self._events, []
            return found

    def cut(self) -> list[Cut]:
        """The connections that were cut off since the last call."""
        with self._lock:
            found, self._cut = self._cut, []
            return found

    def arrived(self) -> list[list[zmq.Frame]]:
        """The messages that have arrived, each behind its route, `HIGH_WATER_MARK` at most."""
        messages: list[list[zmq.Frame]] = []
        while len(messages) < HIGH_WATER_MARK and has_arrived(self._socket):
            parts = receive_parts(self._socket, n_addresses=1)
            with self._lock:
                self._quotas.take(int(parts[-1].get(zmq.SRCFD)), [len(part) for part in parts[1:]])
            messages.append(parts)
        return messages

    def keep(self, descriptors: Iterable[int]) -> None:
        """Peers speak over these connections and no others."""
        with self._lock:
            self._quotas.keep(descriptors)

    def cut_stuck(self, *, is_over: bool) -> bool:
        """Whether peers have not taken yet what was sent to them; when time is over, these are cut off."""
        with self._lock:
            self._follow()
            return self._quotas.cut_stuck(is_over=is_over)

    def close(self) -> None:
        """End all of them, and follow them no longer; before the socket is closed.

        libzmq stops to read from a connection that outlives its socket. So who is connected must not be when the socket
        is closed, nor who connects meanwhile.
        """
        self._is_over.set()
        self._thread.join()
        deadline = time.monotonic() + CLOSING_S
        while self._end_all() and time.monotonic() < deadline:
            time.sleep(_ENDING_LOOK_S)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    def _end_all(self) -> bool:
        """End all connections; returns whether ZeroMQ has not let go of all of them yet."""
        with self._lock:
            self._follow()
            self._quotas.cut_all()
            return bool(self._standing)

    def _watch(self) -> None:
        while not self._is_over.wait(QUOTA_CHECK_S):
            with self._lock:
                self._follow()
                self._cut += self._quotas.cut_off()

    def _follow(self) -> None:
        for event in monitor_events(self._monitor):
            if event["event"] == zmq.Event.ACCEPTED:
                self._quotas.begin(event["value"])
                self._standing.add(event["value"])
            elif event["event"] == zmq.Event.DISCONNECTED:
                event["was_cut"] = not self._quotas.end(event["value"])
                self._standing.discard(event["value"])
            self._events.append(event)
        self._events, n_forgotten = bounded(self._events)
        self.n_forgotten += n_forgotten


class Unproven:
    """Finds the connections that ended without having proved a key.

    A failed handshake is an event of its own, unless what came cannot be read, or the other side does not speak ZeroMQ
    at all: then the connection just ends (`zmq_socket.open_socket`). A refused key was told by the authenticator.

    Attributes
    ----------
    spoken : set of int
        Descriptors of connections over which messages came.
    """

    def __init__(self) -> None:
        self.spoken: set[int] = set()
        self._n_failed = 0

    def is_unproven_end(self, event: dict[str, int], speaking: set[int]) -> bool:
        """Whether the event is the end of such a connection; messages came over those in `speaking` just now."""
        kind, descriptor = event["event"], event["value"]
        if kind & FAILED:
            self._n_failed += 1
            return kind == zmq.Event.HANDSHAKE_FAILED_NO_DETAIL
        if kind != zmq.Event.DISCONNECTED:
            return False
        is_known = bool(self._n_failed or event["was_cut"] or descriptor in self.spoken | speaking)
        self._n_failed -= bool(self._n_failed)
        self.spoken.discard(descriptor)
        return not is_known


def bounded(events: list[dict[str, int]]) -> tuple[list[dict[str, int]], int]:
    """The events, or only the `latest` ones if there are too many; and how many ends of connections were dropped."""
    if len(events) <= MAX_EVENTS:
        return events, 0
    kept = latest(events)
    return kept, _count_ended(events) - _count_ended(kept)


def latest(events: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Of every descriptor what happened since its last connection began; enough to know which ones still stand."""
    changes = [event for event in events if event["event"] in (zmq.Event.ACCEPTED, zmq.Event.DISCONNECTED)]
    last_start = {event["value"]: i for i, event in enumerate(changes) if event["event"] == zmq.Event.ACCEPTED}
    return [event for i, event in enumerate(changes) if i >= last_start.get(event["value"], 0)]


def due_events(events: Sequence[dict[str, int]], *, is_all: bool) -> tuple[list[dict[str, int]], list[dict[str, int]]]:
    """The events that may be noted, and those that wait: ends of connections, unless all was read that came over them.

    What happened on a descriptor after such an end waits for it.
    """
    due: list[dict[str, int]] = []
    waiting: list[dict[str, int]] = []
    ended: set[int] = set()
    for event in events:
        if event["event"] == zmq.Event.DISCONNECTED:
            ended.add(event["value"])
        is_held = not is_all and not event["event"] & FAILED and event["value"] in ended
        (waiting if is_held else due).append(event)
    return due, waiting


def _count_ended(events: Sequence[dict[str, int]]) -> int:
    return sum(event["event"] == zmq.Event.DISCONNECTED for event in events)
