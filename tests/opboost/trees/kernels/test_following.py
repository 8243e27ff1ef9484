"""Rows through trees: every row gets the value of the leaf that following it node by node comes to."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.trees.kernels.following import follow_trees

# Column 0 at bin 2, left of it column 1 by a set of bins; columns alternate by `places`.
INNER = np.array([[0, 0, 2, 3, 1, 2], [1, 1, 0, -1, 3, 4]], np.int32)
VALUES = np.array([0.0, 0.0, 5.0, 7.0, 11.0])


@pytest.mark.parametrize("places", [(-1, -1), (0, -1), (-1, 0), (0, 1)])
@pytest.mark.parametrize("n_rows", [1, 50, 5000])
def test_a_row_comes_where_it_belongs_wherever_its_bins_lie(places: tuple[int, int], n_rows: int) -> None:
    """Through the tree twice, with another set and other values, which another output has, and through a lone leaf."""
    draw = np.random.default_rng(n_rows)
    table = draw.integers(0, 8, (2, n_rows)).astype(np.uint8)
    alternating = np.full((2, n_rows), 99, np.uint8)
    fixed = table.copy()
    for column, place in enumerate(places):
        if place >= 0:
            alternating[place] = table[column]
            fixed[column] = 99
    sets = np.zeros((2, 100), np.bool_)
    sets[0, [0, 3, 4]] = sets[1, [1, 2]] = True
    scores = np.full((2, n_rows), 0.5)
    follow_trees(
        alternating,
        fixed,
        np.array(places, np.int32),
        np.array([1, 0, 1]),
        np.array([2, 2, 4]),
        np.concatenate([INNER, INNER]),
        sets,
        np.array([5, 6, 11]),
        np.concatenate([VALUES, [0.25], 2 * VALUES]),
        scores,
    )
    goes_right = (table[0] > 2) & (table[0] <= 5)
    first, second = (
        np.where(goes_right, 5.0, np.where(np.isin(table[1], members), 7.0, 11.0)) for members in ([0, 3, 4], [1, 2])
    )
    np.testing.assert_array_equal(scores, [np.full(n_rows, 0.75), 0.5 + first + 2 * second])
