"""Message by which a horizontal role compares its terms with the other side's, outside of a run."""

from __future__ import annotations

from typing import ClassVar

from protocols.messages.fields import Document, Name
from protocols.messages.message import Message


class Compare(Message):
    """The sender's terms, to be compared with the receiver's; answered by another one. Nothing else follows."""

    kind: ClassVar[str] = "compare"
    party: Name
    run_id: Name
    terms: Document
