"""Messages of joint prediction, one round trip per batch; the greetings are those of training::

    A                                    B
    │ ◄──────────── Hello ────────────── │
    │ ───────────── Hello ─────────────► │
    │ ────────────── Ask ──────────────► │   ids of a batch, and whether to desensitize them
    │ ◄───────────── Answers ─────────── │   per record whether it is answered, and a bit per test or its cells, packed
    │ ───────────── Done ──────────────► │

A party that serves says so in its `Hello`, and looks for A again after `Done`.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, ClassVar, Self

from pydantic import FailFast, Field, model_validator

from protocols.errors import UnexpectedMessage
from protocols.messages.fields import PackedBits, StatusArray
from protocols.messages.message import Message


class RecordStatus(IntEnum):
    """What a passive party did with a record that it was asked for. Where several differ, the highest counts."""

    ANSWERED = 0
    UNKNOWN = 1
    REFUSED_ROUTED = 2
    REFUSED_RATE_LIMIT = 3
    REFUSED_DAILY_LIMIT = 4
    REFUSED_TRAINING = 5
    REFUSED_BUDGET = 6


# Refusals of the mode that is not asked for: exact answers touch no budget; desensitized ones may be about any record.
_FOREIGN = {False: (RecordStatus.REFUSED_BUDGET,), True: (RecordStatus.REFUSED_ROUTED, RecordStatus.REFUSED_TRAINING)}


class Ask(Message):
    """Records to be scored."""

    kind: ClassVar[str] = "ask"
    ids: Annotated[tuple[str, ...], FailFast(), Field(strict=False)]
    desensitized: bool


class Answers(Message):
    """Per record of an `Ask`: its `RecordStatus`, and its bits; 0 where it was not answered.

    These are one per test, True for left; or, with an agreed grid, per column the number of the cell, in binary, the
    highest bit first: from 0, with one more number for a missing cell.

    The status tells whether the sender's data file holds the id.
    """

    kind: ClassVar[str] = "answers"
    status: StatusArray
    bits: PackedBits

    @model_validator(mode="after")
    def _check_status(self) -> Self:
        if self.status.max(initial=0) > max(RecordStatus):
            raise ValueError("a status that this version does not know")
        return self

    def check_for(self, ask: Ask, *, n_bits: int, peer: str) -> None:
        """Refuse a peer's answers that do not fit a request about records with so many bits each.

        Raises
        ------
        UnexpectedMessage
            If they are of another shape, or refuse records for a reason of the other mode.
        """
        n_rows = len(ask.ids)
        if len(self.status) != n_rows or self.bits.shape != (n_rows, -(-n_bits // 8)):
            raise UnexpectedMessage(
                f"{peer} answered {len(self.status)} records in {self.bits.shape[1]} bytes each; "
                f"{n_rows} records with {n_bits} bits each were asked for"
            )
        for status in _FOREIGN[ask.desensitized]:
            if status in self.status:
                mode = "desensitized" if ask.desensitized else "exact"
                raise UnexpectedMessage(f"{peer} answered {status.name!r}, which no request for {mode} answers has")
