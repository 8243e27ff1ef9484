"""State of one peer of a listener, and of the connections over which it speaks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from protocols.transport.channel import Timing, ends_with_abort
from protocols.transport.codec import Frame, size_bytes
from protocols.transport.conversation import Conversation, read_connection_id
from protocols.transport.liveness import HeartbeatCount, HeartbeatTimer, Silence

# Messages, and bytes of them, that a peer may have sent ahead of their turn: this bounds its memory. A peer that sends
# more is cut off. So is one that sends as much after its release, or over a connection other than its own.
MAX_WAITING = 256
MAX_WAITING_BYTES = 256 << 20


@dataclass(slots=True)
class Descriptor:
    """The latest connection on a descriptor, which is used again after its connection ended."""

    serial: int = 0
    is_open: bool = True
    is_turned_away: bool = False
    n_stale: int = 0
    heartbeats: HeartbeatCount = field(default_factory=HeartbeatCount)

    def begin(self) -> None:
        """Another connection began."""
        self.serial += 1
        self.is_turned_away, self.n_stale, self.heartbeats = False, 0, HeartbeatCount()

    def goes_on(self) -> bool:
        """Count a message of a conversation that moved to another connection; returns whether there are too many."""
        self.n_stale += 1
        return self.n_stale > MAX_WAITING


@dataclass(frozen=True, slots=True)
class PeerConnection:
    """Route of answers over a connection, and the descriptor and serial that tell whether it still stands."""

    route: bytes
    descriptor: int
    serial: int

    @property
    def token(self) -> bytes:
        return read_connection_id(self.route)[1]

    @property
    def number(self) -> int:
        return read_connection_id(self.route)[2]


@dataclass(slots=True)
class PeerState:
    """State of one peer, and of its conversation.

    Attributes
    ----------
    silence : Silence
        Of the peer's program, while its connection stands.
    timer : HeartbeatTimer
        Of heartbeats to the peer.
    away : Silence
        Time for which the peer has had no connection.
    former_token : bytes
        Name of the conversation that was given up or forgotten before this one.
    connection : PeerConnection or None
        The one over which the peer spoke last, standing or ended; None before its first message.
    conversation : Conversation
    has_left : bool
        Whether the peer said that it leaves.
    is_dismissed : bool
        Whether this party sent it the last acknowledgement, with which it leaves itself.
    inbox : deque of list of Frame
        Messages that are not asked for yet.
    waiting_bytes : int
        Of the inbox.
    is_heard : bool
        Whether a message of this conversation was handed to the channel.
    is_released : bool
        Whether nothing more is expected of the peer.
    is_isolated : bool
        Whether its end or fault is raised only where this peer is checked, not where others are.
    n_dropped : int
        Messages that came after the release.
    cut_reason, flood_reason : str
        Why the peer was given up, and what it sent too much of; empty if neither happened.
    """

    silence: Silence
    timer: HeartbeatTimer
    away: Silence
    former_token: bytes = b""
    connection: PeerConnection | None = None
    conversation: Conversation = field(default_factory=Conversation)
    has_left: bool = False
    is_dismissed: bool = False
    inbox: deque[list[Frame]] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_heard: bool = False
    is_released: bool = False
    is_isolated: bool = False
    n_dropped: int = 0
    cut_reason: str = ""
    flood_reason: str = ""

    @property
    def is_given_up(self) -> bool:
        return bool(self.cut_reason or self.flood_reason)

    def begin(self, connection: PeerConnection) -> None:
        """Begin a conversation."""
        self.clear()
        self.connection, self.conversation = connection, Conversation()
        self.cut_reason, self.flood_reason, self.has_left = "", "", False
        self.timer.start()

    def clear(self) -> None:
        """Drop what waits."""
        self.inbox.clear()
        self.waiting_bytes = 0

    def drop_unheard(self) -> None:
        """Forget a conversation that the peer gave up, to begin again, before anything of it was heard."""
        if not self.is_heard and ends_with_abort(self.inbox, begins_again=True):
            self.clear()
            self.former_token, self.connection, self.conversation = self.token, None, Conversation()

    @classmethod
    def new(cls, timing: Timing) -> PeerState:
        """A peer that has not come yet."""
        return cls(Silence(timing.stall_s), HeartbeatTimer(timing), Silence(timing.away_s))

    @property
    def token(self) -> bytes:
        """Name of the conversation; empty before it, and where the peer gives it none."""
        return b"" if self.connection is None else self.connection.token

    def misses(self, heartbeat: list[Frame], connection: PeerConnection) -> bool:
        """Whether messages sent before a heartbeat over this connection did not come, maybe not even the first one."""
        if self.connection is None:
            return connection.token not in (b"", self.former_token) and Conversation().misses(heartbeat)
        return self.connection == connection and self.conversation.misses(heartbeat)

    def pop(self) -> list[Frame]:
        """The oldest waiting message."""
        frames = self.inbox.popleft()
        self.waiting_bytes -= size_bytes(frames)
        self.is_heard = True
        return frames

    def keep(self, frames: list[Frame]) -> bool:
        """Keep a message until it is asked for; False if too many wait already."""
        n_bytes = size_bytes(frames)
        if self.inbox and (len(self.inbox) >= MAX_WAITING or self.waiting_bytes + n_bytes > MAX_WAITING_BYTES):
            self.flood_reason = (
                f"sent more than {MAX_WAITING} messages or {MAX_WAITING_BYTES >> 20} MiB ahead of its turn"
            )
            return False
        self.waiting_bytes += n_bytes
        self.inbox.append(frames)
        return True
