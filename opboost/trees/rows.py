"""Rows sorted by their node, with scores and gradients."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Bins, HistogramAxes, Mask, Nodes, Scores, Sums, Values
from opboost.trees.constraints import NodeLimits
from opboost.trees.kernels.division import add_children_to_scores, add_to_scores, divide_nodes, number_rows
from opboost.trees.kernels.following import follow_trees
from opboost.trees.kernels.growth import grow_levels
from opboost.trees.kernels.histograms import IN_ORDER, build_histograms, sum_nodes
from opboost.trees.kernels.threads import n_threads
from opboost.trees.splitting import GreedySplitter, Splits
from opboost.trees.tree import Tree

# Adds the trees that were taken out to the scores again, times a weight.
PutBack = Callable[[float], None]

# Nodes that there is room for from the start: those of a tree of depth 6.
_ROOM = 127

# Bytes of a column's bins in an area: those of four columns stay in the cache while the rows of all nodes are summed.
_AREA_BYTES = 1 << 16

# Rows of the smallest area: a table of fewer for each thread has fewer areas.
_FEWEST_ROWS = 1 << 9


class SortedRows:
    """Partition of a binned table's rows into the nodes of one tree after the other, area by area.

    An area is a part of the table whose rows stay there: a node has some of them in each, in the order of the table. So
    what a thread reads and writes lies close together, and no two threads move the same rows.

    The latest splits are carried out when somebody asks for the rows of their children. Nobody does for the last level
    of a tree, whose leaf values go to the scores straight from the parents.

    Parameters
    ----------
    bins : ndarray of uint8 or uint16, shape (n_columns, n_rows)
    scores : ndarray of float32 or float64, shape (n_outputs, n_rows)
        At the start, in the order of the table; leaf values are added to them.

    Attributes
    ----------
    scores : ndarray of float32 or float64, shape (n_outputs, n_rows)
    gradients : ndarray of int64, shape (n_rows,)
        Packed; at the start of a tree in the order of the table.
    """

    def __init__(self, bins: Bins, scores: Scores) -> None:
        n_rows = bins.shape[1]
        self._bins = bins
        self.scores = scores
        self._n_threads = n_threads()
        self._areas = _areas(n_rows, bins.itemsize, self._n_threads)
        # Rows that change places wait behind all others.
        n_places = n_rows + self._n_threads * int(np.diff(self._areas).max())
        self._numbers, self._gradients = np.empty(n_places, np.uint32), np.empty(n_places, np.int64)
        self.gradients = self._gradients[:n_rows]
        self._begins, self._ends = np.empty((2, _ROOM, len(self._areas) - 1), dtype=np.int64)
        self._waiting: Splits | None = None
        self._is_divided = False

    def copied(self, scores: Scores) -> SortedRows:
        """Independent copy with these scores; bins are shared."""
        twin = copy.copy(self)
        twin.scores, twin._numbers, twin._gradients = scores, self._numbers.copy(), self._gradients.copy()
        twin.gradients = twin._gradients[: len(self.gradients)]
        twin._begins, twin._ends = self._begins.copy(), self._ends.copy()
        return twin

    def start_tree(self) -> None:
        """Put all rows into the root, in the order of the table."""
        number_rows(self._numbers[: len(self.gradients)])
        self._begins[0], self._ends[0] = self._areas[:-1], self._areas[1:]
        self._waiting = None
        self._is_divided = False

    def of(self, node: int) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Numbers and packed gradients of a node's rows, in the order of the table."""
        self._divide()
        areas = [slice(begin, end) for begin, end in zip(self._begins[node], self._ends[node], strict=True)]
        numbers, gradients = ([array[area] for area in areas] for array in (self._numbers, self._gradients))
        return np.concatenate(numbers), np.concatenate(gradients)

    def write_histograms(self, nodes: Nodes, out: Sums, *, offsets: NDArray[np.int64]) -> None:
        """Write the sums of g and h per bin to `out`."""
        self._divide()
        rows = self._numbers if self._is_divided else IN_ORDER
        begins, ends = self._begins[nodes], self._ends[nodes]
        build_histograms(self._bins, rows, self._gradients, begins, ends, offsets, n_threads(), out)

    def grow_levels(
        self, splitter: GreedySplitter, limits: NodeLimits, max_depth: int, room: Sequence[Sums], tree: NDArray[Any]
    ) -> int:
        """Grow a tree level by level; the splits of the last one wait. See `LocalHolder.grow_levels`."""
        self._reserve(len(tree))
        n_nodes, n_divided, nodes, columns, cuts, missing_left, goes_left, lefts = grow_levels(
            self._bins,
            self._numbers,
            self._gradients,
            self._begins,
            self._ends,
            splitter.rules(limits),
            splitter.least_gain,
            max_depth,
            self._at_most_threads(),
            *room,
            tree,
        )
        self._is_divided = n_divided > 0
        splits = Splits(nodes, columns, cuts, missing_left, goes_left, lefts, lefts + np.int32(1))
        self._waiting = splits if len(nodes) else None
        return int(n_nodes)

    def totals(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) per node, shape ``(n_nodes, 2)``."""
        out = np.empty((len(nodes), 2), dtype=np.int64)
        self._divide()
        sum_nodes(self._gradients, self._begins[nodes], self._ends[nodes], out)
        return out

    def divide(self, splits: Splits) -> None:
        """Move the rows of split nodes to their children."""
        self._divide()
        self._waiting = splits

    def finish_tree(self, tree: Tree, output: int) -> None:
        """Add each leaf's value to the scores of its rows."""
        scores, values, splits, n_placed = self.scores[output], tree.values, self._waiting, tree.n_nodes
        if splits is not None:
            n_placed = splits.lefts[0]
            add_children_to_scores(
                self._bins,
                scores,
                self._numbers,
                self._begins,
                self._ends,
                splits.nodes,
                splits.columns,
                splits.goes_left,
                splits.lefts,
                splits.rights,
                values,
                n_threads(),
            )
        leaves = (tree.columns[:n_placed] < 0).nonzero()[0]
        if len(leaves):
            begins, ends = self._begins[leaves], self._ends[leaves]
            add_to_scores(scores, self._numbers, begins, ends, values[leaves], n_threads())

    def _reserve(self, n_nodes: int) -> None:
        """Have room for so many nodes."""
        missing = n_nodes - len(self._begins)
        if missing > 0:
            more = np.empty((missing + len(self._begins), self._begins.shape[1]), np.int64)
            self._begins, self._ends = np.concatenate([self._begins, more]), np.concatenate([self._ends, more])

    def _at_most_threads(self) -> int:
        """Threads that there is room for behind the rows."""
        return min(n_threads(), self._n_threads)

    def _divide(self) -> None:
        if self._waiting is None:
            return
        splits, self._waiting, self._is_divided = self._waiting, None, True
        # Children are numbered in order, left before right, behind all nodes before them.
        self._reserve(int(splits.rights[-1]) + 1)
        divide_nodes(
            self._bins,
            self._numbers,
            self._gradients,
            self._begins,
            self._ends,
            splits.nodes,
            splits.columns,
            splits.goes_left,
            splits.lefts,
            self._at_most_threads(),
        )


def _areas(n_rows: int, bin_bytes: int, n_threads: int) -> NDArray[np.int64]:
    """Boundaries of areas of the table, equally many for each thread unless rows are few."""
    n_areas = n_threads * math.ceil(n_rows * bin_bytes / (n_threads * _AREA_BYTES))
    n_areas = max(1, min(n_areas, n_rows // _FEWEST_ROWS))
    return n_rows * np.arange(n_areas + 1) // n_areas


def add_tree(scores: Scores, bins: Bins, axes: HistogramAxes, tree: Tree) -> None:
    """Add the leaves' values of a finished tree in bins to the scores of all rows, shape ``(n_rows,)``."""
    _add_finished(scores[None], bins, axes, [(0, tree)])


def take_out(scores: Scores, bins: Bins, axes: HistogramAxes, trees: Sequence[tuple[int, Tree]]) -> PutBack:
    """Take finished trees in bins, each with its output, out of the scores of all rows."""
    part = np.zeros_like(scores)
    _add_finished(part, bins, axes, trees)
    np.subtract(scores, part, out=scores)

    def put_back(weight: float) -> None:
        np.add(scores, weight * part, out=scores)

    return put_back


def _add_finished(scores: Scores, bins: Bins, axes: HistogramAxes, trees: Sequence[tuple[int, Tree]]) -> None:
    nothing, places = np.empty((0, scores.shape[1]), np.uint8), np.full(axes.n_columns, -1, np.int32)
    add_trees(scores, nothing, bins, places, [(output, FollowedTree.of(tree, axes)) for output, tree in trees])


def add_trees(
    scores: Scores, bins: Bins, fixed: Bins, places: NDArray[np.int32], trees: Sequence[tuple[int, FollowedTree]]
) -> None:
    """Add the leaves' values of trees, each with its output, to the scores; for the arrays see `follow_trees`."""
    if not trees:
        return
    outputs, followed = zip(*trees, strict=True)
    follow_trees(
        bins,
        fixed,
        places,
        np.array(outputs),
        np.cumsum([len(tree.inner) for tree in followed]),
        np.concatenate([tree.inner for tree in followed]),
        np.concatenate([tree.sets for tree in followed]),
        np.cumsum([len(tree.values) for tree in followed]),
        np.concatenate([tree.values for tree in followed]),
        scores,
    )


@dataclass(frozen=True, slots=True, eq=False)
class FollowedTree:
    """A tree in bins as `follow_trees` walks it.

    Attributes
    ----------
    inner : ndarray of int32, shape (n_inner, 6)
    sets : ndarray of bool, shape (n_sets, most bins)
    values : ndarray of float64, shape (n_nodes,)
    """

    inner: NDArray[np.int32]
    sets: Mask
    values: Values

    @classmethod
    def of(cls, tree: Tree, axes: HistogramAxes) -> FollowedTree:
        """The walk of a tree whose thresholds are cuts of these axes."""
        nodes = (~tree.is_leaf).nonzero()[0]
        columns = tree.columns[nodes]
        cuts, missing_left = tree.thresholds[nodes].astype(np.int32), tree.missing_left[nodes]
        lefts, rights = tree.lefts[nodes], tree.rights[nodes]
        # A cut before all bins of values becomes one behind them, its children exchanged.
        is_before = cuts < 0
        cuts = np.where(is_before, axes.sizes[columns] - 2, cuts)
        # Behind the cut lie the values' bins that go right, and the missing bin.
        spans = axes.sizes[columns] - 1 - cuts - (missing_left ^ is_before)
        inner = np.empty((len(nodes), 6), np.int32)
        inner[:, 0], inner[:, 1], inner[:, 2], inner[:, 3] = nodes, columns, cuts, spans
        inner[:, 4], inner[:, 5] = np.where(is_before, rights, lefts), np.where(is_before, lefts, rights)
        sets = np.zeros((len(tree.left_categories), axes.largest), np.bool_)
        for goes_left, node in zip(sets, sorted(tree.left_categories), strict=True):
            k = int(np.searchsorted(nodes, node))
            goes_left[list(tree.left_categories[node])] = True
            goes_left[axes.sizes[columns[k]] - 1] = tree.missing_left[node]
            inner[k, 3:] = -1, tree.lefts[node], tree.rights[node]
        return cls(inner, sets, tree.values)
