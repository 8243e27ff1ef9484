"""Registry of all messages that can come over a channel, by kind."""

from __future__ import annotations

from protocols.messages.comparison import Compare
from protocols.messages.horizontal import HORIZONTAL_MESSAGES
from protocols.messages.message import Message
from protocols.messages.vertical import MESSAGES

MESSAGE_TYPES: dict[str, type[Message]] = {**MESSAGES, **HORIZONTAL_MESSAGES, Compare.kind: Compare}
