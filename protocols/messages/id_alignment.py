"""Messages of the alignment of records by their ids; see `protocols.messages.vertical` for their order."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import FailFast, Field

from protocols.messages.fields import MAX_PARTIES, ByteRows, Count, FlatBits, RandomBytes
from protocols.messages.message import Message


class IdConfirmation(Message):
    """The sender's proof that it holds the same ids as the receiver (`protocols.alignment.id_proof`)."""

    kind: ClassVar[str] = "id confirmation"
    tag: RandomBytes


class OrderShare(Message):
    """One side's random bytes towards the order in which ranks are sent."""

    kind: ClassVar[str] = "order share"
    random: RandomBytes


class TransferPoints(Message):
    """B's base transfers: two points each, one row per point (`protocols.alignment.random_transfers`)."""

    kind: ClassVar[str] = "transfer points"
    rows: ByteRows


class TransferAnswer(Message):
    """A's answer to `TransferPoints`."""

    kind: ClassVar[str] = "transfer answer"
    point: RandomBytes


class HiddenIds(Message):
    """A bucket of A's ids in a matrix of the transfer extension, with its check (`alignment.transfer_prf`)."""

    kind: ClassVar[str] = "hidden ids"
    number: Count
    columns: ByteRows
    tags: ByteRows


class BlindedIds(Message):
    """Some of the sender's ids, one row each: A's as points under its key, B's as values of a function, ascending."""

    kind: ClassVar[str] = "blinded ids"
    start: Count
    rows: ByteRows


class ReblindedIds(Message):
    """A chunk of the receiver's own `BlindedIds`, now under both keys."""

    kind: ClassVar[str] = "reblinded ids"
    start: Count
    rows: ByteRows


class MoreIds(Message):
    """Flow control: the sender has taken a message of several, and the receiver may send another one."""

    kind: ClassVar[str] = "more ids"


class CommonIds(Message):
    """Which of the receiver's own `BlindedIds` are common to all parties: one bit each, packed."""

    kind: ClassVar[str] = "common ids"
    bits: FlatBits


class HeldOutShares(Message):
    """Random bytes towards the choice of the held-out records, or hashes of them (`parties.vertical.held_out`)."""

    kind: ClassVar[str] = "held-out shares"
    shares: Annotated[tuple[RandomBytes, ...], FailFast(), Field(strict=False, min_length=1, max_length=MAX_PARTIES)]
