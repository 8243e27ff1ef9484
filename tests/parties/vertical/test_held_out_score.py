"""Scores of held-out records: which columns of ranks are one column."""

from __future__ import annotations

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.privacy.guarantee import compose
from opboost.schema import ColumnSchema, Kind
from parties.vertical.held_out_score import columns_of_ranks


def test_columns_of_ranks_go_with_the_column_that_they_come_from() -> None:
    numbers, town = ColumnSchema(name="a", lower=0, upper=9), {"kind": Kind.UNORDERED, "categories": ("x", "y")}
    schemas = (numbers, ColumnSchema(name="b", **town))  # type: ignore[arg-type]
    promise = compose(tuple(ColumnMechanism(one, MechanismSettings()).guarantee() for one in schemas), is_secure=True)
    assert columns_of_ranks(promise, ["c0", "c1", "c2"]) == {"a": ["c0"], "b": ["c1", "c2"]}
    # A guarantee that does not fit what was offered says nothing about it.
    for wrong in (promise, None):
        assert columns_of_ranks(wrong, ["c0", "c1"]) == {"c0": ("c0",), "c1": ("c1",)}
