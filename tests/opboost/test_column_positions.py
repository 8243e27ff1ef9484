"""Column references: positions from either end and names mean the same column, anything else is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from opboost.column_positions import ColumnPositions, column_names
from opboost.errors import ParameterError

POSITIONS = ColumnPositions(("a", "b", "c"))


@pytest.mark.parametrize(("column", "place"), [(0, 0), (-1, 2), (np.int64(1), 1), ("c", 2), (-3, 0)])
def test_a_position_or_a_name_is_a_column(column: Any, place: int) -> None:
    assert POSITIONS.of(column) == place
    assert POSITIONS.name_of(column) == "abc"[place]


@pytest.mark.parametrize("column", [3, -4, "d", True, 1.0, None])
def test_what_names_no_column_is_refused_with_those_there_are(column: Any) -> None:
    with pytest.raises(ParameterError, match="does not exist; there are a, b, c"):
        POSITIONS.of(column)


def test_a_name_is_found_behind_the_mark_of_the_transformer_that_it_went_through() -> None:
    positions = ColumnPositions(("num__age", "cat__sub__job", "a__visits", "b__visits", "visits2", "age"))
    assert [positions.of(name) for name in ("num__age", "job", "age", "sub__job")] == [0, 1, 5, 1]
    for name in ("visits", "_job", "ge", ""):
        with pytest.raises(ParameterError, match="does not exist"):
            positions.of(name)


def test_a_misspelled_name_is_told_the_nearest() -> None:
    with pytest.raises(ParameterError, match="there are income, visits; did you mean 'income'"):
        ColumnPositions(("income", "visits")).of("incmoe")


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (None, {}),
        ({"b": (0, 1), -1: (2, 3)}, {1: (0.0, 1.0), 2: (2.0, 3.0)}),
        ((0, 1), dict.fromkeys(range(3), (0.0, 1.0))),
        (([0, 1, 2], 9), {0: (0.0, 9.0), 1: (1.0, 9.0), 2: (2.0, 9.0)}),
    ],
)
def test_bounds_are_a_mapping_or_a_pair(bounds: Any, expected: dict[int, tuple[float, float]]) -> None:
    assert POSITIONS.bounds(bounds) == expected


@pytest.mark.parametrize("bounds", [([0, 1], 9), {"a": (0,)}, {"a": 3}, ("x", 1), 3, (0, 1, 2)])
def test_other_bounds_are_refused(bounds: Any) -> None:
    with pytest.raises(ParameterError, match="bounds must map columns to"):
        POSITIONS.bounds(bounds)


@pytest.mark.parametrize("listed", [["a", -1], ("a", "c"), {0, 2}, np.array([0, 2]), np.array(["a", "c"])])
def test_columns_are_listed_in_a_list_or_an_array(listed: Any) -> None:
    """Of an array, whether it is empty was asked, which is none of its answers."""
    assert POSITIONS.named("columns", listed) == {"a", "c"}
    assert POSITIONS.named("columns", None) == POSITIONS.named("columns", np.array([])) == set()


@pytest.mark.parametrize("listed", ["ac", 0, 1.5, True, np.array([[0, 2]]), np.array(0), iter(["a"])])
def test_what_lists_no_columns_is_refused(listed: Any) -> None:
    with pytest.raises(ParameterError, match=r"^passive_columns must list columns by position or by name; got"):
        POSITIONS.named("passive_columns", listed)


def test_constraints_go_by_name_however_they_are_given() -> None:
    by_name = POSITIONS.constraints({"a": 1, "b": 0, "c": -1}, [["a", "c"]])
    assert POSITIONS.constraints([1, 0, -1], [[0, -1]]) == by_name
    assert POSITIONS.constraints(None, None) == POSITIONS.constraints({}, [])
    with pytest.raises(ParameterError, match="one number for each of 3 columns; got 2"):
        POSITIONS.constraints([1, 0], None)


def test_names_of_a_fitted_estimator_are_those_of_its_table_or_numbers() -> None:
    assert column_names(SimpleNamespace(n_features_in_=2)) == ("x0", "x1")
    assert column_names(SimpleNamespace(n_features_in_=2, feature_names_in_=np.array(["p", "q"]))) == ("p", "q")
