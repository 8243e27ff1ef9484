"""Registry: every message is in it under its own kind, parts of messages are not."""

from __future__ import annotations

from protocols.messages import comparison, horizontal, id_alignment, vertical
from protocols.messages.horizontal import HORIZONTAL_MESSAGES
from protocols.messages.message import Message
from protocols.messages.registry import MESSAGE_TYPES
from protocols.messages.vertical import MESSAGES


def test_every_message_that_is_declared_can_come_and_no_two_share_a_kind() -> None:
    declared = {
        one
        for module in (comparison, vertical, horizontal, id_alignment)
        for one in vars(module).values()
        if isinstance(one, type) and issubclass(one, Message) and hasattr(one, "kind")
    }
    parts = {vertical.Held, vertical.OfferedColumn, vertical.Terms}
    assert set(MESSAGE_TYPES.values()) == declared - parts
    assert {kind: one.kind for kind, one in MESSAGE_TYPES.items()} == {kind: kind for kind in MESSAGE_TYPES}
    assert len(MESSAGE_TYPES) == len(declared - parts)
    common = set(MESSAGES) & set(HORIZONTAL_MESSAGES)
    assert all(MESSAGES[kind] is HORIZONTAL_MESSAGES[kind] for kind in common)
