"""State of a listener's peers: their connections, and their received but unread messages. No sockets.

A peer is known by its key, never by the name of a connection. Its first connection that speaks is used until it ends;
another one at the same time is turned away. After a broken connection the conversation goes on over the next one
(`conversation`); a peer that does not come back is lost. A peer that begins another conversation was started again:
what it says waits until this party begins again, too, unless nothing of the earlier conversation was read yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from protocols.errors import PeerRestarted, UnexpectedMessage
from protocols.messages.liveness import Received
from protocols.transport.channel import Timing, ends_with_abort, loss_of_peer
from protocols.transport.codec import Frame
from protocols.transport.conversation import FORGOTTEN, Conversation, is_any_heartbeat, read_received
from protocols.transport.liveness import stalled
from protocols.transport.peer_state import MAX_WAITING, Descriptor, PeerConnection, PeerState


class Peers:
    """The peers of one listener.

    Parameters
    ----------
    names : iterable of str
    timing : Timing
    """

    def __init__(self, names: Iterable[str], *, timing: Timing) -> None:
        self._timing = timing
        self._peers = {name: PeerState.new(self._timing) for name in names}
        self._restarted: dict[str, PeerState] = {}
        self._descriptors: dict[int, Descriptor] = {}
        self._to_shut: list[PeerConnection] = []
        self._resumed: list[tuple[str, int]] = []
        self._unknown: list[bytes] = []

    def note_event(self, descriptor: int, *, is_accepted: bool) -> None:
        """A connection began or ended."""
        known = self._descriptors.setdefault(descriptor, Descriptor())
        known.is_open = is_accepted
        if is_accepted:
            known.begin()

    def note_end(self, name: str) -> None:
        """The connection of a peer has ended, whatever its descriptor is by now."""
        if (peer := self._peers[name]).connection is not None:
            peer.connection = replace(peer.connection, serial=-1)

    def note_flood(self, descriptor: int, amount: str) -> None:
        """A connection sent more than this amount ahead of its turn; if it is a peer's, that ends the run."""
        serial = self._descriptors.setdefault(descriptor, Descriptor()).serial
        for peer in self._peers.values():
            if peer.connection and (peer.connection.descriptor, peer.connection.serial) == (descriptor, serial):
                peer.flood_reason = f"sent more than {amount} ahead of its turn"

    def take(self, name: str, route: bytes, descriptor: int, frames: list[Frame]) -> bool:
        """Keep a message until it is asked for; False if it came over another connection than the peer's.

        Such a connection is shut if it goes on, as is one over which heartbeats come without end.
        """
        known = self._descriptors.setdefault(descriptor, Descriptor())
        connection = self._connection(name, PeerConnection(route, descriptor, known.serial))
        ack = read_received(frames)
        if ack is not None or is_any_heartbeat(frames):
            self._take_control(name, connection, ack, frames)
            return True
        if (peer := self._speaker(name, connection)) is None:
            if known.is_turned_away:
                self._to_shut.append(connection)
            known.is_turned_away = True
            return False
        if peer.connection != connection:
            # Said before the other end knew that its connection was broken, or this conversation over.
            if known.goes_on():
                self._to_shut.append(connection)
            return True
        peer.silence.end()
        if not peer.conversation.received(frames):
            self._to_shut.append(connection)  # What is missing comes again over another one.
        elif peer.is_released:
            peer.n_dropped += 1
            if peer.n_dropped >= MAX_WAITING:
                self._give_up(name, connection, "went on after the end")
        elif not peer.flood_reason and not peer.keep(frames):
            self._give_up(name, connection, "sent too much ahead of its turn")
        peer.drop_unheard()
        return True

    def _connection(self, name: str, found: PeerConnection) -> PeerConnection:
        """The connection of a message; its descriptor may be another one's by the time that the message is read."""
        connections = (peer.connection for peer in self._states(name))
        known = (connection for connection in connections if connection and connection.route == found.route)
        return next(known, found) if found.token else found

    def _take_control(self, name: str, connection: PeerConnection, ack: Received | None, frames: list[Frame]) -> None:
        """Process an acknowledgement, or a heartbeat if `ack` is None; neither reaches the channel."""
        if self._peers[name].connection == connection:
            self._peers[name].silence.end()
        if self._descriptors[connection.descriptor].heartbeats.is_flood():
            self._give_up(name, connection, "sent heartbeats without end")
        elif ack is not None:
            self._note_received(name, connection, ack)
        elif any(peer.misses(frames, connection) for peer in self._states(name)):
            self._to_shut.append(connection)

    def _speaker(self, name: str, connection: PeerConnection) -> PeerState | None:
        """The peer whose message came over a connection, or its next process; None if another connection stands."""
        peer = self._peers[name]
        if connection.token and connection.token in (peer.former_token, peer.token):
            return peer
        if peer.is_heard and peer.connection != connection and self._is_away(peer):
            peer = self._restarted.setdefault(name, PeerState.new(self._timing))
        if peer.connection != connection:
            if peer.connection is not None and (peer.is_heard or not self._is_away(peer)):
                return None
            # Until it was heard it may begin another conversation.
            peer.begin(connection)
        return peer

    def _note_received(self, name: str, connection: PeerConnection, ack: Received) -> None:
        """Note what a peer has received; over another connection, the conversation goes on there."""
        peer = next((peer for peer in self._states(name) if peer.connection == connection), self._peers[name])
        try:
            if peer.connection == connection:
                peer.conversation.confirm(ack.count or 0)
                if ack.is_last:
                    peer.has_left = True
                    peer.conversation.acknowledge_soon()
            elif ack.count is None or not peer.token or connection.token != peer.token or peer.is_given_up:
                self._unknown.append(connection.route)
            elif peer.connection is not None and connection.number > peer.connection.number:
                n_again = peer.conversation.resume(ack.count)
                self._to_shut.append(peer.connection)
                peer.connection = connection
                self._resumed.append((name, n_again))
        except UnexpectedMessage as error:
            peer.flood_reason = peer.flood_reason or str(error)
            self._give_up(name, connection, str(error))

    def resumed(self) -> list[tuple[str, int]]:
        """Peers that came back over another connection, and how many messages are sent to them again."""
        resumed, self._resumed = self._resumed, []
        return resumed

    def unknown(self) -> list[bytes]:
        """Connections that ask for a conversation of which nothing is known."""
        unknown, self._unknown = self._unknown, []
        return unknown

    def conversation(self, name: str) -> Conversation:
        """The conversation with a peer."""
        return self._peers[name].conversation

    def to_acknowledge(self, *, is_idle: bool = False, is_last: bool = False) -> Iterator[tuple[str, Conversation]]:
        """The peers to which an acknowledgement should be sent; the last one to all of them, once."""
        for name, peer in self._peers.items():
            conversation = peer.conversation
            is_due = conversation.is_acknowledgement_due or (is_idle and conversation.has_unacknowledged)
            if is_last:
                is_due = not (conversation.n_unsent or peer.is_dismissed)
            if is_due and peer.connection is not None and not self._is_away(peer):
                peer.is_dismissed |= is_last
                yield name, conversation

    def are_confirmed(self) -> bool:
        """Whether all peers with a conversation have acknowledged everything, have left or were given up."""
        known = (peer for peer in self._peers.values() if peer.token)
        return all(peer.conversation.is_confirmed or peer.has_left or peer.cut_reason for peer in known)

    def descriptors(self) -> Iterator[int]:
        """The connections over which peers speak."""
        for peer in (peer for name in self._peers for peer in self._states(name)):
            if peer.connection is not None and not self._is_away(peer):
                yield peer.connection.descriptor

    def cut(self, name: str, why: str) -> None:
        """Give a peer up; `listen` tells which connection to shut."""
        if (connection := self._peers[name].connection) is not None:
            self._give_up(name, connection, why)

    def _give_up(self, name: str, connection: PeerConnection, why: str) -> None:
        peer = self._peers[name]
        if peer.connection == connection and not self.is_lost(name):
            peer.cut_reason = why
        self._to_shut.append(connection)

    def listen(self) -> list[int]:
        """Count the silence of peers with an empty inbox; returns the descriptors of connections to shut."""
        for name, peer in self._peers.items():
            if self._is_away(peer) and not peer.inbox:
                peer.away.listen()
            else:
                peer.away.end()
            if peer.connection is None or peer.inbox or peer.is_released or self._is_away(peer):
                peer.silence.end()
                continue
            peer.silence.listen()
            if peer.silence.is_stall:
                self.cut(name, stalled(self._timing.stall_s))
        standing, self._to_shut = [connection for connection in self._to_shut if self._stands(connection)], []
        return [connection.descriptor for connection in standing]

    def heartbeats_due(self) -> Iterator[tuple[str, bytes]]:
        """The peers to which a heartbeat is due, and their routes; it counts as sent."""
        for name, peer in self._peers.items():
            if peer.connection is not None and peer.timer.is_due and not (peer.is_released or self._is_away(peer)):
                peer.timer.start()
                yield name, peer.connection.route

    def sent(self, name: str) -> None:
        """A message was sent to the peer."""
        self._peers[name].timer.start()

    def is_known(self, name: str) -> bool:
        """Whether this is a peer of the run."""
        return name in self._peers

    def has_waiting(self, name: str) -> bool:
        """Whether a message of the peer waits."""
        return bool(self._peers[name].inbox)

    def is_lost(self, name: str) -> bool:
        """Whether the peer came, and has left, did not come back in time, was started again or was given up."""
        peer = self._peers[name]
        is_over = peer.has_left or peer.away.is_stall or name in self._restarted or bool(peer.cut_reason)
        return peer.connection is not None and is_over

    def is_away(self, name: str) -> bool:
        """Whether the peer's connection has ended."""
        return self._is_away(self._peers[name])

    def _is_away(self, peer: PeerState) -> bool:
        return peer.connection is not None and (bool(peer.cut_reason) or not self._stands(peer.connection))

    def _states(self, name: str) -> Iterator[PeerState]:
        yield self._peers[name]
        if name in self._restarted:
            yield self._restarted[name]

    def _stands(self, connection: PeerConnection) -> bool:
        known = self._descriptors[connection.descriptor]
        return known.is_open and known.serial == connection.serial

    def route(self, name: str) -> bytes | None:
        """Where a message to the peer goes."""
        connection = self._peers[name].connection
        return connection.route if connection else None

    def pop(self, name: str) -> list[Frame]:
        """The peer's oldest waiting message."""
        return self._peers[name].pop()

    def forget(self, name: str) -> None:
        """Drop the conversation with the peer, which may connect again or has; what it still says in it is dropped."""
        former = self._peers[name]
        peer = self._peers[name] = self._restarted.pop(name, PeerState.new(self._timing))
        peer.former_token, peer.is_isolated = former.token, former.is_isolated

    def release(self, name: str) -> None:
        """The peer may leave: nothing more is expected of it, and what it still says is dropped."""
        self._peers[name].is_released = True
        self._peers[name].clear()

    def isolate(self, name: str) -> None:
        """Raise the end or a fault of this peer only where it is checked itself, also after it has reconnected."""
        self._peers[name].is_isolated = True

    def ending(self, name: str) -> str:
        """Words for the end of a peer's connection."""
        silent = f"was silent for {self._timing.timeout_s:g} s, and did not come back within"
        more = "" if self._peers[name].has_left else f" or {silent} {self._timing.away_s:g} s"
        return f"closed the connection{more}"

    def lost(self, name: str, otherwise: str) -> Exception:
        """Exception for a lost peer, with its termination message if there is one."""
        peer = self._peers[name]
        if name in self._restarted and not ends_with_abort(peer.inbox):
            return PeerRestarted(f"{name} {FORGOTTEN}")
        return loss_of_peer(name, peer.inbox, peer.cut_reason or otherwise)

    def check(self, name: str) -> None:
        """Raise if this peer is gone with nothing left to read, or any not isolated one ended the run or begins again.

        Raises
        ------
        PeerLost, PeerAborted, UnexpectedMessage
        """
        for other, peer in sorted(self._peers.items(), key=lambda item: item[0] != name):
            if peer.is_released or (peer.is_isolated and other != name):
                continue
            if peer.flood_reason:
                raise UnexpectedMessage(f"{other} {peer.flood_reason}")
            is_gone = self.is_lost(other) and not peer.inbox and (other == name or peer.is_heard)
            # Who begins again may stay connected, and wait for this party to do so, too.
            if is_gone or ends_with_abort(peer.inbox, begins_again=not self._is_away(peer)):
                raise self.lost(other, self.ending(other))
