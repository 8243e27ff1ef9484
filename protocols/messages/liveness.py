"""Messages of the transport itself, which no channel hands on: heartbeats and acknowledgements."""

from __future__ import annotations

from typing import ClassVar

from protocols.messages.fields import Count
from protocols.messages.message import Message


class Heartbeat(Message):
    """Application-level heartbeat: the sender's program works or waits."""

    kind: ClassVar[str] = "heartbeat"


class Received(Message):
    """How many messages have come, or None for an unknown conversation; with `is_last` the sender leaves for good."""

    kind: ClassVar[str] = "received"
    count: Count | None
    is_last: bool = False
