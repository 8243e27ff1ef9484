"""State of one peer of a listener, and of the connections over which it speaks."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from protocols.transport.channel import Timing, ends_with_abort
from protocols.transport.codec import Frame, size_bytes
from protocols.transport.conversation import Conversation, read_connection_id
from protocols.transport.liveness import BeatCount, Pulse, Silence

# What a peer may have said ahead of its turn: bounds the memory that it can take. Whoever says more is cut off, and so
# is a peer that says as much after nothing more was expected of it, or over a connection that is not the one it has.
MAX_WAITING = 256
MAX_WAITING_BYTES = 256 << 20


@dataclass(slots=True)
class Descriptor:
    """The latest connection on a descriptor, which is used again after its connection ended."""

    serial: int = 0
    is_open: bool = True
    is_turned_away: bool = False
    n_stale: int = 0
    beats: BeatCount = field(default_factory=BeatCount)

    def begin(self) -> None:
        """Another connection began."""
        self.serial += 1
        self.is_turned_away, self.n_stale, self.beats = False, 0, BeatCount()

    def goes_on(self) -> bool:
        """Count a message in a conversation that has another connection; whether there were more than may wait."""
        self.n_stale += 1
        return self.n_stale > MAX_WAITING


@dataclass(frozen=True, slots=True)
class PeerConnection:
    """Where answers go, and what tells whether the connection still stands."""

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
    """What is known of a peer."""

    silence: Silence
    pulse: Pulse
    away: Silence
    former: bytes = b""
    connection: PeerConnection | None = None
    conversation: Conversation = field(default_factory=Conversation)
    has_left: bool = False
    is_left: bool = False
    inbox: deque[list[Frame]] = field(default_factory=deque)
    waiting_bytes: int = 0
    is_heard: bool = False
    is_released: bool = False
    is_apart: bool = False
    n_dropped: int = 0
    cut: str = ""
    flood: str = ""

    def begin(self, connection: PeerConnection) -> None:
        """Begin a conversation."""
        self.clear()
        self.connection, self.conversation = connection, Conversation()
        self.cut, self.flood, self.has_left = "", "", False
        self.pulse.start()

    def clear(self) -> None:
        """Drop what waits."""
        self.inbox.clear()
        self.waiting_bytes = 0

    def drop_unheard(self) -> None:
        """Forget a conversation that the peer gave up, to begin again, before anything of it was heard."""
        if not self.is_heard and ends_with_abort(self.inbox, begins_again=True):
            self.clear()
            self.former, self.connection, self.conversation = self.token, None, Conversation()

    @classmethod
    def new(cls, timing: Timing) -> PeerState:
        """A peer that has not come yet."""
        return cls(Silence(timing.stall_s), Pulse(timing), Silence(timing.away_s))

    @property
    def token(self) -> bytes:
        """Name of the conversation; empty before it, and where the peer gives it none."""
        return b"" if self.connection is None else self.connection.token

    def misses(self, beat: list[Frame], connection: PeerConnection) -> bool:
        """Whether a heartbeat over a connection tells of messages that did not come: perhaps of all, the first too."""
        if self.connection is None:
            return connection.token not in (b"", self.former) and Conversation().misses(beat)
        return self.connection == connection and self.conversation.misses(beat)

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
            self.flood = f"sent more than {MAX_WAITING} messages or {MAX_WAITING_BYTES >> 20} MiB ahead of its turn"
            return False
        self.waiting_bytes += n_bytes
        self.inbox.append(frames)
        return True
