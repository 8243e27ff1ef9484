"""Splits chosen by the exponential mechanism among all thresholds of a column, rather than a few cuts of a grid.

S-GBDT (Kirschte et al., 2023), algorithm 2; `opboost.privacy.thresholds` has the law. Thresholds are 32,768 points
between public bounds, so that a column never has more distinct points than bins hold, whatever the data. Inside, rows
lie in bins of their own points, so that sums per bin give the gain of every bucket between two neighbouring values.
What leaves is the threshold, drawn evenly inside the bucket, and never the bucket. All thresholds of a column weigh as
much as one category.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Nodes, Values
from opboost.errors import ParameterError
from opboost.horizontal.rows.public_grid import check_categories, check_category_bounds
from opboost.horizontal.splits.exponential_splits import ExponentialRule, category_gains, split_gains
from opboost.privacy.selection import ExponentialMechanism
from opboost.privacy.thresholds import Buckets, ThresholdGrid, bucket_extents, choose_point
from opboost.rng import BitSource
from opboost.trees.binning import BinnedTable
from opboost.trees.complete import Cuts
from opboost.trees.holder import RowHolder
from opboost.trees.losses import Grid
from opboost.trees.tree import Tree


@dataclass(frozen=True, slots=True)
class GridlessColumns:
    """Columns between public bounds, with every point in between as a threshold.

    Parameters
    ----------
    bounds : sequence of (lower, upper)
        Public, one pair per column.
    n_bits : int
        ``2**n_bits`` thresholds per column, at most 15 bits.
    categorical : tuple of int
        Columns of categories 0, 1, 2, ... up to the upper bound, each a point that is parted from the others.
    """

    bounds: Sequence[tuple[float, float]]
    n_bits: int = 15
    categorical: tuple[int, ...] = ()
    scales: tuple[ThresholdGrid, ...] = field(init=False)

    def __post_init__(self) -> None:
        if not 1 <= self.n_bits <= 15:
            raise ParameterError(f"columns without a grid have thresholds of 1 to 15 bits; got {self.n_bits}")
        scales = tuple(ThresholdGrid(lower=low, upper=up, n_bits=self.n_bits) for low, up in self.bounds)
        object.__setattr__(self, "scales", scales)
        check_category_bounds(self.bounds, self.categorical)

    def place(self, rows: Values) -> PointTable:
        """Put rows of shape ``(n_rows, n_columns)`` into bins of their points; NaN is missing."""
        check_categories(rows, self.bounds, self.categorical)
        is_missing = np.isnan(rows)
        points = [
            scale.points(np.where(lost, scale.lower, column))
            for scale, column, lost in zip(self.scales, rows.T, is_missing.T, strict=True)
        ]
        distinct = [np.unique(each[~lost]) for each, lost in zip(points, is_missing.T, strict=True)]
        for column in self.categorical:
            distinct[column] = np.arange(self.bounds[column][1] + 1).astype(np.int64)
        # An empty bin before the first point and one behind the last: nobody, or everybody, may go left.
        n_bins = max(len(each) for each in distinct) + 2
        bins: Any = np.empty((len(points), len(rows)), np.uint8 if n_bins < 255 else np.uint16)
        for column, (each, own) in enumerate(zip(distinct, points, strict=True)):
            is_category = column in self.categorical
            places = np.nan_to_num(rows[:, column]) if is_category else np.searchsorted(each, own) + 1
            bins[column] = np.where(is_missing[:, column], n_bins, places)
        axes = HistogramAxes.from_bin_counts(
            [n_bins] * len(points), [column in self.categorical for column in range(len(points))]
        )
        cuts = tuple(each.astype(np.float64) for each in distinct)
        return PointTable(BinnedTable(bins, cuts, axes), tuple(distinct), 1 << self.n_bits)

    def in_values(self, tree: Tree, *, scale: float = 1.0) -> Tree:
        """A tree on points as one on values, its leaves multiplied by `scale`."""
        thresholds = tree.thresholds.copy()
        for node in _cut_nodes(tree):
            thresholds[node] = self.scales[tree.columns[node]].thresholds(thresholds[node])
        return replace(tree, thresholds=thresholds, values=tree.values * scale)


@dataclass(frozen=True, slots=True)
class PointTable:
    """Rows in bins of their own points: as secret as the data.

    Attributes
    ----------
    table : BinnedTable
    distinct : tuple of ndarray of int64
        The points of each column's rows, ascending; the k-th one's rows are in bin k + 1. Of a column of categories,
        all categories, each of which is its bin.
    n_points : int
    """

    table: BinnedTable
    distinct: tuple[NDArray[np.int64], ...]
    n_points: int

    def in_bins(self, tree: Tree) -> Tree:
        """A tree on points as one on these bins: who lies at or below a point lies in a bin up to the cut."""
        thresholds = tree.thresholds.copy()
        for node in _cut_nodes(tree):
            distinct = self.distinct[tree.columns[node]]
            thresholds[node] = np.searchsorted(distinct, thresholds[node], side="right")
        return replace(tree, thresholds=thresholds)


class GridlessRule:
    """One split per node, by the gain of `opboost.horizontal.splits.exponential_splits`, among all points.

    Parameters
    ----------
    placed : PointTable
    grid : Grid
    reg_lambda : float
    mechanism : ExponentialMechanism
        For one level: its nodes share no record.
    holder : RowHolder
        Whose answers are exact.
    rng : BitSource

    Notes
    -----
    Privacy: ``mechanism.epsilon`` per level for a range that covers the gain (`private_splits.gain_range`): a point's
    gain is that of the real split at its threshold, and every point is a candidate whatever the data.
    """

    def __init__(
        self,
        placed: PointTable,
        grid: Grid,
        *,
        reg_lambda: float,
        mechanism: ExponentialMechanism,
        holder: RowHolder,
        rng: BitSource,
    ) -> None:
        if not reg_lambda >= 0:
            raise ParameterError(f"reg_lambda must be at least 0; got {reg_lambda}")
        self._placed = placed
        self._grid = grid
        self._reg_lambda = reg_lambda
        self._mechanism = mechanism
        self._holder = holder
        self._rng = rng
        self._points: dict[int, int] = {}

    def start_tree(self) -> None:
        self._points = {}

    def choose(self, nodes: Nodes, holder: RowHolder) -> Cuts:
        """Choose one split per node. The holder that is passed releases its answers, and is not asked."""
        missing_left = self._rng.words(len(nodes)) >> np.uint64(63) == 0
        columns, cuts = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
        for i, node in enumerate(nodes.tolist()):
            buckets = self.buckets(node, missing_left[i : i + 1])
            column, point = choose_point(self._mechanism, buckets, rng=self._rng)
            self._points[node] = point
            columns[i] = column
            is_category = self._placed.table.axes.is_categorical[column]
            cuts[i] = point if is_category else np.searchsorted(self._placed.distinct[column], point, side="right")
        return Cuts(columns, cuts, missing_left & ~self._placed.table.axes.is_categorical[columns])

    def buckets(self, node: int, missing_left: Mask) -> list[Buckets]:
        """The candidates of a node with their gains, per column; as secret as the data."""
        axes, n_points = self._placed.table.axes, self._placed.n_points
        histograms = np.zeros((1, 2, axes.n_bins), dtype=np.int64)
        self._holder.add_histograms(np.array([node], np.int32), histograms)
        gains = split_gains(histograms, missing_left, int(axes.sizes[0]), self._grid, self._reg_lambda)[0]
        found = []
        for column, (distinct, utilities) in enumerate(zip(self._placed.distinct, gains, strict=True)):
            if axes.is_categorical[column]:
                cells = histograms[:, :, axes.offsets[column] : axes.offsets[column + 1]]
                of_each = category_gains(cells, self._grid, self._reg_lambda)[0, : len(distinct)]
                found.append(
                    Buckets(starts=distinct, widths=np.ones_like(distinct), utilities=of_each, weight_per_point=1.0)
                )
                continue
            starts, widths = bucket_extents(distinct, begin=0, end=n_points)
            found.append(
                Buckets(starts=starts, widths=widths, utilities=utilities[: len(starts)], weight_per_point=1 / n_points)
            )
        return found

    def in_points(self, tree: Tree) -> Tree:
        """The tree just grown with the points that were chosen, in place of cuts between bins."""
        thresholds = tree.thresholds.copy()
        for node, point in self._points.items():
            thresholds[node] = point
        return replace(tree, thresholds=thresholds)


def _cut_nodes(tree: Tree) -> list[int]:
    """The nodes that split at a threshold."""
    return [node for node in np.flatnonzero(~tree.is_leaf).tolist() if node not in tree.left_categories]


def exponential_rule(
    placed: BinnedTable | PointTable,
    grid: Grid,
    *,
    reg_lambda: float,
    mechanism: ExponentialMechanism,
    holder: RowHolder,
    rng: BitSource,
) -> ExponentialRule | GridlessRule:
    """The rule for rows as they were placed: in cells of a public grid, or in bins of their own points."""
    if isinstance(placed, PointTable):
        return GridlessRule(placed, grid, reg_lambda=reg_lambda, mechanism=mechanism, holder=holder, rng=rng)
    return ExponentialRule(placed.axes, grid, reg_lambda=reg_lambda, mechanism=mechanism, holder=holder, rng=rng)
