"""Histogram axes: every column owns consecutive bins, of which the last counts missing values."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from opboost.arrays import HistogramAxes


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
