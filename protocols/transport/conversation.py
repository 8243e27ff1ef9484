"""Conversation that outlives its connections: unacknowledged messages are kept, and sent again over the next one.

Both ends count the messages that they send and receive, those of the transport apart (`Heartbeat`, `Received`). Each
has a mark as its last frame: CURVE refuses bytes that were altered or repeated on the way, but whoever holds the line
can leave whole frames out. A message that is not whole or not the next one is refused, and its connection counts as
broken. A heartbeat carries the number of messages sent before it, so that a lost last message is noticed while both
ends wait for each other.

A `Received` is an acknowledgement of the transport, like TCP's own: in no log and in no count of messages. A connection
that takes the place of a broken one begins with a `Received` from the end that connects, repeated until an answer
comes. The other end answers with its own. Then each end sends again what the other has not received: the same bytes,
for which nothing is computed anew. So a broken connection costs nothing but time, as long as both programs run on. A
program that was started again knows nothing of the conversation and says so.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocols.errors import DecodeError, UnexpectedMessage
from protocols.messages.liveness import Received
from protocols.transport.codec import Frame, decode, encode, size_bytes
from protocols.transport.liveness import HEARTBEAT, is_heartbeat

# Messages, or bytes, that are received before they are acknowledged, so that the sender need not keep them.
ACKNOWLEDGE_EVERY, ACKNOWLEDGE_BYTES = 16, 8 << 20

# Messages that may wait for a connection to come back before their sender waits, too; and their bytes.
MAX_UNSENT, MAX_UNSENT_BYTES = 64, 64 << 20

# Messages, or bytes, that are kept for a peer which does not acknowledge them; then their sender waits, too. Honest
# peers acknowledge what they took, and leave no more untaken than `receive_quota.MAX_AHEAD_BYTES`.
MAX_KEPT, MAX_KEPT_BYTES = 1024, 512 << 20

# Connections in a row that may break before any of the messages sent again over them is acknowledged.
MAX_FRUITLESS = 64

FORGOTTEN = "was started again, or gave this conversation up"

# Size of the mark: the frame with a message's number and the number of frames before it.
MARK_BYTES = 8

# Stands for the number of frames in the mark of a heartbeat; no message has so many.
_HEARTBEAT_MARK = 255

# A `Received` is no longer than this.
_MAX_RECEIVED_BYTES = 128


def connection_id(name: str, token: str, number: int) -> bytes:
    """Identity of a connection: the party's name, its conversation, and how many connections that had before."""
    return b"\0".join([name.encode(), token.encode(), str(number).encode()])


def read_connection_id(route: bytes) -> tuple[str, bytes, int]:
    """Party's name, conversation and number of a connection; those that ZeroMQ names itself, from 0 on, have none."""
    name, _, rest = route.partition(b"\0")
    token, _, number = rest.partition(b"\0")
    is_ours = bool(name) and number.isdigit() and len(number) < 10
    return name.decode(errors="replace"), token if is_ours else b"", int(number) if is_ours else 0


def new_token() -> str:
    """Name of a new conversation, which no other party can guess."""
    return secrets.token_hex(16)


def read_received(frames: Sequence[Frame]) -> Received | None:
    """Decode a `Received`; None for any other message."""
    if len(frames) != 1 or len(frames[0]) > _MAX_RECEIVED_BYTES or Received.kind.encode() not in bytes(frames[0]):
        return None
    try:
        message = decode(frames)
    except DecodeError:
        return None
    return message if isinstance(message, Received) else None


def mark(number: int, n_frames: int) -> bytes:
    """Last frame of a message with this number, from 1 on, and so many other frames."""
    return (number << 8 | n_frames).to_bytes(MARK_BYTES, "little")


def is_any_heartbeat(frames: Sequence[Frame]) -> bool:
    """Whether this is a heartbeat, with or without a mark."""
    return is_heartbeat(frames[:1]) and len(frames) <= 2 and all(len(frame) == MARK_BYTES for frame in frames[1:])


@dataclass(slots=True)
class Conversation:
    """Sent, received and acknowledged messages of a conversation, at one end of it.

    Attributes
    ----------
    n_received : int
        Messages received.
    """

    n_received: int = 0
    _n_confirmed: int = 0
    _n_sent: int = 0
    _kept: deque[Sequence[Frame]] = field(default_factory=deque)
    _kept_bytes: int = 0
    _n_acknowledged: int = 0
    _unacknowledged_bytes: int = 0
    _n_fruitless: int = 0

    @property
    def has_room(self) -> bool:
        """Whether a message may be kept while there is no connection."""
        return self.n_unsent < MAX_UNSENT and self._kept_bytes < MAX_UNSENT_BYTES

    @property
    def is_behind(self) -> bool:
        """Whether messages are unsent, or too many are kept that the other end has not acknowledged."""
        return self.n_unsent > 0 or len(self._kept) >= MAX_KEPT or self._kept_bytes >= MAX_KEPT_BYTES

    @property
    def n_unsent(self) -> int:
        """Messages that no connection took yet."""
        return self._n_confirmed + len(self._kept) - self._n_sent

    @property
    def is_confirmed(self) -> bool:
        """Whether the other end has acknowledged everything."""
        return not self._kept

    @property
    def has_unacknowledged(self) -> bool:
        """Whether some received messages are not acknowledged yet."""
        return self.n_received > self._n_acknowledged

    @property
    def is_acknowledgement_due(self) -> bool:
        """Whether so many messages or bytes are unacknowledged that a `Received` should be sent."""
        return (
            self.n_received - self._n_acknowledged >= ACKNOWLEDGE_EVERY
            or self._unacknowledged_bytes >= ACKNOWLEDGE_BYTES
        )

    def keep(self, frames: Sequence[Frame]) -> None:
        """Keep a message until the other end acknowledges it."""
        self._kept.append([*frames, mark(self._n_confirmed + len(self._kept) + 1, len(frames))])
        self._kept_bytes += size_bytes(self._kept[-1])

    def next_unsent(self) -> Sequence[Frame] | None:
        """The message to be sent next; None if there is none."""
        return self._kept[self._n_sent - self._n_confirmed] if self.n_unsent else None

    def sent(self) -> None:
        """Note that the next message was sent."""
        self._n_sent += 1

    def received(self, frames: list[Frame]) -> bool:
        """Count a received message and remove its mark; False if it is not whole, or not the next one.

        A program of another version may begin with a single frame without a mark. That one is accepted here: whoever
        decodes it refuses its version. No marked message can be cut down to one: ZeroMQ takes the frames that follow
        for its rest.
        """
        if len(frames) > 1 or len(frames[0]) == MARK_BYTES:
            if frames[-1] != mark(self.n_received + 1, len(frames) - 1):
                return False
            frames.pop()
        self.n_received += 1
        self._unacknowledged_bytes += size_bytes(frames)
        return True

    def heartbeat(self) -> list[Frame]:
        """Make a heartbeat with the number of messages sent."""
        return [*HEARTBEAT, mark(self._n_sent, _HEARTBEAT_MARK)]

    def misses(self, heartbeat: Sequence[Frame]) -> bool:
        """Whether more messages were sent before a heartbeat than were received."""
        return len(heartbeat) > 1 and heartbeat[-1] != mark(self.n_received, _HEARTBEAT_MARK)

    def acknowledgement(self, *, is_last: bool = False) -> list[Frame]:
        """Make a `Received` for all messages so far, which then count as acknowledged."""
        self._n_acknowledged, self._unacknowledged_bytes = self.n_received, 0
        return encode(Received(count=self.n_received, is_last=is_last))

    def acknowledge_soon(self) -> None:
        """Make an acknowledgement due: the other end leaves as soon as it has one."""
        self._unacknowledged_bytes = ACKNOWLEDGE_BYTES

    def confirm(self, count: int) -> None:
        """Note that the other end has received `count` messages, and drop them.

        Raises
        ------
        UnexpectedMessage
            If fewer were acknowledged than before, or more than were sent.
        """
        if not self._n_confirmed <= count <= self._n_sent:
            raise UnexpectedMessage(
                f"says that it has received {count} messages; {self._n_confirmed} to {self._n_sent} can be"
            )
        self._n_fruitless = 0 if count > self._n_confirmed else self._n_fruitless
        for _ in range(count - self._n_confirmed):
            self._kept_bytes -= size_bytes(self._kept.popleft())
        self._n_confirmed = count

    def resume(self, count: int) -> int:
        """Go on after `count` received messages, over another connection; returns how many will be sent again.

        Raises
        ------
        UnexpectedMessage
            As `confirm`; or if the same messages were sent again too often.
        """
        self.confirm(count)
        n_again, self._n_sent = self._n_sent - count, count
        self._n_fruitless += n_again > 0
        if self._n_fruitless > MAX_FRUITLESS:
            raise UnexpectedMessage(f"came back {self._n_fruitless} times, and nothing that was sent has come")
        return n_again
