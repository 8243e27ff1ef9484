"""Channel interface of every transport, and reading an expected message sequence from it."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from protocols.errors import (
    DecodeError,
    Outlook,
    PeerAborted,
    PeerLost,
    PeerRestarted,
    ProtocolError,
    UnexpectedMessage,
)
from protocols.messages.fields import MAX_REASON
from protocols.messages.message import Message
from protocols.messages.vertical import Abort
from protocols.transport.codec import Frame, decode, size_bytes
from protocols.transport.sanitize import readable

M = TypeVar("M", bound=Message)

# Seconds between checks for the next message, at a party that hears several peers.
_POLL_S = 0.002

# A bound on a termination message, whatever its characters. A party that waits for one peer checks the others' last
# messages many times a second, and to decode 32 MB takes more than a second.
MAX_ABORT_BYTES = 1 << 14

# Characters of a peer's phase that are passed on to people.
_MAX_PHASE = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Timeouts of a party.

    Attributes
    ----------
    timeout_s : float
        Silence of the network after which a connected peer counts as lost.
    wait_s : float
        How long to wait for a peer to appear at all, and to come back (`away_s`) when its connection has ended.
    stall_s : float
        Silence of its program, whose connection stands, after which a peer counts as lost (`liveness`).
    send_s : float or None
        How long a message may wait for a peer that takes nothing, after which it counts as lost; `stall_s` if None.
    """

    timeout_s: float = 10.0
    wait_s: float = 60.0
    stall_s: float = 900.0
    send_s: float | None = None

    @property
    def beat_s(self) -> float:
        """How often the transport shows the peer that the connection stands: ZeroMQ counts in milliseconds, from 1."""
        return max(self.timeout_s / 4, 0.001)

    @property
    def away_s(self) -> float:
        """How long a broken connection may take to come back; a service waits for ever only for somebody to come."""
        return self.wait_s if math.isfinite(self.wait_s) else self.timeout_s


@dataclass(slots=True)
class Traffic:
    """Traffic counters of a channel, and callbacks for the audit log.

    Attributes
    ----------
    sent_bytes, received_bytes : int
    on_send, on_receive : callable
        Called with the kind and the frames of each message, for the audit log.
    n_checks : int
        Checks by the peer: handshakes that only compare what both sides state.
    n_compared : int
        Comparisons of ids with the peer's, finished or not.
    on_check : callable
        Called with a sentence at every such check.
    on_return : callable
        Called with a sentence whenever another connection took the place of a broken one.
    on_wait : callable
        Called many times a second by a channel that connects, while it waits for its peer.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    on_send: Callable[[str, Sequence[Frame]], None] = field(default=lambda kind, frames: None)
    on_receive: Callable[[str, Sequence[Frame]], None] = field(default=lambda kind, frames: None)
    n_checks: int = 0
    n_compared: int = 0
    on_check: Callable[[str], None] = field(default=lambda sentence: None)
    on_return: Callable[[str], None] = field(default=lambda sentence: None)
    on_wait: Callable[[], None] = field(default=lambda: None)

    def count_sent(self, message: Message, frames: Sequence[Frame]) -> None:
        """Count an outgoing message."""
        self.sent_bytes += size_bytes(frames)
        self.on_send(message.kind, frames)

    def decode_received(self, frames: Sequence[Frame], peer: str) -> Message:
        """Count and decode a peer's message; the error of a malformed one names the peer."""
        self.received_bytes += size_bytes(frames)
        try:
            message = decode(frames)
        except DecodeError as error:
            raise type(error)(f"{peer} sent a message that cannot be read: {error}") from None
        self.on_receive(message.kind, frames)
        return message


class Channel(Protocol):
    """Bidirectional message channel to one peer.

    Attributes
    ----------
    peer : str
        Name of the party at the other end.
    traffic : Traffic
    """

    peer: str
    traffic: Traffic

    def send(self, message: Message) -> None:
        """Send a message, or wait while the peer is slow.

        Raises
        ------
        PeerLost
        PeerAborted, PeerRestarted
            If its last message ends the run, or says that it begins again.
        """

    def receive(self) -> Message:
        """Wait for the next message for as long as the peer is alive.

        Raises
        ------
        PeerLost
        DecodeError
        """

    def is_ready(self) -> bool:
        """Whether `receive` would return or raise at once."""

    def has_come(self) -> bool:
        """Whether the peer has connected since this end waits for it, so that `send` does not wait for that."""

    def check(self) -> None:
        """Return at once if the peer is alive, or has left and messages of it are still unread.

        Raises
        ------
        PeerLost
        PeerAborted, PeerRestarted
            If its last message ends the run, or says that it begins again.
        """

    def isolate(self) -> None:
        """From now on, the end or a fault of this peer does not stop work with other peers of the same listener."""

    def reset(self, *, renews_deadline: bool = False) -> None:
        """Drop the conversation with a peer that only checked, or was restarted, and wait for it to connect again.

        A listener keeps its first deadline for the peer to connect, unless it `renews_deadline`.
        """

    def close(self) -> None:
        """Let go of the peer; messages that were sent are still delivered."""


def loss_of_peer(peer: str, waiting: Iterable[Sequence[Frame]], otherwise: str) -> ProtocolError:
    """Exception for a lost peer: its termination message, if one is among the waiting messages."""
    for frames in waiting:
        if (message := _termination_message(frames)) is not None:
            return aborted(peer, message)
    return PeerLost(f"{peer} {otherwise}")


def ends_with_abort(waiting: Sequence[Sequence[Frame]], *, begins_again: bool = False) -> bool:
    """Whether the last waiting message ends the run, so that those before it matter no more.

    With `begins_again`, only a message counts whose sender begins again.
    """
    last = _termination_message(waiting[-1]) if waiting else None
    return last is not None and (last.outlook is Outlook.AGAIN or not begins_again)


def _termination_message(frames: Sequence[Frame]) -> Abort | None:
    """Decode a termination message; None for any other message, or one too long to be decoded ahead of its turn."""
    try:
        message = decode(frames) if size_bytes(frames) <= MAX_ABORT_BYTES else None
    except DecodeError:
        return None
    return message if isinstance(message, Abort) else None


def expect(channel: Channel, kind: type[M]) -> M:
    """Receive the next message, which must be of this kind.

    Raises
    ------
    PeerAborted
        If the peer ended the run instead.
    UnexpectedMessage
        If it is of another kind.
    """
    return expected(channel.peer, channel.receive(), kind)


def expected(peer: str, message: Message, kind: type[M]) -> M:
    """The message of a peer, which must be of this kind; see `expect`."""
    if isinstance(message, Abort):
        raise aborted(peer, message)
    if not isinstance(message, kind):
        raise UnexpectedMessage(f"{peer} sent {message.kind!r} where {kind.kind!r} was due")
    return message


def receive_any(channels: Sequence[Channel]) -> tuple[Channel, Message]:
    """The next message of any of the peers, with its channel.

    Raises
    ------
    PeerAborted, PeerLost, DecodeError
    """
    while True:
        ready = list(channels) if len(channels) == 1 else [channel for channel in channels if channel.is_ready()]
        if ready:
            message = ready[0].receive()
            if isinstance(message, Abort):
                raise aborted(ready[0].peer, message)
            return ready[0], message
        time.sleep(_POLL_S)


def aborted(peer: str, message: Abort) -> ProtocolError:
    """Exception for a peer that ended the run, or begins again, with its sanitized phase and reason."""
    if message.outlook is Outlook.AGAIN:
        return PeerRestarted(f"{peer} begins again, since another party was started again")
    phase, reason = readable(message.phase, _MAX_PHASE), readable(message.reason, MAX_REASON)
    return PeerAborted(f"{peer} ended the run while {phase}: {reason}", message.outlook)


def abort(channel: Channel, phase: str, reason: str, outlook: Outlook = Outlook.OVER) -> None:
    """Tell the peer that the run is over, or begins again, if it can still be told."""
    try:
        channel.send(Abort(phase=phase, reason=readable(reason, MAX_REASON), outlook=outlook))
    except ProtocolError:
        return
