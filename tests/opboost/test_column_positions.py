"""Column references: positions from either end and names mean the same column, anything else is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.column_positions import ColumnPositions, are_positions, check_labels, column_names, labels_of
from opboost.errors import DataError, ParameterError

POSITIONS = ColumnPositions(("a", "b", "c"))
CELLS = np.zeros((1, 3))


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


@pytest.mark.parametrize("column", [0, 1, -1, 3, np.int64(2)])
def test_a_number_is_refused_where_it_may_be_a_label(column: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^column {column} may be a position or a label, .* as '{column}'"):
        ColumnPositions(("x0", "x1", "x2"), takes_numbers=False).of(column)


def test_a_number_that_is_the_name_of_another_column_is_refused() -> None:
    positions = ColumnPositions(("0", "2", "1"))
    assert (positions.of(0), positions.of(-1), positions.of("1")) == (0, 2, 2)
    for column in (1, 2):
        with pytest.raises(ParameterError, match=f"^column {column} may be a position or a label"):
            positions.of(column)
    with pytest.raises(ParameterError, match="does not exist"):
        positions.of(3)


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


@pytest.mark.parametrize(
    "bounds",
    [
        ([0, 1], 9),
        {"a": (0,)},
        {"a": 3},
        ("x", 1),
        3,
        (0, 1, 2),
        (np.datetime64("2020-01-01"), np.datetime64("2021-01-01")),
        (np.timedelta64(0, "h"), np.array([1, 2, 3], "m8[D]")),
        (0, [1, 2, np.timedelta64(3, "D")]),
        {"a": (np.datetime64("2020-01-01"), np.datetime64("2021-01-01"))},
    ],
)
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
    assert ColumnPositions(POSITIONS.names, takes_numbers=False).constraints([1, 0, -1], [["a", "c"]]) == by_name
    assert POSITIONS.constraints(None, None) == POSITIONS.constraints({}, [])
    with pytest.raises(ParameterError, match="one number for each of 3 columns; got 2"):
        POSITIONS.constraints([1, 0], None)


def test_names_of_a_fitted_estimator_are_those_of_its_table_or_numbers() -> None:
    assert column_names(SimpleNamespace(n_features_in_=2)) == ("x0", "x1")
    assert column_names(SimpleNamespace(n_features_in_=2, feature_names_in_=np.array(["p", "q"]))) == ("p", "q")


def frame_with(*labels: Any) -> pd.DataFrame:
    return pd.DataFrame(CELLS, columns=list(labels))


def test_which_labels_are_positions() -> None:
    assert labels_of(CELLS) is None
    assert labels_of(frame_with("a", "b", "c")) is None
    for labels in ((0, 1, 2), (0.0, 1.0, 2.0), (("a", 1), ("a", 2), ("b", 1)), pd.date_range("2020", periods=3)):
        assert are_positions(labels_of(frame_with(*labels)))
    for labels in ((1, 2, 3), (0, 2, 1), (0.5, 1, 2), (0, 1, np.nan)):
        assert not are_positions(labels_of(frame_with(*labels)))
    assert are_positions(None)


def test_equal_labels_of_other_types_are_the_same() -> None:
    trained = labels_of(frame_with(0, 1, np.nan))
    check_labels(frame_with(0, 1, np.nan), trained)
    check_labels(pd.DataFrame(CELLS), labels_of(pd.DataFrame(CELLS, columns=[0.0, 1.0, 2.0])))
    check_labels(frame_with("a", "b", "c"), trained)
    check_labels(CELLS, trained)


def test_other_labels_are_refused_with_the_first_of_them() -> None:
    with pytest.raises(
        DataError, match=r"^the column at position 1 is labelled 2, and was 1 in the table that was .*\. N"
    ):
        check_labels(frame_with(0, 2, 1), labels_of(frame_with(0, 1, 2)))
    check_labels(frame_with(0, 2, 1).iloc[:, :2], labels_of(frame_with(0, 1, 2)))
