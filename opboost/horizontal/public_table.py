"""Rows on a public grid: cells between public bounds, the same whatever the data.

Bins that follow the data (quantiles, midpoints) make the set of candidates a function of the records, which no noise
on the choice can hide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from opboost.arrays import HistogramAxes, Values
from opboost.errors import ParameterError
from opboost.trees.binning import BinnedTable
from opboost.trees.kernels.prediction import place_in_bins
from opboost.trees.tree import Tree


@dataclass(frozen=True, slots=True)
class PublicGrid:
    """Cells of equal width per column, between bounds that are not taken from the data.

    Parameters
    ----------
    bounds : sequence of (lower, upper)
        One pair per column, finite, lower < upper. Values beyond them fall into the outermost cells.
    n_cells : int
        Per column, 2 to 65535.
    given : tuple of ndarray, optional
        Cuts of each column in place of even ones, ascending. If they are not public, neither is anything grown on them.
    """

    bounds: Sequence[tuple[float, float]]
    n_cells: int
    given: tuple[Values, ...] | None = None

    def __post_init__(self) -> None:
        if not 2 <= self.n_cells <= 65535:
            raise ParameterError(f"a public grid needs between 2 and 65535 cells per column; got {self.n_cells}")
        for lower, upper in self.bounds:
            if not (np.isfinite([lower, upper, upper - lower]).all() and lower < upper):
                raise ParameterError(
                    f"bounds must be finite with lower < upper; got [{lower}, {upper}]. Nothing was released"
                )

    @property
    def axes(self) -> HistogramAxes:
        """Axes of the columns' histograms."""
        return HistogramAxes.from_bin_counts([self.n_cells] * len(self.bounds))

    @property
    def cuts(self) -> tuple[Values, ...]:
        """The edges between each column's cells, ascending."""
        if self.given is not None:
            return self.given
        shares = np.arange(1, self.n_cells) / self.n_cells
        return tuple(lower + (upper - lower) * shares for lower, upper in self.bounds)

    def place(self, rows: Values) -> BinnedTable:
        """Put rows of shape ``(n_rows, n_columns)`` into the cells; NaN is missing."""
        dtype: Any = np.uint8 if self.n_cells <= 255 else np.uint16
        bins: Any = np.empty((len(self.bounds), len(rows)), dtype)
        starts = np.arange(len(self.bounds) + 1) * (self.n_cells - 1)
        place_in_bins(np.ascontiguousarray(rows, np.float64), np.concatenate(self.cuts), starts, bins)
        return BinnedTable(bins, self.cuts, self.axes)

    def in_values(self, tree: Tree, *, scale: float = 1.0) -> Tree:
        """A tree in bins as one on values, its leaves multiplied by `scale`."""
        thresholds, cuts = tree.thresholds.copy(), np.stack(self.cuts)
        inner = np.flatnonzero(~tree.is_leaf)
        thresholds[inner] = cuts[tree.columns[inner], tree.thresholds[inner].astype(np.int64)]
        return replace(tree, thresholds=thresholds, values=tree.values * scale)
