"""Monitor thread of a listening socket's connections: events and receive quotas.

ZeroMQ tells of connections that begin and end through a queue of a thousand events, and stops where that is full: then
no heartbeat goes out any more. It accepts whoever connects, as long as there are file descriptors. So somebody has to
read the events and to cut off those who take too much, whatever the party's own thread does meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

import zmq

from protocols.transport.receive_quota import QUOTA_LOOK_S, Arrivals, Cut
from protocols.transport.zmq_socket import events

# Events that wait for the party's own thread. Strangers who come and go while it is busy must not fill the memory.
MAX_NEWS = 10_000


class WatchedConnections:
    """Monitors the connections of a socket; its findings are fetched by the party's own thread.

    Parameters
    ----------
    socket : zmq.Socket
    watched : int
        Events to follow, among them that a connection was accepted and that one ended.
    arrivals : Arrivals
        Not to be used by anybody else.

    Attributes
    ----------
    n_forgotten : int
        Connections that began and ended while nobody fetched the news, and are in none.
    """

    def __init__(self, socket: zmq.Socket[bytes], watched: int, arrivals: Arrivals) -> None:
        self._socket = socket
        self._monitor = socket.get_monitor_socket(watched)
        self._arrivals = arrivals
        self._news: list[dict[str, int]] = []
        self.n_forgotten = 0
        self._cut: list[Cut] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="opboost connections", daemon=True)
        self._thread.start()

    def news(self) -> list[dict[str, int]]:
        """The events since the last call, up to now; the end of a connection says whether it `was_cut` off here."""
        with self._lock:
            self._follow()
            found, self._news = self._news, []
            return found

    def cut(self) -> list[Cut]:
        """The connections that were cut off since the last call."""
        with self._lock:
            found, self._cut = self._cut, []
            return found

    def take(self, descriptor: int, sizes: Sequence[int]) -> None:
        """Frames of these sizes were taken from a connection."""
        with self._lock:
            self._arrivals.take(descriptor, sizes)

    def keep(self, descriptors: Iterable[int]) -> None:
        """Peers speak over these connections and no others."""
        with self._lock:
            self._arrivals.keep(descriptors)

    def close(self) -> None:
        """Follow them no longer; before the socket is closed."""
        self._is_over.set()
        self._thread.join()
        self._socket.disable_monitor()
        self._monitor.close(linger=0)

    def _watch(self) -> None:
        while not self._is_over.wait(QUOTA_LOOK_S):
            with self._lock:
                self._follow()
                self._cut += self._arrivals.cut_off()

    def _follow(self) -> None:
        for event in events(self._monitor):
            if event["event"] == zmq.Event.ACCEPTED:
                self._arrivals.begin(event["value"])
            elif event["event"] == zmq.Event.DISCONNECTED:
                event["was_cut"] = not self._arrivals.end(event["value"])
            self._news.append(event)
        if len(self._news) > MAX_NEWS:
            n_ended = _count_ended(self._news)
            self._news = latest(self._news)
            self.n_forgotten += n_ended - _count_ended(self._news)


def latest(news: Sequence[dict[str, int]]) -> list[dict[str, int]]:
    """Of every descriptor what happened since its last connection began; enough to know which ones still stand."""
    told = [event for event in news if event["event"] in (zmq.Event.ACCEPTED, zmq.Event.DISCONNECTED)]
    begun = {event["value"]: i for i, event in enumerate(told) if event["event"] == zmq.Event.ACCEPTED}
    return [event for i, event in enumerate(told) if i >= begun.get(event["value"], 0)]


def _count_ended(news: Sequence[dict[str, int]]) -> int:
    return sum(event["event"] == zmq.Event.DISCONNECTED for event in news)
