"""Section: frozen, without unknown keys, no truth value for a number, and paths resolved at any depth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, TypeAdapter, ValidationError

from parties.config.section import NonNegative, PlainName, Positive, PositiveCount, Section, paths_in, resolved


class Inner(Section):
    path: Path = Path("a")
    n: int = 1


class Outer(Section):
    inner: Inner = Inner()
    many: tuple[Inner, ...] = (Inner(),)
    flag: bool = False
    mixed: int | bool = 0
    rates: dict[str, float] = Field({})
    name: str = "b"


def test_paths_are_resolved_at_any_depth_and_nothing_else_is_touched() -> None:
    before = Outer(inner=Inner(n=3), many=(Inner(path=Path("/absolute")), Inner()))
    after = resolved(before, Path("/folder"))
    assert after.inner.path == Path("/folder/a")
    assert [one.path for one in after.many] == [Path("/absolute"), Path("/folder/a")]
    assert (after.inner.n, after.name, before.inner.path) == (3, "b", Path("a"))
    # What was given stays known, and what was left out too.
    assert after.model_fields_set == before.model_fields_set
    assert resolved(Outer(many=()), Path("/f")).many == ()


def test_a_section_without_keys_counts_as_left_out_and_no_other_key_does() -> None:
    assert Outer.model_validate({"inner": None, "name": "c"}) == Outer(name="c")
    assert Outer.model_validate({"inner": None}).model_fields_set == set()
    for key in ("many", "flag", "rates", "name"):
        with pytest.raises(ValidationError, match=key):
            Outer.model_validate({key: None})


def test_paths_are_found_at_any_depth() -> None:
    found = Outer(inner=Inner(path=Path("x")), many=(Inner(), Inner(path=Path("y"))))
    assert [str(one) for one in paths_in(found)] == ["x", "a", "y"]


@pytest.mark.parametrize("given", [{"inner": {"n": True}}, {"rates": {"x": False}}, {"unknown": 1}])
def test_a_truth_value_is_no_number_and_an_unknown_key_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Outer.model_validate(given)


def test_a_truth_value_is_taken_where_one_may_stand_and_nothing_changes_later() -> None:
    found = Outer.model_validate({"flag": True, "mixed": True})
    assert (found.flag, found.mixed) == (True, True)
    with pytest.raises(ValidationError):
        found.flag = False  # type: ignore[misc]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (PlainName, ["", "a/b", "a b", "../x", "a\n"]),
        (Positive, [0, -1, float("inf"), float("nan")]),
        (NonNegative, [-1e-9, float("inf"), float("nan")]),
        (PositiveCount, [0, 1.5]),
    ],
)
def test_shared_types_refuse_what_is_none(kind: Any, bad: list[Any]) -> None:
    for value in bad:
        with pytest.raises(ValidationError):
            TypeAdapter(kind).validate_python(value)
