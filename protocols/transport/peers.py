"""State of a listener's peers: their connections, and their received but unread messages. No sockets.

A peer is known by its key, never by the name a connection gives itself. The first of its connections that speaks holds
its place until that connection ends; another one at the same time is turned away. Until the peer was heard it may
leave and come back, and what the earlier connection said is forgotten; afterwards its end is final.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from protocols.errors import UnexpectedMessage
from protocols.transport.channel import Timing, ends_with_abort, farewell
from protocols.transport.codec import Frame, size_bytes
from protocols.transport.liveness import BeatCount, Pulse, Silence, is_heartbeat, stalled

# What a peer may have said ahead of its turn: bounds the memory that it can take. Whoever says more is cut off, and so
# is a peer that says as many things after nothing more was expected of it.
MAX_WAITING = 256
MAX_WAITING_BYTES = 256 << 20


@dataclass(slots=True)
class _Descriptor:
    """The latest connection on a descriptor, which is used again after its connection ended."""

    serial: int = 0
    is_open: bool = True
    is_turned_away: bool = False
    beats: BeatCount = field(default_factory=BeatCount)


@dataclass(frozen=True, slots=True)
class _Connection:
    """Where answers go, and what tells whether the connection still stands."""

    route: bytes
    descriptor: int
    serial: int


@dataclass(slots=True)
class _Peer:
    silence: Silence
    pulse: Pulse
    connection: _Connection | None = None
    inbox: deque[list[Frame]] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_heard: bool = False
    is_released: bool = False
    n_dropped: int = 0
    cut: str = ""
    flood: str = ""

    def clear(self) -> None:
        self.inbox.clear()
        self.waiting_bytes = 0

    def forget(self) -> None:
        self.clear()
        self.connection, self.is_heard, self.cut, self.flood = None, False, "", ""


class Peers:
    """The peers of one listener.

    Parameters
    ----------
    names : iterable of str
    timing : Timing
    """

    def __init__(self, names: Iterable[str], *, timing: Timing) -> None:
        self._peers = {name: _Peer(Silence(timing.stall_s), Pulse(timing)) for name in names}
        self._descriptors: dict[int, _Descriptor] = {}
        self._timing = timing
        self._to_shut: list[_Connection] = []

    def note_event(self, descriptor: int, *, is_accepted: bool) -> None:
        """A connection began or ended."""
        known = self._descriptors.setdefault(descriptor, _Descriptor())
        known.is_open = is_accepted
        if is_accepted:
            known.serial += 1
            known.is_turned_away, known.beats = False, BeatCount()

    def note_flood(self, descriptor: int, amount: str) -> None:
        """A connection sent more than this amount ahead of its turn; if it is a peer's, that ends the run."""
        serial = self._descriptors.setdefault(descriptor, _Descriptor()).serial
        for peer in self._peers.values():
            if peer.connection and (peer.connection.descriptor, peer.connection.serial) == (descriptor, serial):
                peer.flood = amount

    def take(self, name: str, route: bytes, descriptor: int, frames: list[Frame]) -> bool:
        """Keep a message until it is asked for; False if it came over another connection than the peer's.

        Such a connection is shut when it goes on, and so is one over which heartbeats come without end.
        """
        peer = self._peers[name]
        known = self._descriptors.setdefault(descriptor, _Descriptor())
        connection = _Connection(route, descriptor, known.serial)
        if is_heartbeat(frames):
            if peer.connection == connection:
                peer.silence.end()
            if known.beats.is_flood():
                self._give_up(name, connection, "sent heartbeats without end")
            return True
        if peer.connection != connection:
            if peer.connection is not None and (peer.is_heard or not self.is_lost(name)):
                if known.is_turned_away:
                    self._to_shut.append(connection)
                known.is_turned_away = True
                return False
            peer.forget()
            peer.connection = connection
            peer.pulse.start()
        peer.silence.end()
        if peer.is_released:
            peer.n_dropped += 1
            if peer.n_dropped >= MAX_WAITING:
                self.cut(name, "went on after the end")
        elif not peer.flood:
            self._keep(name, frames)
        return True

    def _keep(self, name: str, frames: list[Frame]) -> None:
        peer, n_bytes = self._peers[name], size_bytes(frames)
        if peer.inbox and (len(peer.inbox) >= MAX_WAITING or peer.waiting_bytes + n_bytes > MAX_WAITING_BYTES):
            peer.flood = f"{MAX_WAITING} messages or {MAX_WAITING_BYTES >> 20} MiB"
            self.cut(name, "sent too much ahead of its turn")
            return
        peer.waiting_bytes += n_bytes
        peer.inbox.append(frames)

    def descriptors(self) -> Iterator[int]:
        """The connections over which peers speak."""
        for name, peer in self._peers.items():
            if peer.connection is not None and not self.is_lost(name):
                yield peer.connection.descriptor

    def cut(self, name: str, why: str) -> None:
        """Give a peer up; `listen` tells which connection to shut."""
        connection = self._peers[name].connection
        if connection is not None:
            self._give_up(name, connection, why)

    def _give_up(self, name: str, connection: _Connection, why: str) -> None:
        peer = self._peers[name]
        if peer.connection == connection and not self.is_lost(name):
            peer.cut = why
        self._to_shut.append(connection)

    def listen(self) -> list[int]:
        """Count the silence of those of whom nothing waits; returns the connections of peers given up since."""
        for name, peer in self._peers.items():
            if peer.connection is None or peer.inbox or peer.is_released or self.is_lost(name):
                peer.silence.end()
                continue
            peer.silence.listen()
            if peer.silence.is_stall:
                self.cut(name, stalled(self._timing.stall_s))
        found, self._to_shut = [one for one in self._to_shut if self._stands(one)], []
        return [connection.descriptor for connection in found]

    def beats(self) -> Iterator[tuple[str, bytes]]:
        """The peers that should hear that this party goes on, and where they are; they are taken for told."""
        for name, peer in self._peers.items():
            if peer.connection is not None and peer.pulse.is_due and not (peer.is_released or self.is_lost(name)):
                peer.pulse.start()
                yield name, peer.connection.route

    def sent(self, name: str) -> None:
        """A message was sent to the peer."""
        self._peers[name].pulse.start()

    def is_known(self, name: str) -> bool:
        """Whether this is a peer of the run."""
        return name in self._peers

    def has_spoken(self, name: str) -> bool:
        """Whether the peer has come at all."""
        return self._peers[name].connection is not None

    def has_waiting(self, name: str) -> bool:
        """Whether a message of the peer waits."""
        return bool(self._peers[name].inbox)

    def is_lost(self, name: str) -> bool:
        """Whether the peer came and its connection has ended, or it was given up."""
        connection = self._peers[name].connection
        if connection is None:
            return False
        return bool(self._peers[name].cut) or not self._stands(connection)

    def _stands(self, connection: _Connection) -> bool:
        known = self._descriptors[connection.descriptor]
        return known.is_open and known.serial == connection.serial

    def route(self, name: str) -> bytes | None:
        """Where a message to the peer goes."""
        connection = self._peers[name].connection
        return connection.route if connection else None

    def pop(self, name: str) -> list[Frame]:
        """The peer's oldest waiting message."""
        peer = self._peers[name]
        frames = peer.inbox.popleft()
        peer.waiting_bytes -= size_bytes(frames)
        peer.is_heard = True
        return frames

    def forget(self, name: str) -> None:
        """The peer may come anew."""
        self._peers[name].forget()

    def release(self, name: str) -> None:
        """The peer may leave: nothing more is expected of it, and what it still says is dropped."""
        self._peers[name].is_released = True
        self._peers[name].clear()

    def lost(self, name: str, otherwise: str) -> Exception:
        """Exception for a lost peer, with its termination message if there is one."""
        peer = self._peers[name]
        return farewell(name, peer.inbox, peer.cut or otherwise)

    def check(self, name: str) -> None:
        """Raise if this peer is gone and left nothing to read but a termination message, or any peer ended the run.

        Raises
        ------
        PeerLost, PeerAborted, UnexpectedMessage
        """
        for other in sorted(self._peers, key=lambda one: one != name):
            peer = self._peers[other]
            if peer.is_released:
                continue
            if peer.flood:
                raise UnexpectedMessage(f"{other} sent more than {peer.flood} ahead of its turn")
            if not self.is_lost(other):
                continue
            if ends_with_abort(peer.inbox) or (not peer.inbox and (other == name or peer.is_heard)):
                raise self.lost(other, f"closed the connection or was silent for {self._timing.timeout_s:g} s")
