"""Messages of alignment: they pass the codec unchanged, and other shapes and sizes are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.messages.id_alignment import (
    BlindedIds,
    CommonIds,
    HiddenIds,
    IdConfirmation,
    MoreIds,
    OrderShare,
    ReblindedIds,
    TransferAnswer,
    TransferPoints,
)
from protocols.messages.message import Message
from protocols.transport.codec import decode, encode

ROWS = np.arange(66, dtype=np.uint8).reshape(2, 33)
SOUND: list[Message] = [
    IdConfirmation(tag=bytes(32)),
    OrderShare(random=bytes(range(32))),
    TransferPoints(rows=ROWS),
    TransferAnswer(point=bytes(32)),
    HiddenIds(number=3, columns=ROWS, tags=ROWS[:1]),
    BlindedIds(start=0, rows=ROWS),
    ReblindedIds(start=5, rows=ROWS),
    MoreIds(),
    CommonIds(bits=np.array([1, 255], np.uint8)),
]


@pytest.mark.parametrize("message", SOUND, ids=lambda one: one.kind)
def test_a_message_comes_out_of_the_codec_as_it_went_in(message: Message) -> None:
    found = decode([bytes(frame) for frame in encode(message)])
    assert type(found) is type(message)
    for name in type(message).model_fields:
        np.testing.assert_array_equal(getattr(found, name), getattr(message, name))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (IdConfirmation, {"tag": bytes(31)}),
        (OrderShare, {"random": bytes(33)}),
        (TransferAnswer, {"point": bytes(33)}),
        (HiddenIds, {"number": 0, "columns": ROWS, "tags": ROWS[0]}),
        (HiddenIds, {"number": 2**32, "columns": ROWS, "tags": ROWS}),
        (BlindedIds, {"start": -1, "rows": ROWS}),
        (BlindedIds, {"start": 0, "rows": ROWS[0]}),
        (ReblindedIds, {"start": 0, "rows": ROWS.astype(np.int16)}),
        (CommonIds, {"bits": ROWS}),
        (MoreIds, {"extra": 1}),
    ],
)
def test_another_shape_size_or_field_is_refused(kind: type[Message], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        kind(**fields)
