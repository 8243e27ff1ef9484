"""Cells between public bounds: where rows come to lie, cuts on values, and bounds that are none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError, ParameterError
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.trees.complete import Cuts, splits_of, tree_of

GRID = PublicGrid([(0.0, 8.0), (0.0, 2.0)], 4, categorical=(1,))


def test_rows_lie_in_cells_of_equal_width_and_outliers_in_the_outermost() -> None:
    rows = np.array([[x, 0.0] for x in (-9.0, 0.0, 2.0, 2.1, 7.9, 99.0, np.nan)])
    assert GRID.place(rows).bins[0].tolist() == [0, 0, 0, 1, 3, 3, 4]


def test_every_category_has_a_cell() -> None:
    rows = np.array([[0.0, c] for c in (0, 1, 2, np.nan)])
    assert GRID.place(rows).bins[1].tolist() == [0, 1, 2, 3]
    with pytest.raises(DataError, match=r"not among its categories 0, 1, \.\.\., 2\. Nothing was released"):
        GRID.place(np.array([[0.0, 0.5]]))


def test_cells_do_not_follow_the_data() -> None:
    low, high = (GRID.place(np.full((3, 2), value)).cuts for value in (0.0, 1.0))
    assert all(np.array_equal(a, b) for a, b in zip(low, high, strict=True))


def test_a_tree_in_bins_parts_values_as_their_cells() -> None:
    chosen = Cuts(np.zeros(1, np.int32), np.array([1], np.int32), np.zeros(1, np.bool_))
    tree = tree_of(
        [splits_of(np.zeros(1, np.int32), chosen, GRID.axes, first_child=1)], np.array([0.0, 1.0, -1.0]), GRID.axes
    )
    found = GRID.in_values(tree, scale=2.0)
    assert found.thresholds[0] == 4.0
    assert found.values.tolist() == [0.0, 2.0, -2.0]


@pytest.mark.parametrize(
    ("bounds", "settings"),
    [
        ([(0.0, 1.0)], {"n_cells": 1}),
        ([(0.0, 1.0)], {"n_cells": 65536}),
        ([(1.0, 1.0)], {"n_cells": 4}),
        ([(0.0, np.inf)], {"n_cells": 4}),
        ([(-1e308, 1e308)], {"n_cells": 4}),
        ([(1.0, 3.0)], {"n_cells": 4, "categorical": (0,)}),
        ([(0.0, 2.5)], {"n_cells": 4, "categorical": (0,)}),
    ],
)
def test_bounds_and_cells_that_are_none_are_refused(bounds: Any, settings: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        PublicGrid(bounds, **settings)
