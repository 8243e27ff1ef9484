"""Message of a horizontal role that only looks whether the other side has its terms."""

from __future__ import annotations

from typing import ClassVar

from protocols.messages.fields import Document, Name
from protocols.messages.message import Message


class Compare(Message):
    """The terms of a party that only looks whether they are the other's, or the answer to it."""

    kind: ClassVar[str] = "compare"
    party: Name
    run_id: Name
    terms: Document
