"""Exponential mechanism over all thresholds of a column, rather than the cuts of a grid.

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
from opboost.horizontal.rows.public_grid import check_categories, check_category_bounds, cut_nodes
from opboost.horizontal.splits.exponential_splits import ExponentialRule, ScoredRule, category_gains, split_gains
from opboost.privacy.selection import ExponentialMechanism
from opboost.privacy.thresholds import Buckets, ThresholdGrid, bucket_extents, choose_point
from opboost.rng import BitSource
from opboost.trees.binning import BinnedTable
from opboost.trees.complete import Cuts
from opboost.trees.holder import RowHolder
from opboost.trees.losses import GradientGrid
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
        """Convert a tree on points to a tree on values, its leaves multiplied by `scale`."""
        thresholds = tree.thresholds.copy()
        for node in cut_nodes(tree):
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
        """Convert a tree on points to a tree on these bins."""
        thresholds = tree.thresholds.copy()
        for node in cut_nodes(tree):
            distinct = self.distinct[tree.columns[node]]
            thresholds[node] = np.searchsorted(distinct, thresholds[node], side="right")
        return replace(tree, thresholds=thresholds)


@dataclass(frozen=True, kw_only=True)
class GridlessRule(ScoredRule):
    """One split per node, among all points of every column.

    Parameters
    ----------
    placed : PointTable

    Notes
    -----
    Privacy: ``mechanism.epsilon`` per level for a range that covers the gain (`exponential_splits.gain_range`): a
    point's gain is that of the real split at its threshold, and every point is a candidate whatever the data.
    """

    placed: PointTable
    _points: dict[int, int] = field(init=False, default_factory=dict)

    def start_tree(self) -> None:
        self._points.clear()

    def choose(self, nodes: Nodes, holder: RowHolder) -> Cuts:
        """Choose one split per node. The holder that is passed releases its answers, and is not asked."""
        missing_left, is_categorical = self.missing_left(len(nodes)), self.placed.table.axes.is_categorical
        columns, cuts = np.empty(len(nodes), np.int32), np.empty(len(nodes), np.int32)
        for i, node in enumerate(nodes.tolist()):
            buckets = self.buckets(node, missing_left[i : i + 1])
            column, point = choose_point(self.mechanism, buckets, rng=self.rng)
            self._points[node] = point
            columns[i] = column
            place = point if is_categorical[column] else np.searchsorted(self.placed.distinct[column], point, "right")
            cuts[i] = place
        return Cuts(columns, cuts, missing_left & ~is_categorical[columns])

    def buckets(self, node: int, missing_left: Mask) -> list[Buckets]:
        """The candidates of a node with their gains, per column; as secret as the data."""
        axes, n_points = self.placed.table.axes, self.placed.n_points
        histograms = np.empty((1, 2, axes.n_bins), dtype=np.int64)
        self.holder.write_histograms(np.array([node], np.int32), histograms)
        gains = split_gains(histograms, missing_left, int(axes.sizes[0]), self.grid, self.reg_lambda)[0]
        found = []
        for column, (distinct, utilities) in enumerate(zip(self.placed.distinct, gains, strict=True)):
            if axes.is_categorical[column]:
                cells = histograms[:, :, axes.offsets[column] : axes.offsets[column + 1]]
                of_each = category_gains(cells, self.grid, self.reg_lambda)[0, : len(distinct)]
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


def exponential_rule(
    placed: BinnedTable | PointTable,
    grid: GradientGrid,
    *,
    reg_lambda: float,
    mechanism: ExponentialMechanism,
    holder: RowHolder,
    rng: BitSource,
) -> ExponentialRule | GridlessRule:
    """Make the split rule for rows in cells of a public grid, or in bins of their own points."""
    shared: dict[str, Any] = {"reg_lambda": reg_lambda, "mechanism": mechanism, "holder": holder, "rng": rng}
    if isinstance(placed, PointTable):
        return GridlessRule(placed=placed, grid=grid, **shared)
    return ExponentialRule(axes=placed.axes, grid=grid, **shared)
