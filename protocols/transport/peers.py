"""State of a listener's peers: their connections, and their received but unread messages. No sockets.

A peer is known by its key, never by the name a connection gives itself. The first of its connections that speaks holds
its place until that connection ends; another one at the same time is turned away. A connection of the same conversation
takes the place of a broken one (`conversation`); a peer whose connection does not come back is lost. Until the peer was
heard it may begin another conversation, and the earlier one is forgotten; afterwards it was started again, and what it
says waits until this party begins again, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from protocols.errors import PeerRestarted, UnexpectedMessage
from protocols.messages.liveness import Received
from protocols.transport.channel import Timing, ends_with_abort, farewell
from protocols.transport.codec import Frame
from protocols.transport.conversation import FORGOTTEN, Conversation, is_beat, received_word
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
                peer.flood = f"sent more than {amount} ahead of its turn"

    def take(self, name: str, route: bytes, descriptor: int, frames: list[Frame]) -> bool:
        """Keep a message until it is asked for; False if it came over another connection than the peer's.

        Such a connection is shut when it goes on, and so is one over which heartbeats come without end.
        """
        known = self._descriptors.setdefault(descriptor, Descriptor())
        connection = self._connection(name, PeerConnection(route, descriptor, known.serial))
        word = received_word(frames)
        if word is not None or is_beat(frames):
            self._take_word(name, connection, word, frames)
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
        elif not peer.flood and not peer.keep(frames):
            self._give_up(name, connection, "sent too much ahead of its turn")
        peer.drop_unheard()
        return True

    def _connection(self, name: str, found: PeerConnection) -> PeerConnection:
        """The connection of a message; its descriptor may be another one's by the time that the message is read."""
        known = (one.connection for one in self._of(name) if one.connection and one.connection.route == found.route)
        return next(known, found) if found.token else found

    def _take_word(self, name: str, connection: PeerConnection, word: Received | None, frames: list[Frame]) -> None:
        """Take a `Received`, or None for a heartbeat; neither is handed on."""
        if self._peers[name].connection == connection:
            self._peers[name].silence.end()
        if self._descriptors[connection.descriptor].beats.is_flood():
            self._give_up(name, connection, "sent heartbeats without end")
        elif word is not None:
            self._note_received(name, connection, word)
        elif any(one.misses(frames, connection) for one in self._of(name)):
            self._to_shut.append(connection)

    def _speaker(self, name: str, connection: PeerConnection) -> PeerState | None:
        """The peer whose message came over a connection, or its next process; None if another connection stands."""
        peer = self._peers[name]
        if connection.token and connection.token in (peer.former, peer.token):
            return peer
        if peer.is_heard and peer.connection != connection and self._is_away(peer):
            peer = self._restarted.setdefault(name, PeerState.new(self._timing))
        if peer.connection != connection:
            if peer.connection is not None and (peer.is_heard or not self._is_away(peer)):
                return None
            # Until it was heard it may begin another conversation.
            peer.begin(connection)
        return peer

    def _note_received(self, name: str, connection: PeerConnection, word: Received) -> None:
        """Note what a peer has received; over another connection, the conversation goes on there."""
        peer = next((one for one in self._of(name) if one.connection == connection), self._peers[name])
        try:
            if peer.connection == connection:
                peer.conversation.confirm(word.count or 0)
                if word.is_last:
                    peer.has_left = True
                    peer.conversation.hurry()
            elif word.count is None or not peer.token or connection.token != peer.token or peer.cut or peer.flood:
                self._unknown.append(connection.route)
            elif peer.connection is not None and connection.number > peer.connection.number:
                n_again = peer.conversation.resume(word.count)
                self._to_shut.append(peer.connection)
                peer.connection = connection
                self._resumed.append((name, n_again))
        except UnexpectedMessage as error:
            peer.flood = peer.flood or str(error)
            self._give_up(name, connection, str(error))

    def resumed(self) -> list[tuple[str, int]]:
        """Peers that came back over another connection, and how many messages are sent to them again."""
        found, self._resumed = self._resumed, []
        return found

    def unknown(self) -> list[bytes]:
        """Connections that ask for a conversation of which nothing is known."""
        found, self._unknown = self._unknown, []
        return found

    def conversation(self, name: str) -> Conversation:
        """The conversation with a peer."""
        return self._peers[name].conversation

    def words(self, *, is_idle: bool = False, is_last: bool = False) -> Iterator[tuple[str, Conversation]]:
        """The peers that should be told what has come of them; of the last word all of them, once."""
        for name, peer in self._peers.items():
            talk = peer.conversation
            may_be_due = talk.is_word_due or (is_idle and talk.is_untold)
            is_due = not (talk.n_unsent or peer.is_left) if is_last else may_be_due
            if is_due and peer.connection is not None and not self._is_away(peer):
                peer.is_left |= is_last
                yield name, talk

    def are_told(self) -> bool:
        """Whether all peers that can tell have received everything, or have left."""
        known = (peer for peer in self._peers.values() if peer.token)
        return all(peer.conversation.is_confirmed or peer.has_left or peer.cut for peer in known)

    def descriptors(self) -> Iterator[int]:
        """The connections over which peers speak."""
        for peer in (one for name in self._peers for one in self._of(name)):
            if peer.connection is not None and not self._is_away(peer):
                yield peer.connection.descriptor

    def cut(self, name: str, why: str) -> None:
        """Give a peer up; `listen` tells which connection to shut."""
        if (connection := self._peers[name].connection) is not None:
            self._give_up(name, connection, why)

    def _give_up(self, name: str, connection: PeerConnection, why: str) -> None:
        peer = self._peers[name]
        if peer.connection == connection and not self.is_lost(name):
            peer.cut = why
        self._to_shut.append(connection)

    def listen(self) -> list[int]:
        """Count the silence of those of whom nothing waits; returns the connections of peers given up since."""
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
        found, self._to_shut = [one for one in self._to_shut if self._stands(one)], []
        return [connection.descriptor for connection in found]

    def beats(self) -> Iterator[tuple[str, bytes]]:
        """The peers that should hear that this party goes on, and where they are; they are taken for told."""
        for name, peer in self._peers.items():
            if peer.connection is not None and peer.pulse.is_due and not (peer.is_released or self._is_away(peer)):
                peer.pulse.start()
                yield name, peer.connection.route

    def sent(self, name: str) -> None:
        """A message was sent to the peer."""
        self._peers[name].pulse.start()

    def is_known(self, name: str) -> bool:
        """Whether this is a peer of the run."""
        return name in self._peers

    def has_waiting(self, name: str) -> bool:
        """Whether a message of the peer waits."""
        return bool(self._peers[name].inbox)

    def is_lost(self, name: str) -> bool:
        """Whether the peer came, and has left, did not come back in time, was started again or was given up."""
        peer = self._peers[name]
        if peer.connection is None:
            return False
        return bool(peer.cut) or name in self._restarted or peer.has_left or peer.away.is_stall

    def is_away(self, name: str) -> bool:
        """Whether the peer's connection has ended."""
        return self._is_away(self._peers[name])

    def _is_away(self, peer: PeerState) -> bool:
        return peer.connection is not None and (bool(peer.cut) or not self._stands(peer.connection))

    def _of(self, name: str) -> Iterator[PeerState]:
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
        """The peer may come anew, or has; what it still says in the conversation so far is dropped."""
        before = self._peers[name]
        now = self._peers[name] = self._restarted.pop(name, PeerState.new(self._timing))
        now.former, now.is_apart = before.token, before.is_apart

    def release(self, name: str) -> None:
        """The peer may leave: nothing more is expected of it, and what it still says is dropped."""
        self._peers[name].is_released = True
        self._peers[name].clear()

    def set_apart(self, name: str) -> None:
        """What becomes of the peer is told only where it is asked about itself, however often it comes anew."""
        self._peers[name].is_apart = True

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
        return farewell(name, peer.inbox, peer.cut or otherwise)

    def check(self, name: str) -> None:
        """Raise if this peer is gone and left nothing to read, or any that is not apart ended the run or begins again.

        Raises
        ------
        PeerLost, PeerAborted, UnexpectedMessage
        """
        for other, peer in sorted(self._peers.items(), key=lambda one: one[0] != name):
            if peer.is_released or (peer.is_apart and other != name):
                continue
            if peer.flood:
                raise UnexpectedMessage(f"{other} {peer.flood}")
            is_gone = self.is_lost(other) and not peer.inbox and (other == name or peer.is_heard)
            # Who begins again may stay connected, and wait for this party to do so, too.
            if is_gone or ends_with_abort(peer.inbox, begins_again=not self._is_away(peer)):
                raise self.lost(other, self.ending(other))
