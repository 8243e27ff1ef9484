"""Dense ranks against SciPy, indicators of categories, and thresholds between neighbouring ranks."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from opboost.desensitize import ReleasedColumn
from opboost.errors import RankError
from opboost.ranking import RankTable, indicator
from opboost.schema import ColumnSchema, Kind, Missing
from tests.support.ranked_columns import dense_ranks, rank

AGE = ColumnSchema(name="age", lower=0, upper=9, missing=Missing.CATEGORY)
CITY = ColumnSchema(name="city", kind=Kind.UNORDERED, categories=("a", "b", "c"), missing=Missing.CATEGORY)

narrow = st.lists(st.integers(-20, 20), min_size=1, max_size=60)
wide = st.lists(st.integers(-(2**60), 2**60), min_size=1, max_size=60)


def released(schema: ColumnSchema, codes: list[int], missing: list[bool] | None = None) -> ReleasedColumn:
    is_missing = np.zeros(len(codes), dtype=bool) if missing is None else np.array(missing)
    return ReleasedColumn(schema, np.where(is_missing, 0, np.array(codes, dtype=np.int64)), is_missing)


@given(st.one_of(narrow, wide))
@settings(max_examples=300, deadline=None)
def test_dense_ranks_are_scipys_counted_from_zero(codes):
    ranks, distinct = dense_ranks(np.array(codes))
    assert ranks.tolist() == (rankdata(codes, method="dense") - 1).tolist()
    assert distinct.tolist() == sorted(set(codes))
    assert ranks.dtype == np.uint32


def test_ranks_over_a_wide_and_a_narrow_domain_are_the_same():
    codes = np.array([5, 3, 5, 9, 3])
    spread = np.where(codes == 9, 10**12, codes)
    assert dense_ranks(codes)[0].tolist() == dense_ranks(spread)[0].tolist() == [1, 0, 1, 2, 0]


def test_no_codes_have_no_ranks():
    ranks, distinct = dense_ranks(np.empty(0, dtype=np.int64))
    assert (ranks.tolist(), distinct.tolist(), ranks.dtype) == ([], [], np.uint32)


@given(narrow, st.data())
@settings(max_examples=100, deadline=None)
def test_missing_rows_hold_the_rank_behind_the_last_and_do_not_count(codes, data):
    missing = data.draw(st.lists(st.booleans(), min_size=len(codes), max_size=len(codes)))
    (column,) = rank(released(AGE, codes, missing))
    present = [code for code, gone in zip(codes, missing, strict=True) if not gone]
    assert column.table.codes.tolist() == sorted(set(present))
    assert (column.ranks == column.table.n_ranks).tolist() == missing
    assert column.table.codes[column.ranks[~np.array(missing)]].tolist() == present
    assert column.has_missing == any(missing)
    assert (column.source, column.category) == ("age", None)


def test_a_column_that_is_missing_throughout_has_no_rank_to_split_at():
    (column,) = rank(released(AGE, [0, 0], [True, True]))
    assert column.table.n_ranks == 0
    assert column.ranks.tolist() == [0, 0]
    with pytest.raises(RankError, match="no right neighbour"):
        column.table.threshold(0)


def test_an_unordered_column_gives_one_indicator_per_category():
    columns = list(rank(released(CITY, [2, 0, 0, 1], [False, False, True, False])))
    assert [column.category for column in columns] == [0, 1, 2]
    assert [column.ranks.tolist() for column in columns] == [[0, 1, 2, 0], [0, 0, 2, 1], [1, 0, 2, 0]]
    assert all(column.source == "city" and column.table.codes.tolist() == [0, 1] for column in columns)


def test_the_indicator_of_a_category_that_nobody_has_is_one_rank():
    columns = list(rank(released(CITY, [0, 1, 0])))
    assert columns[2].table.codes.tolist() == [0]
    assert columns[2].ranks.tolist() == [0, 0, 0]


def test_an_indicator_is_one_where_the_category_was_released():
    assert indicator(released(CITY, [2, 0, 2]), 2).tolist() == [1, 0, 1]


@given(st.sets(st.integers(-(2**50), 2**50), min_size=2, max_size=20))
@settings(max_examples=100, deadline=None)
def test_a_threshold_lies_halfway_between_a_rank_and_its_right_neighbour(codes):
    table = RankTable(np.array(sorted(codes)))
    for r in range(table.n_ranks - 1):
        assert 2 * table.threshold(r) == int(table.codes[r]) + int(table.codes[r + 1])


@given(narrow)
@settings(max_examples=100, deadline=None)
def test_a_code_is_at_most_the_threshold_exactly_if_its_rank_is_at_most_the_splits(codes):
    ranks, distinct = dense_ranks(np.array(codes))
    table = RankTable(distinct)
    for r in range(table.n_ranks - 1):
        assert ((np.array(codes) <= table.threshold(r)) == (ranks <= r)).all()


@pytest.mark.parametrize("r", [-1, 2, 3, 2**32 - 1])
def test_a_rank_without_right_neighbour_is_refused_and_no_code_shown(r):
    with pytest.raises(RankError, match=rf"rank {r} has no right neighbour; .* 0\.\.1\. No threshold") as caught:
        RankTable(np.array([777, 888, 999])).threshold(r)
    assert not any(code in str(caught.value) for code in ("777", "888", "999"))
