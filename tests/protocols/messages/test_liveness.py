"""Messages of the transport: a count that is none is no number, and they are as short as a heartbeat should be."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from protocols.messages.liveness import Heartbeat, Received
from protocols.transport.codec import decode, encode, size_bytes


@pytest.mark.parametrize(
    "message", [Heartbeat(), Received(count=None), Received(count=0), Received(count=2**31, is_last=True)]
)
def test_they_pass_the_codec_and_are_short(message: Heartbeat | Received) -> None:
    frames = encode(message)
    assert decode([bytes(frame) for frame in frames]) == message
    assert size_bytes(frames) < 128


@pytest.mark.parametrize("fields", [{}, {"count": -1}, {"count": 1.5}, {"count": True}, {"count": 1, "is_last": 1}])
def test_no_other_count_is_taken(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Received(**fields)  # type: ignore[arg-type]
