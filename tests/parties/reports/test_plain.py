"""Plain values: everything of a report is JSON, folders stay private, and foreign kinds are refused."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.reports.plain import plain


class Kind(StrEnum):
    A = "a"


@dataclass(frozen=True)
class Inner:
    path: Path
    loss: float


LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text())


@given(st.recursive(LEAVES, lambda one: st.lists(one) | st.dictionaries(st.text(), one) | st.tuples(one, one)))
def test_whatever_it_is_made_of_it_is_json_without_numbers_that_json_lacks(value: object) -> None:
    text = json.dumps(plain(value), allow_nan=False)
    assert plain(json.loads(text)) == json.loads(text)


def test_infinity_is_a_word_no_number_is_nothing_and_a_path_its_last_part() -> None:
    found = plain({"in": Inner(Path("/home/x/run.yaml"), -math.inf), 3: (math.inf, math.nan, Kind.A)})
    assert found == {"in": {"path": "run.yaml", "loss": "-inf"}, "3": ["inf", None, "a"]}


@pytest.mark.parametrize("value", [{1, 2}, b"x", object(), Inner, 1j])
def test_another_kind_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="a report cannot hold a value of type"):
        plain([value])
