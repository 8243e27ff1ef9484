"""A message: frozen, strict about types, and without fields that nobody declared."""

from __future__ import annotations

from typing import ClassVar

import pytest
from pydantic import ValidationError

from protocols.messages.message import PROTOCOL_VERSION, Message


class Example(Message):
    kind: ClassVar[str] = "example"
    n: int


@pytest.mark.parametrize("fields", [{}, {"n": "1"}, {"n": 1.0}, {"n": True}, {"n": 1, "m": 2}])
def test_nothing_is_converted_or_overlooked(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Example.model_validate(fields)


def test_a_message_does_not_change() -> None:
    message = Example(n=1)
    with pytest.raises(ValidationError):
        message.n = 2  # type: ignore[misc]
    assert message == Example(n=1)


def test_the_version_is_a_positive_number() -> None:
    assert isinstance(PROTOCOL_VERSION, int)
    assert PROTOCOL_VERSION > 0
