"""The seam: who holds rows and labels, and what the rest of the core may ask of them.

The grower and the boosting loop number nodes and ask for sums; they see neither rows nor labels. Sums are integers on
the loss's grid, so the answers do not depend on how the rows are divided among holders.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums, Values
from opboost.errors import DataError
from opboost.trees.binning import BinnedTable
from opboost.trees.kernels import BLOCK, add_to_scores, build_histograms, divide_rows, sum_nodes
from opboost.trees.losses import Grid, Loss
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree


class RowHolder(Protocol):
    """What the core asks of whoever holds the rows. Node 0 is the root that holds them all."""

    def start_tree(self, output: int) -> None:
        """Begin a tree for this output; for output 0, with fresh gradients at the current scores."""

    def histograms(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) per bin, shape ``(n_nodes, n_bins, 2)``."""

    def totals(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) per node, shape ``(n_nodes, 2)``."""

    def divide(self, splits: Splits) -> None:
        """Move the rows of split nodes to their children."""

    def finish_tree(self, tree: Tree, learning_rate: float) -> None:
        """Add ``learning_rate`` times each leaf's value to the scores of its rows."""


class LocalHolder:
    """Rows in this process.

    Parameters
    ----------
    table : BinnedTable
    labels, weights : ndarray of float64, shape (n_rows,)
    loss : Loss
    grid : Grid
        One grid for all holders of a model.
    initial_scores : ndarray of float64, shape (n_outputs,)
    subsample : float
        Share of the rows that each round looks at, drawn row by row.
    rng : numpy Generator
        For `subsample` only; never for privacy.
    """

    def __init__(
        self,
        table: BinnedTable,
        labels: Values,
        weights: Values,
        *,
        loss: Loss,
        grid: Grid,
        initial_scores: Values,
        subsample: float = 1.0,
        rng: np.random.Generator,
    ) -> None:
        n_rows = table.bins.shape[1]
        if labels.shape != (n_rows,) or weights.shape != (n_rows,):
            raise DataError(f"{n_rows} rows need as many labels and weights; got {labels.shape} and {weights.shape}")
        self._table = table
        self._labels = labels
        self._weights = weights
        self._loss = loss
        self._grid = grid
        self._subsample = subsample
        self._rng = rng
        self._scores = np.repeat(initial_scores[:, None], n_rows, axis=1)
        self._round_gradients = np.empty((0, n_rows, 2), dtype=np.int32)
        self._output = 0
        self._rows = np.empty(n_rows, dtype=np.int32)
        self._gradients = np.empty((n_rows, 2), dtype=np.int32)
        self._spare_rows = np.empty_like(self._rows)
        self._spare_gradients = np.empty_like(self._gradients)
        self._begins = np.zeros(1, dtype=np.int64)
        self._ends = np.zeros(1, dtype=np.int64)

    def start_tree(self, output: int) -> None:
        if output == 0:
            self._round_gradients = self._loss.gradients(self._scores, self._labels, self._weights, self._grid)
            if self._subsample < 1.0:
                is_left_out = self._rng.random(len(self._rows)) >= self._subsample
                self._round_gradients[:, is_left_out] = 0
        self._output = output
        self._rows[:] = np.arange(len(self._rows), dtype=np.int32)
        self._gradients[:] = self._round_gradients[output]
        self._begins = np.zeros(1, dtype=np.int64)
        self._ends = np.full(1, len(self._rows), dtype=np.int64)

    def histograms(self, nodes: Nodes) -> Sums:
        axes = self._table.axes
        out = np.zeros((len(nodes), axes.n_bins, 2), dtype=np.int64)
        begins, ends = self._begins[nodes], self._ends[nodes]
        build_histograms(self._table.bins, self._rows, self._gradients, begins, ends, axes.offsets, out)
        return out

    def totals(self, nodes: Nodes) -> Sums:
        out = np.empty((len(nodes), 2), dtype=np.int64)
        sum_nodes(self._gradients, self._begins[nodes], self._ends[nodes], out)
        return out

    def divide(self, splits: Splits) -> None:
        begins, ends = self._begins[splits.nodes], self._ends[splits.nodes]
        middles = np.empty_like(begins)
        offsets = self._table.axes.offsets
        missing_bins = offsets[splits.columns + 1] - offsets[splits.columns] - 1
        divide_rows(
            self._table.bins, self._rows, self._gradients, begins, splits.columns, splits.cuts, splits.missing_left,
            missing_bins, *_blocks(begins, ends), self._spare_rows, self._spare_gradients, middles,
        )  # fmt: skip
        n_nodes = max(len(self._begins), int(splits.rights.max()) + 1, int(splits.lefts.max()) + 1)
        self._begins = np.resize(self._begins, n_nodes)
        self._ends = np.resize(self._ends, n_nodes)
        self._begins[splits.lefts], self._ends[splits.lefts] = begins, middles
        self._begins[splits.rights], self._ends[splits.rights] = middles, ends

    def finish_tree(self, tree: Tree, learning_rate: float) -> None:
        leaves = np.flatnonzero(tree.is_leaf)
        values = learning_rate * tree.values[leaves]
        add_to_scores(self._scores[self._output], self._rows, self._begins[leaves], self._ends[leaves], values)


class SummedHolders:
    """Several holders of disjoint rows, asked as one.

    Parameters
    ----------
    holders : list of RowHolder
        All on the same grid and histogram axes.
    """

    def __init__(self, holders: list[RowHolder]) -> None:
        self._holders = holders

    def start_tree(self, output: int) -> None:
        for holder in self._holders:
            holder.start_tree(output)

    def histograms(self, nodes: Nodes) -> Sums:
        return np.sum([holder.histograms(nodes) for holder in self._holders], axis=0)

    def totals(self, nodes: Nodes) -> Sums:
        return np.sum([holder.totals(nodes) for holder in self._holders], axis=0)

    def divide(self, splits: Splits) -> None:
        for holder in self._holders:
            holder.divide(splits)

    def finish_tree(self, tree: Tree, learning_rate: float) -> None:
        for holder in self._holders:
            holder.finish_tree(tree, learning_rate)


def _blocks(
    begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut every node's range into blocks: the node, the begin and the end of each."""
    n_blocks = np.maximum(-(-(ends - begins) // BLOCK), 1)
    nodes = np.repeat(np.arange(len(begins)), n_blocks)
    within = np.arange(len(nodes)) - np.repeat(np.cumsum(n_blocks) - n_blocks, n_blocks)
    block_begins = begins[nodes] + within * BLOCK
    return nodes, block_begins, np.minimum(block_begins + BLOCK, ends[nodes])
