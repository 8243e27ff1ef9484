"""Every message that can come over a channel, by its kind."""

from __future__ import annotations

from protocols.horizontal_messages import HORIZONTAL_MESSAGES
from protocols.messages import MESSAGES, Message

VOCABULARY: dict[str, type[Message]] = {**MESSAGES, **HORIZONTAL_MESSAGES}
