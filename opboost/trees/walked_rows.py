"""Rows routed through a complete tree in one pass, once its shape is known."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Bins, HistogramAxes, Nodes, Sums, Values
from opboost.errors import DataError
from opboost.trees.complete import MOST_LEVELS
from opboost.trees.kernels.histograms import IN_ORDER, build_histograms
from opboost.trees.kernels.threads import n_threads
from opboost.trees.kernels.walk import RowNodes, add_leaves, sum_leaves, walk_rows
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

_NO_NODES = np.zeros(0, np.int32)


@dataclass(slots=True)
class LastWalk:
    """Leaves in which the rows ended on their last walk, kept because trees of several outputs often share a shape.

    Attributes
    ----------
    places : ndarray of uint8 or uint16, shape (n_rows,)
        Nodes; never written to again.
    tests : ndarray of int64, shape (3, n_inner), optional
        Columns, cuts and spans of the tree, if there was one.
    """

    places: RowNodes
    tests: NDArray[np.int64] | None = None


class WalkedRows:
    """Counterpart of `SortedRows` for complete trees of which only the leaves' sums are asked for.

    All nodes of a level split, level by level, and the last level alone is asked for; and histograms of the root.

    Parameters
    ----------
    bins : ndarray of uint8 or uint16, shape (n_columns, n_rows)
    axes : HistogramAxes
        Splits are cuts between ordered bins, or part one category from all others and the missing bin.
    scores : ndarray of float64, shape (n_rows,)
        At the start; leaf values are added to them.

    Attributes
    ----------
    scores : ndarray of float64, shape (n_rows,)
    gradients : ndarray of int64, shape (n_rows,)
        Packed.

    Notes
    -----
    Several trees may be started before the first of them is finished; they are finished in the same order.
    """

    def __init__(self, bins: Bins, axes: HistogramAxes, scores: Values) -> None:
        n_rows = bins.shape[1]
        self._bins = bins
        self._axes = axes
        self.scores = scores
        self.gradients = np.empty(n_rows, dtype=np.int64)
        self._last = LastWalk(np.zeros(n_rows, dtype=np.uint8))
        self._places: RowNodes = self._last.places
        self._levels: list[Splits] = []
        self._is_walked = False
        self._is_open = False
        self._waiting: deque[RowNodes] = deque()

    def copied(self, scores: Values) -> WalkedRows:
        """Independent copy with these scores; bins are shared."""
        twin = WalkedRows(self._bins, self._axes, scores)
        twin.gradients, twin._places = self.gradients.copy(), self._places
        twin._levels, twin._waiting = self._levels.copy(), self._waiting.copy()
        twin._is_walked, twin._is_open = self._is_walked, self._is_open
        return twin

    def share_walks(self, other: WalkedRows) -> None:
        """Take the places of the same rows of the same table in another holder, while its trees are these."""
        self._last = other._last

    def start_tree(self) -> None:
        """Put all rows into the root."""
        self._set_aside()
        self._levels = []
        self._is_walked = False
        self._is_open = True

    def in_other_bins(self, bins: Bins, axes: HistogramAxes) -> WalkedRows:
        """The same rows in other bins from the next tree on, with the trees that wait for their values."""
        self._set_aside()
        rows = WalkedRows(bins, axes, self.scores)
        rows.gradients, rows._waiting = self.gradients, self._waiting
        return rows

    def _set_aside(self) -> None:
        """Keep the leaves in which the rows are, if the values of their tree are still to come."""
        if self._is_open:
            self._walk()
            self._waiting.append(self._places)
            self._is_open = False

    def divide(self, splits: Splits) -> None:
        """Note the splits of the next level."""
        first = 2 ** len(self._levels) - 1
        if not np.array_equal(splits.nodes, np.arange(first, 2 * first + 1)):
            raise DataError("rows walk through complete trees only, whose levels split as a whole")
        self._levels.append(splits)
        self._is_walked = False

    def write_histograms(self, nodes: Nodes, out: Sums, *, offsets: NDArray[np.int64]) -> None:
        """Write the sums of g and h per bin to `out`, of the root alone."""
        if self._levels or len(nodes) != 1:
            raise DataError("rows that walk have histograms at the root only")
        n_rows = len(self.gradients)
        begins, ends = np.zeros((1, 1), np.int64), np.array([[n_rows]])
        build_histograms(self._bins, IN_ORDER, self.gradients, begins, ends, offsets, n_threads(), out)

    def totals(self, nodes: NDArray[Any]) -> Sums:
        """Sums of (g, h) per leaf of the tree so far, shape ``(n_nodes, 2)``."""
        depth = len(self._levels)
        n_inner = 2**depth - 1
        if (nodes < n_inner).any():
            raise DataError("only the leaves' sums can be had of rows that walk")
        if depth > MOST_LEVELS:
            raise DataError(f"rows walk through trees of depth {MOST_LEVELS} at most; got {depth}")
        sums = np.empty((2 * n_inner + 1, 2), dtype=np.int64)
        columns, cuts, missing_left = (
            np.concatenate([_NO_NODES, *(getattr(level, name) for level in self._levels)])
            for name in ("columns", "cuts", "missing_left")
        )
        # Behind the cut lie the values' bins that go right, and the missing bin. Behind a category lie all others: the
        # walk counts on from the highest number of a bin at 0.
        spans = self._axes.sizes[columns] - 1 - cuts - missing_left
        highest = np.iinfo(self._bins.dtype).max
        spans = np.where(self._axes.is_categorical[columns], highest, np.minimum(spans, highest - cuts))
        tests, last = np.stack([columns, cuts, spans]), self._last
        if last.tests is not None and np.array_equal(tests, last.tests):
            sum_leaves(self.gradients, last.places, n_inner, sums)
        else:
            n_rows = len(self.gradients)
            places = np.empty(n_rows, np.uint8) if 2 * n_inner <= 255 else np.empty(n_rows, np.uint16)
            walk_rows(self._bins, self.gradients, columns, cuts, spans, depth, places, sums)
            # Both or neither: a walk that ends early leaves places that are no nodes.
            last.places, last.tests = places, tests
        self._places, self._is_walked = last.places, True
        return sums[nodes]

    def finish_tree(self, tree: Tree) -> None:
        """Add each leaf's value to the scores of its rows."""
        if self._waiting:
            add_leaves(self.scores, self._waiting.popleft(), tree.values)
            return
        self._walk()
        add_leaves(self.scores, self._places, tree.values)
        self._is_open = False

    def _walk(self) -> None:
        if not self._is_walked:
            self.totals(np.empty(0, np.int32))
