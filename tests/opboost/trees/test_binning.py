from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from opboost.errors import DataError, ParameterError
from opboost.trees.binning import BinnedTable, bin_categories, bin_ranks, bin_values, choose_cuts

FINITE = st.floats(allow_nan=False, allow_infinity=False)
FEW = st.sampled_from([-2.5, 0.0, 1.0, 1e300, -1e300, 5e-324, np.nan])
COLUMNS = hnp.arrays(np.float64, st.integers(1, 40), elements=FEW | FINITE)


pytestmark = pytest.mark.usefixtures("one_thread")


def _expected_bin(value: float, cuts: np.ndarray) -> int:
    return len(cuts) + 1 if np.isnan(value) else sum(value > cut for cut in cuts)


@settings(max_examples=200, deadline=None)
@given(COLUMNS, st.integers(3, 12))
def test_a_bin_says_how_many_cuts_lie_below_the_value(values: np.ndarray, max_bin: int) -> None:
    column = bin_values(values, max_bin=max_bin)
    assert column.bins.tolist() == [_expected_bin(value, column.cuts) for value in values]
    assert (np.diff(column.cuts) > 0).all()


@settings(max_examples=100, deadline=None)
@given(COLUMNS, st.integers(3, 12))
def test_at_most_max_bin_bins_arise_the_missing_one_included(values: np.ndarray, max_bin: int) -> None:
    column = bin_values(values, max_bin=max_bin)
    assert column.n_value_bins + np.isnan(values).any() <= max_bin


@settings(max_examples=100, deadline=None)
@given(COLUMNS)
def test_few_distinct_values_get_a_bin_each(values: np.ndarray) -> None:
    column = bin_values(values, max_bin=256)
    present = values[~np.isnan(values)]
    assert column.n_value_bins == max(1, len(np.unique(present)))
    assert len(np.unique(column.bins)) == len(np.unique(values))


@pytest.mark.parametrize(
    ("low", "high"),
    [(1.0, 2.0), (1.0, np.nextafter(1.0, 2)), (-1.7e308, 1.7e308), (1.6e308, 1.7e308), (0.0, 5e-324), (-5e-324, 0.0)],
)
def test_a_cut_lies_between_its_neighbours_whatever_rounding_does(low: float, high: float) -> None:
    column = bin_values(np.array([low, high]), max_bin=256)
    assert low <= column.cuts[0] < high
    assert column.bins.tolist() == [0, 1]


def test_a_column_without_a_value_has_one_empty_bin_and_the_missing_one() -> None:
    column = bin_values(np.full(3, np.nan), max_bin=256)
    assert (column.n_value_bins, column.bins.tolist()) == (1, [1, 1, 1])


def test_missing_ranks_are_those_equal_to_the_number_of_ranks() -> None:
    column = bin_ranks(np.array([2, 0, 3, 1, 3], np.uint32), 3, max_bin=256)
    assert column.bins.tolist() == [2, 0, 3, 1, 3]
    assert column.cuts.tolist() == [0.0, 1.0]


def test_a_rank_column_without_a_value_has_one_empty_bin_and_the_missing_one() -> None:
    column = bin_ranks(np.zeros(3, np.uint32), 0, max_bin=256)
    assert (column.n_value_bins, column.bins.tolist()) == (1, [1, 1, 1])


@settings(max_examples=200, deadline=None)
@given(COLUMNS, st.integers(3, 12))
def test_values_and_their_ranks_are_binned_alike(values: np.ndarray, max_bin: int) -> None:
    distinct, ranks = np.unique(values[~np.isnan(values)], return_inverse=True)
    column = np.full(len(values), len(distinct), np.uint32)
    column[~np.isnan(values)] = ranks
    by_rank = bin_ranks(column, len(distinct), max_bin=max_bin)
    np.testing.assert_array_equal(by_rank.bins, bin_values(values, max_bin=max_bin).bins)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 50), min_size=1, max_size=60), st.integers(2, 12))
def test_rank_bins_hold_exactly_the_ranks_up_to_their_cut(counts: list[int], max_bin: int) -> None:
    ranks = np.repeat(np.arange(len(counts), dtype=np.uint32), counts)
    column = bin_ranks(ranks, len(counts), max_bin=max_bin)
    assert column.bins.tolist() == [_expected_bin(rank, column.cuts) for rank in ranks.tolist()]
    assert column.n_value_bins <= max_bin


@settings(max_examples=100, deadline=None)
@given(st.integers(13, 300), st.integers(2, 12))
def test_values_of_equal_weight_are_divided_into_bins_that_differ_by_one_value(n_distinct: int, max_bin: int) -> None:
    behind = choose_cuts(np.full(n_distinct, 3), max_bin=max_bin)
    widths = np.diff(np.concatenate([[-1], behind, [n_distinct - 1]]))
    assert len(widths) == max_bin
    assert widths.max() - widths.min() <= 1


def test_a_heavy_value_is_not_cut_behind_twice() -> None:
    assert choose_cuts(np.array([1, 100, 1, 1, 1]), max_bin=4).tolist() == [1]


@pytest.mark.parametrize("max_bin", [-1, 0, 1])
def test_fewer_than_two_bins_are_refused(max_bin: int) -> None:
    with pytest.raises(ParameterError, match=f"max_bin must be at least 2.*got {max_bin}"):
        choose_cuts(np.ones(5, np.int64), max_bin=max_bin)


@pytest.mark.parametrize(
    ("n_distinct", "has_missing", "dtype"),
    [(256, False, np.uint8), (255, True, np.uint8), (257, False, np.uint16), (256, True, np.uint16)],
)
def test_bins_are_of_the_smallest_type_that_holds_the_missing_one_too(
    n_distinct: int, has_missing: bool, dtype: type
) -> None:
    values = np.append(np.arange(n_distinct, dtype=np.float64), [np.nan] * has_missing)
    column = bin_values(values, max_bin=1000)
    assert column.bins.dtype == dtype
    assert column.bins.max() == n_distinct - 1 + has_missing


def test_more_bins_than_sixteen_bits_hold_are_refused() -> None:
    with pytest.raises(ParameterError, match="max_bin must be at most 65535; a column has 65537 bins"):
        bin_values(np.arange(65537.0), max_bin=100_000)


def test_a_table_takes_the_widest_type_and_gives_every_column_a_missing_bin() -> None:
    narrow = bin_values(np.arange(300) % 2 * 1.0, max_bin=256)
    wide = bin_values(np.arange(300.0), max_bin=1000)
    table = BinnedTable.of([narrow, wide])
    assert table.bins.dtype == np.uint16
    np.testing.assert_array_equal(table.bins, [narrow.bins, wide.bins])
    assert table.axes.offsets.tolist() == [0, 3, 304]
    assert (table.axes.n_columns, table.axes.n_bins, table.axes.n_value_bins(1)) == (2, 304, 300)


def test_a_column_without_a_category_has_one_empty_bin_and_the_missing_one() -> None:
    column = bin_categories(np.full(3, np.nan), max_bin=256)
    assert (column.n_value_bins, column.bins.tolist()) == (1, [1, 1, 1])


@given(st.lists(st.sampled_from([0.0, 1.0, 7.0, 65535.0, np.nan]), max_size=40).map(lambda values: [7.0, *values]))
def test_every_category_that_occurs_has_a_bin_of_its_own_and_the_cuts_name_it(values: list[float]) -> None:
    column = bin_categories(np.array(values), max_bin=256)
    for value, bin_ in zip(values, column.bins.tolist(), strict=True):
        assert (bin_ == column.n_value_bins) if np.isnan(value) else (column.cuts[bin_] == value)
    assert column.cuts.tolist() == sorted({value for value in values if not np.isnan(value)})
    assert column.is_categorical


@pytest.mark.parametrize("value", [-1.0, 0.5, 65536.0, 1e300, np.inf, -np.inf])
def test_what_is_no_number_of_a_category_is_refused_without_being_shown(value: float) -> None:
    with pytest.raises(DataError, match=r"^categories must be numbered by integers of at least 0 and under 65536$"):
        bin_categories(np.array([0.0, value]), max_bin=256)
    with pytest.raises(DataError, match=r"^column 'town': categories must be numbered by integers"):
        bin_categories(np.array([0.0, value]), max_bin=256, name="town")


@pytest.mark.parametrize(
    ("n_categories", "has_missing", "fits"), [(5, False, True), (4, True, True), (6, False, False), (5, True, False)]
)
def test_more_categories_than_bins_are_refused(n_categories: int, has_missing: bool, fits: bool) -> None:
    values = np.append(np.arange(n_categories) * 1.0, [np.nan] * has_missing)
    if fits:
        assert bin_categories(values, max_bin=5).n_value_bins == n_categories
        return
    with pytest.raises(DataError, match=f"{n_categories} categories, more than max_bin = 5 allows; raise max_bin"):
        bin_categories(values, max_bin=5)


@pytest.mark.parametrize(("texts", "asks"), [(["1,5", "2,7", "-"], True), (["1.", "Ulm", "Bonn"], False)])
def test_too_many_categories_of_digits_may_be_numbers_read_as_texts(texts: list[str], asks: bool) -> None:
    with pytest.raises(DataError, match="'price' has 3 categories, more than max_bin = 2 allows") as caught:
        bin_categories(np.arange(3.0), max_bin=2, name="price", texts=texts)
    assert ("numbers or dates that were read as texts" in str(caught.value)) == asks


def test_some_rows_of_a_table_keep_its_bins_and_axes() -> None:
    table = BinnedTable.of([bin_values(np.arange(9.0), max_bin=256), bin_categories(np.arange(9.0) % 3, max_bin=9)])
    some = table.of_rows(np.array([8, 0, 3]))
    np.testing.assert_array_equal(some.bins, table.bins[:, [8, 0, 3]])
    assert (some.n_rows, some.axes, some.cuts) == (3, table.axes, table.cuts)
    assert some.bins.flags.c_contiguous
    assert table.axes.is_categorical.tolist() == [False, True]
