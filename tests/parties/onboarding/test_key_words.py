"""Types and bounds of run files' keys in words."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from parties.onboarding.key_words import keys_of, type_words


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Section(BaseModel):
    later: int = 1
    first: str = Field(alias="name")


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (int, "whole number"),
        (Path | None, "path"),
        (int | str, "whole number or text"),
        (Literal["a", "b"], "`a` or `b`"),
        (tuple[float, ...], "list of number"),
        (tuple[int, str], "[whole number, text]"),
        (dict[str, bool], "mapping of text to true or false"),
        (Section, "section"),
        (Colour, "`red` or `blue`"),
        (Annotated[float, Field(gt=0, le=1)], "number, > 0, ≤ 1"),
        (Annotated[tuple[str, ...], Field(min_length=1, max_length=9)], "list of text, at least 1, at most 9"),
    ],
)
def test_a_type_in_words(kind: Any, words: str) -> None:
    assert type_words(kind) == words


def test_required_keys_come_first_by_the_names_that_stand_in_the_file() -> None:
    assert [key for key, _ in keys_of(Section)] == ["name", "later"]
