"""A pair of channels in one process. Messages pass through the codec, so they are exactly what the wire would carry."""

from __future__ import annotations

import threading
from collections import deque

from protocols.errors import PeerLost
from protocols.messages.message import Message
from protocols.transport.channel import Traffic, ends_with_abort, loss_of_peer
from protocols.transport.codec import Frame, encode

# Messages that may wait in one direction before the sender waits too.
CAPACITY = 64


class _Pipe:
    """One direction: a bounded queue that either end can close."""

    def __init__(self) -> None:
        self.queue: deque[list[Frame]] = deque()
        self.changed = threading.Condition()
        self.is_closed = False

    def close(self) -> None:
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()


class MemoryChannel:
    """One end of `memory_pair`; may be used by a thread of its own."""

    def __init__(self, peer: str, outgoing: _Pipe, incoming: _Pipe) -> None:
        self.peer = peer
        self.traffic = Traffic()
        self._outgoing = outgoing
        self._incoming = incoming

    def send(self, message: Message) -> None:
        # Decoding hands out views of the frames, so the sender must not be able to change them later.
        frames: list[Frame] = [bytes(frame) for frame in encode(message)]
        pipe = self._outgoing
        with pipe.changed:
            pipe.changed.wait_for(lambda: pipe.is_closed or len(pipe.queue) < CAPACITY)
            if pipe.is_closed:
                raise loss_of_peer(self.peer, list(self._incoming.queue), "closed the channel")
            pipe.queue.append(frames)
            pipe.changed.notify_all()
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        pipe = self._incoming
        with pipe.changed:
            pipe.changed.wait_for(lambda: pipe.queue or pipe.is_closed)
            if not pipe.queue:
                raise PeerLost(f"{self.peer} closed the channel")
            frames = pipe.queue.popleft()
            pipe.changed.notify_all()
        return self.traffic.decode_received(frames, self.peer)

    def is_ready(self) -> bool:
        with self._incoming.changed:
            return bool(self._incoming.queue) or self._incoming.is_closed

    def has_come(self) -> bool:
        return True

    def isolate(self) -> None:
        """Nothing to do: there is no other peer here."""

    def reset(self, *, renews_deadline: bool = False) -> None:
        """Nothing to do: whoever comes next speaks through the same pipe."""

    def check(self) -> None:
        with self._incoming.changed:
            waiting = list(self._incoming.queue)
            if ends_with_abort(waiting) or (self._incoming.is_closed and not waiting):
                raise loss_of_peer(self.peer, waiting, "closed the channel")

    def close(self) -> None:
        self._outgoing.close()
        self._incoming.close()


def memory_pair(first: str, second: str) -> tuple[MemoryChannel, MemoryChannel]:
    """Two connected ends: the one that party `first` uses, and the one that party `second` uses."""
    there, back = _Pipe(), _Pipe()
    return MemoryChannel(second, there, back), MemoryChannel(first, back, there)
