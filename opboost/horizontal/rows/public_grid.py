"""Public grid: bins between public bounds that do not depend on the data.

Bins that follow the data (quantiles, midpoints) make the set of candidates a function of the records, which no noise
on the choice can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Values, read_only
from opboost.errors import DataError, ParameterError
from opboost.trees.binning import BinnedTable
from opboost.trees.kernels.prediction import place_in_bins
from opboost.trees.tree import MAX_CATEGORIES, Tree


@dataclass(frozen=True)
class PublicGrid:
    """Cells of equal width per column, between bounds that are not taken from the data; or one per category.

    Parameters
    ----------
    bounds : sequence of (lower, upper)
        One pair per column, finite, lower < upper. Values beyond them fall into the outermost cells.
    n_cells : int
        Per column of numbers, 2 to 65535.
    given : tuple of ndarray, optional
        Cuts of each column in place of even ones, ascending; those of categories are not looked at. If they are not
        public, neither is anything grown on them.
    categorical : tuple of int
        Columns of categories 0, 1, 2, ... up to the upper bound, each of which has a cell of its own.
    """

    bounds: Sequence[tuple[float, float]]
    n_cells: int
    given: tuple[Values, ...] | None = None
    categorical: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not 2 <= self.n_cells <= 65535:
            raise ParameterError(f"a public grid needs between 2 and 65535 cells per column; got {self.n_cells}")
        for lower, upper in self.bounds:
            if not (np.isfinite([lower, upper, upper - lower]).all() and lower < upper):
                raise ParameterError(
                    f"bounds must be finite with lower < upper; got [{lower}, {upper}]. Nothing was released"
                )

        check_category_bounds(self.bounds, self.categorical)

    @cached_property
    def axes(self) -> HistogramAxes:
        """Axes of the columns' histograms."""
        is_categorical = [column in self.categorical for column in range(len(self.bounds))]
        sizes = [
            int(upper) + 1 if is_category else self.n_cells
            for (_, upper), is_category in zip(self.bounds, is_categorical, strict=True)
        ]
        return HistogramAxes.from_bin_counts(sizes, is_categorical)

    @cached_property
    def cuts(self) -> tuple[Values, ...]:
        """The edges between each column's cells, ascending."""
        shares = np.arange(1, self.n_cells) / self.n_cells
        cuts = list(self.given or (lower + (upper - lower) * shares for lower, upper in self.bounds))
        for column in self.categorical:
            cuts[column] = np.arange(self.bounds[column][1]) + 0.5
        return tuple(cuts)

    @cached_property
    def _flat_cuts(self) -> tuple[Values, NDArray[np.int64]]:
        """Concatenated cuts of all columns, and where each column's begin."""
        return np.concatenate(self.cuts), np.cumsum([0, *(len(each) for each in self.cuts)])

    def place(self, rows: Values) -> BinnedTable:
        """Put rows of shape ``(n_rows, n_columns)`` into the cells; NaN is missing.

        Raises
        ------
        DataError
            If a column of categories holds anything else.
        """
        check_categories(rows, self.bounds, self.categorical)
        axes, cuts = self.axes, self.cuts
        dtype: Any = np.uint8 if axes.largest <= 256 else np.uint16
        bins: Any = np.empty((len(self.bounds), len(rows)), dtype)
        place_in_bins(read_only(rows), *self._flat_cuts, bins)
        return BinnedTable(bins, cuts, axes)

    def in_values(self, tree: Tree, *, scale: float = 1.0) -> Tree:
        """Convert a tree in bins to a tree on values, its leaves multiplied by `scale`."""
        thresholds = tree.thresholds.copy()
        flat, starts = self._flat_cuts
        nodes = cut_nodes(tree)
        thresholds[nodes] = flat[starts[tree.columns[nodes]] + thresholds[nodes].astype(np.int64)]
        return replace(tree, thresholds=thresholds, values=tree.values * scale)

    def in_cells(self, tree: Tree) -> Tree:
        """Convert a tree on values, whose thresholds are cuts of this grid, to one in bins.

        Raises
        ------
        DataError
            If a threshold is no cut of its column.
        """
        thresholds = tree.thresholds.copy()
        for node in cut_nodes(tree):
            cuts = self.cuts[tree.columns[node]]
            place = int(np.searchsorted(cuts, thresholds[node]))
            if place == len(cuts) or cuts[place] != thresholds[node]:
                raise DataError(f"a tree divides column {tree.columns[node]} where the public grid has no cut")
            thresholds[node] = place
        return replace(tree, thresholds=thresholds)


def cut_nodes(tree: Tree) -> NDArray[np.int64]:
    """The nodes that split at a threshold, and not by categories."""
    return np.setdiff1d(np.flatnonzero(~tree.is_leaf), list(tree.left_categories))


def check_category_bounds(bounds: Sequence[tuple[float, float]], categorical: Sequence[int]) -> None:
    """Refuse bounds of categories that do not say how many there are."""
    for column in categorical:
        lower, upper = bounds[column]
        if not (lower == 0 and 1 <= upper < MAX_CATEGORIES - 1 and float(upper).is_integer()):
            raise ParameterError(
                f"a column of K categories needs the bounds (0, K - 1) for a K of at least 2; got ({lower}, {upper}). "
                "Nothing was released"
            )


def check_categories(rows: Values, bounds: Sequence[tuple[float, float]], categorical: Sequence[int]) -> None:
    """Refuse rows of shape ``(n_rows, n_columns)`` with anything but listed categories, or nothing, in these columns.

    Raises
    ------
    DataError
        Nothing was released.
    """
    for column in categorical:
        values = rows[:, column]
        if not (np.isnan(values) | np.isin(values, np.arange(bounds[column][1] + 1))).all():
            raise DataError(
                f"column {column} holds values that are not among its categories 0, 1, ..., {bounds[column][1]:.0f}. "
                "Nothing was released"
            )
