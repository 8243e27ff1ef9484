"""The message that only looks comes as it was sent."""

from __future__ import annotations

from protocols.messages.comparison import Compare
from protocols.messages.registry import MESSAGE_TYPES
from protocols.transport.codec import decode, encode


def test_terms_come_as_they_were_sent() -> None:
    said = Compare(party="w", run_id="r", terms={"epsilon": 1.0, "columns": ["a"]})
    assert decode([bytes(frame) for frame in encode(said)]) == said
    assert MESSAGE_TYPES["compare"] is Compare
