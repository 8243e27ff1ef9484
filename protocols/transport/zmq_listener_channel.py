"""Channel of the active party to one peer, over a socket that it shares with those to all others."""

from __future__ import annotations

import time
from typing import Protocol

from protocols.messages.message import Message
from protocols.transport.channel import Traffic
from protocols.transport.codec import Frame, encode
from protocols.transport.peers import Peers


class Listening(Protocol):
    """The socket that all peers connect to: `protocols.transport.zmq_listener.Listener`."""

    def send(self, peer: str, frames: list[Frame], kind: str) -> None: ...
    def receive(self, peer: str, deadline: float) -> list[Frame]: ...
    def is_ready(self, peer: str) -> bool: ...
    def check(self, peer: str) -> None: ...


class ListenerChannel:
    """The active party's end of a conversation; see `Listener`."""

    def __init__(self, listener: Listening, peers: Peers, peer: str, *, wait_s: float) -> None:
        self.peer = peer
        self.traffic = Traffic()
        self._listener = listener
        self._peers = peers
        self._wait_s = wait_s
        self._deadline = time.monotonic() + wait_s

    def send(self, message: Message) -> None:
        frames = encode(message)
        self._listener.send(self.peer, frames, message.kind)
        self.traffic.count_sent(message, frames)

    def receive(self) -> Message:
        return self.traffic.decode_received(self._listener.receive(self.peer, self._deadline), self.peer)

    def is_ready(self) -> bool:
        return self._listener.is_ready(self.peer)

    def has_come(self) -> bool:
        return self._peers.route(self.peer) is not None

    def check(self) -> None:
        self._listener.check(self.peer)

    def isolate(self) -> None:
        self._peers.isolate(self.peer)

    def reset(self, *, renews_deadline: bool = False) -> None:
        # A peer that keeps reconnecting for another job must not make this party wait for ever.
        if renews_deadline:
            self._deadline = time.monotonic() + self._wait_s
        self._peers.forget(self.peer)

    def close(self) -> None:
        """Expect nothing more of the peer; the listener's `close` lets go of it."""
        self._peers.release(self.peer)
