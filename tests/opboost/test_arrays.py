"""Histogram axes: every column owns consecutive bins, of which the last counts missing values."""

from __future__ import annotations

import numba
import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opboost.arrays import HistogramAxes, read_only


@given(st.lists(st.integers(1, 300), min_size=1, max_size=8))
def test_columns_divide_the_bins_with_one_more_for_missing_values(n_value_bins: list[int]) -> None:
    axes = HistogramAxes.from_bin_counts(n_value_bins)
    assert axes.n_columns == len(n_value_bins)
    assert axes.n_bins == sum(n_value_bins) + len(n_value_bins)
    assert [axes.n_value_bins(c) for c in range(axes.n_columns)] == n_value_bins
    assert axes.largest == max(n_value_bins) + 1
    owner = np.repeat(np.arange(axes.n_columns), axes.sizes)
    for c in range(axes.n_columns):
        np.testing.assert_array_equal(np.flatnonzero(owner == c), np.arange(axes.offsets[c], axes.offsets[c + 1]))


def test_columns_are_ordered_unless_they_are_named_categorical() -> None:
    assert HistogramAxes.from_bin_counts([2, 3]).is_categorical.tolist() == [False, False]
    assert HistogramAxes.from_bin_counts([2, 3], [False, True]).is_categorical.tolist() == [False, True]


def test_tables_of_any_layout_and_right_are_one_type_to_compiled_loops() -> None:
    table = np.arange(12.0).reshape(3, 4)
    fixed = table.copy()
    fixed.flags.writeable = False
    given = (table, fixed, np.asfortranarray(table), np.repeat(table, 2, axis=1)[:, ::2], table.astype(np.int64))
    assert len({numba.typeof(read_only(one)) for one in given}) == 1
    assert len({numba.typeof(one) for one in given}) == len(given)
    assert all((read_only(one) == table).all() for one in given)
    assert np.shares_memory(read_only(table), table)
    assert table.flags.writeable
