"""Schemas and mechanisms of the passive columns: public bounds, public categories, budgets of their own."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.column_positions import ColumnPositions
from opboost.errors import ParameterError, SchemaError
from opboost.schema import ColumnSchema, Kind, Missing
from opboost.sklearn.data_frames import FrameEncoder
from opboost.sklearn.passive_columns import passive_mechanisms, passive_schemas, warn_of_clipped

FRAME = pd.DataFrame({"age": [20, 30], "town": ["x", "y"], "debt": [1.0, 2.0]})


def schemas(bounds: Any, passive: Any = None) -> list[ColumnSchema]:
    positions = ColumnPositions(tuple(FRAME.columns))
    return passive_schemas(positions, bounds, passive, FrameEncoder.learn(FRAME, bounds, {}), missing=Missing.REFUSE)


def test_columns_with_public_bounds_are_passive_in_the_order_of_the_table() -> None:
    found = schemas({"debt": (0, 9), "town": ["y", "x"]})
    assert [one.name for one in found] == ["town", "debt"]
    assert (found[0].kind, found[0].categories) == (Kind.UNORDERED, ("y", "x"))
    assert (found[1].lower, found[1].upper) == (0, 9)


@pytest.mark.parametrize(
    ("bounds", "passive", "words"),
    [
        ({"age": (0, 99)}, ["age", "debt"], "these have none: debt"),
        ({"town": (0, 1)}, None, "need a public list of their categories as `bounds`: town"),
    ],
)
def test_what_is_not_public_is_never_taken_from_the_data(bounds: Any, passive: Any, words: str) -> None:
    with pytest.raises(SchemaError, match=words):
        schemas(bounds, passive)


@pytest.mark.parametrize("unit", ["D", "s", "ms", "ns"])
def test_a_pair_of_dates_is_read_as_one_by_column_is(unit: Any) -> None:
    """It was taken in whatever unit it had, and nanoseconds left one code for all days."""
    pair = np.datetime64("2024-01-01", unit), np.datetime64("2025-01-01", unit)
    for bounds in (pair, list(pair), ("2024-01-01", "2025-01-01"), {"age": pair}):
        (found,) = schemas(bounds, ["age"])
        assert found.bounds == (19723, 20089)
    for arrays in ([[one] * 3 for one in pair], np.array(pair), [[one, 0.0, 1.0] for one in pair]):
        with pytest.raises(ParameterError, match="be a pair of numbers or arrays"):
            schemas(arrays, ["age"])


def test_a_column_has_the_budget_of_all_or_its_own() -> None:
    both = schemas({"age": (0, 99), "debt": (0, 9)})
    found = passive_mechanisms(both, {"epsilon": 0.1}, {"debt": {"epsilon": 0.5}})
    assert [one.settings.epsilon for one in found] == [0.1, 0.5]
    with pytest.raises(SchemaError, match="columns that are not passive: town"):
        passive_mechanisms(both, {"epsilon": 0.1}, {"town": {"epsilon": 0.5}})


def test_categories_lose_no_more_than_is_stated_for_their_column() -> None:
    region = ColumnSchema(name="region", kind=Kind.UNORDERED, categories=("a", "b"))
    common, settings = {"epsilon": None, "whole_range": None}, {"category_epsilon": 5.0}
    for own, loses in (({"region": {"whole_range": 1.0}}, 1.0), ({}, 5.0)):
        (found,) = passive_mechanisms([region], common, own, **settings)
        assert found.guarantee().domain_loss == loses


@pytest.mark.parametrize("own", [{"odds": {"within": 1.0, "at_most": 2.0}}, {"cost": 0.5, "per": 1.0}])
def test_a_distance_that_is_stated_for_unordered_categories_is_refused(own: dict[str, Any]) -> None:
    """They have none: the budget would be left out, and two categories told apart at 10 to 1 where 2 to 1 is stated."""
    region = ColumnSchema(name="region", kind=Kind.UNORDERED, categories=("a", "b"))
    common = {"epsilon": None, "whole_range": None}
    with pytest.raises(ParameterError, match=r"'region': unordered categories have no distance; state `whole_range`"):
        passive_mechanisms([region], common, {"region": own})
    # As the budget of all columns it is for those that have a distance.
    (found,) = passive_mechanisms([region], own, {})
    assert found.guarantee().domain_loss == pytest.approx(2.3)


@pytest.mark.parametrize(("n_outside", "is_warned"), [(1, False), (2, True)])
def test_more_than_one_value_of_a_hundred_outside_its_bounds_is_warned_of(n_outside: int, is_warned: bool) -> None:
    schema, values = ColumnSchema(name="age", lower=0, upper=10), np.full(100, 5.0)
    values[:n_outside], values[-1] = (-1, 11)[:n_outside], np.nan
    warned = pytest.warns(UserWarning, match="2 of 100 values of column 'age' lie outside its bounds, 0 to 10")
    with warned if is_warned else nullcontext():
        warn_of_clipped([schema], {"age": values})
