"""Conversation that outlives its connections: messages that may be lost with one, and the number that have come.

Both ends count the messages that they send and receive, those of the transport apart (`Heartbeat`, `Received`). Each
has a mark as its last frame: CURVE refuses bytes that were altered or repeated on the way, but whoever holds the line
can leave whole frames out. What does not come whole and in its turn is not taken, and its connection counts as broken.
A heartbeat has the number of messages before it, so that one is missed after which both wait for each other.

A connection that takes the place of a broken one begins with `Received` from the end that connects, which says it
again while no answer comes; the other end answers with its own, and each sends again what the other has not received:
the same bytes, for which nothing is computed anew. A `Received` is an acknowledgement of the transport like TCP's own:
in no log, in no count of messages. Between programs that run on, a broken connection so costs time and nothing else. A
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

# Messages, or bytes, after which the other end is told that they have come, so that it need not keep them.
CONFIRM_EVERY, CONFIRM_BYTES = 16, 8 << 20

# Messages that may wait for a connection to come back before their sender waits, too; and their bytes.
MAX_UNSENT, MAX_UNSENT_BYTES = 64, 64 << 20

# Messages, or bytes, that are kept for a peer which does not say that they have come; then their sender waits, too.
# Honest peers say so for what they took, and leave no more untaken than `receive_quota.MAX_AHEAD_BYTES`.
MAX_KEPT, MAX_KEPT_BYTES = 1024, 512 << 20

# Connections in a row that may break without anything having come of what was sent again over them.
MAX_VAIN = 64

FORGOTTEN = "was started again, or gave this conversation up"

# Of the frame that tells a message's number and how many frames stand before it.
MARK_BYTES = 8

# In the mark of a heartbeat, in place of a number of frames that no message has.
_BEAT = 255

# A `Received` is no longer than this.
_MAX_WORD_BYTES = 128


def connection_id(name: str, token: str, number: int) -> bytes:
    """What a connection goes by: the party's name, its conversation, and how many connections that had before."""
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


def received_word(frames: Sequence[Frame]) -> Received | None:
    """Decode a `Received`; None for any other message."""
    if len(frames) != 1 or len(frames[0]) > _MAX_WORD_BYTES or Received.kind.encode() not in bytes(frames[0]):
        return None
    try:
        message = decode(frames)
    except DecodeError:
        return None
    return message if isinstance(message, Received) else None


def mark(number: int, n_frames: int) -> bytes:
    """Last frame of a message with this number, from 1 on, and so many other frames."""
    return (number << 8 | n_frames).to_bytes(MARK_BYTES, "little")


def is_beat(frames: Sequence[Frame]) -> bool:
    """Whether this is a heartbeat, with or without a mark."""
    return is_heartbeat(frames[:1]) and len(frames) <= 2 and all(len(frame) == MARK_BYTES for frame in frames[1:])


@dataclass(slots=True)
class Conversation:
    """What one end knows of a conversation.

    Attributes
    ----------
    n_received : int
        Messages that came.
    """

    n_received: int = 0
    _n_confirmed: int = 0
    _n_sent: int = 0
    _kept: deque[Sequence[Frame]] = field(default_factory=deque)
    _kept_bytes: int = 0
    _n_told: int = 0
    _untold_bytes: int = 0
    _n_vain: int = 0

    @property
    def has_room(self) -> bool:
        """Whether a message may be kept while there is no connection."""
        return self.n_unsent < MAX_UNSENT and self._kept_bytes < MAX_UNSENT_BYTES

    @property
    def is_behind(self) -> bool:
        """Whether messages were not sent, or too many are kept of which the other end does not say that they came."""
        return self.n_unsent > 0 or len(self._kept) >= MAX_KEPT or self._kept_bytes >= MAX_KEPT_BYTES

    @property
    def n_unsent(self) -> int:
        """Messages that no connection took yet."""
        return self._n_confirmed + len(self._kept) - self._n_sent

    @property
    def is_confirmed(self) -> bool:
        """Whether the other end has received everything."""
        return not self._kept

    @property
    def is_untold(self) -> bool:
        """Whether messages came of which the other end was not told."""
        return self.n_received > self._n_told

    @property
    def is_word_due(self) -> bool:
        """Whether the other end keeps more than a few messages that have come."""
        return self.n_received - self._n_told >= CONFIRM_EVERY or self._untold_bytes >= CONFIRM_BYTES

    def keep(self, frames: Sequence[Frame]) -> None:
        """Keep a message until the other end has received it."""
        self._kept.append([*frames, mark(self._n_confirmed + len(self._kept) + 1, len(frames))])
        self._kept_bytes += size_bytes(self._kept[-1])

    def next_unsent(self) -> Sequence[Frame] | None:
        """The message to be sent next; None if there is none."""
        return self._kept[self._n_sent - self._n_confirmed] if self.n_unsent else None

    def sent(self) -> None:
        """The next message was sent."""
        self._n_sent += 1

    def received(self, frames: list[Frame]) -> bool:
        """A message came, whose mark is taken off; False if it is not whole, or not the one whose turn it is.

        A single frame without a mark, with which a program of another version begins, is refused by whoever reads its
        version. None is left of what had a mark: ZeroMQ takes what follows for the rest of it.
        """
        if len(frames) > 1 or len(frames[0]) == MARK_BYTES:
            if frames[-1] != mark(self.n_received + 1, len(frames) - 1):
                return False
            frames.pop()
        self.n_received += 1
        self._untold_bytes += size_bytes(frames)
        return True

    def beat(self) -> list[Frame]:
        """Make a heartbeat that tells how many messages were sent."""
        return [*HEARTBEAT, mark(self._n_sent, _BEAT)]

    def misses(self, beat: Sequence[Frame]) -> bool:
        """Whether a heartbeat tells of messages that did not come."""
        return len(beat) > 1 and beat[-1] != mark(self.n_received, _BEAT)

    def word(self, *, is_last: bool = False) -> list[Frame]:
        """Make the `Received` for the other end, which is then told."""
        self._n_told, self._untold_bytes = self.n_received, 0
        return encode(Received(count=self.n_received, is_last=is_last))

    def hurry(self) -> None:
        """The other end leaves when it knows that its messages have come."""
        self._untold_bytes = CONFIRM_BYTES

    def confirm(self, count: int) -> None:
        """The other end has received so many messages.

        Raises
        ------
        UnexpectedMessage
            If that cannot be.
        """
        if not self._n_confirmed <= count <= self._n_sent:
            raise UnexpectedMessage(
                f"says that it has received {count} messages; {self._n_confirmed} to {self._n_sent} can be"
            )
        self._n_vain = 0 if count > self._n_confirmed else self._n_vain
        for _ in range(count - self._n_confirmed):
            self._kept_bytes -= size_bytes(self._kept.popleft())
        self._n_confirmed = count

    def resume(self, count: int) -> int:
        """Begin anew after so many messages, on another connection; returns how many will be sent again.

        Raises
        ------
        UnexpectedMessage
            As `confirm`; or if the same messages were sent again too often.
        """
        self.confirm(count)
        n_again, self._n_sent = self._n_sent - count, count
        self._n_vain += n_again > 0
        if self._n_vain > MAX_VAIN:
            raise UnexpectedMessage(f"came back {self._n_vain} times, and nothing that was sent has come")
        return n_again
