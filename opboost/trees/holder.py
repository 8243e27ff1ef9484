"""The seam: who holds rows and labels, and what the rest of the core may ask of them.

The grower and the boosting loop number nodes and ask for sums; they see neither rows nor labels. Sums are integers on
the loss's grid, so the answers do not depend on how the rows are divided among holders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

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
        self._rows = np.empty((2, n_rows), dtype=np.uint32)
        self._gradients = np.empty((2, n_rows), dtype=np.int64)
        self._goes_left = np.empty(n_rows, dtype=np.uint8)
        self._nodes = _Places.root(n_rows)

    def start_tree(self, output: int) -> None:
        if output == 0:
            self._round_gradients = self._loss.gradients(self._scores, self._labels, self._weights, self._grid)
            if self._subsample < 1.0:
                is_left_out = self._rng.random(len(self._labels)) >= self._subsample
                self._round_gradients[:, is_left_out] = 0
        self._output = output
        n_rows = len(self._labels)
        self._rows[0] = np.arange(n_rows, dtype=np.uint32)
        self._gradients[0] = self._round_gradients[output].view(np.int64)[:, 0]
        self._nodes = _Places.root(n_rows)

    def histograms(self, nodes: Nodes) -> Sums:
        axes = self._table.axes
        out = np.zeros((len(nodes), axes.n_bins, 2), dtype=np.int64)
        build_histograms(self._table.bins, self._rows, self._gradients, *self._nodes.of(nodes), axes.offsets, out)
        return out

    def totals(self, nodes: Nodes) -> Sums:
        out = np.empty((len(nodes), 2), dtype=np.int64)
        sum_nodes(self._gradients, *self._nodes.of(nodes), out)
        return out

    def divide(self, splits: Splits) -> None:
        sides, begins, ends = self._nodes.of(splits.nodes)
        middles = np.empty_like(begins)
        offsets = self._table.axes.offsets
        missing_bins = offsets[splits.columns + 1] - offsets[splits.columns] - 1
        divide_rows(
            self._table.bins, self._rows, self._gradients, self._goes_left, sides, begins, splits.columns,
            splits.cuts, splits.missing_left, missing_bins, *_blocks(begins, ends), middles,
        )  # fmt: skip
        self._nodes = self._nodes.extended(splits.lefts, 1 - sides, begins, middles)
        self._nodes = self._nodes.extended(splits.rights, 1 - sides, middles, ends)

    def finish_tree(self, tree: Tree, learning_rate: float) -> None:
        leaves = np.flatnonzero(tree.is_leaf)
        values = learning_rate * tree.values[leaves]
        add_to_scores(self._scores[self._output], self._rows, *self._nodes.of(leaves), values)


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


@dataclass(frozen=True, slots=True)
class _Places:
    """Where each node's rows lie: side, first place and end; all arrays have shape ``(n_nodes,)``."""

    sides: NDArray[np.int64]
    begins: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def root(cls, n_rows: int) -> _Places:
        return cls(np.zeros(1, np.int64), np.zeros(1, np.int64), np.full(1, n_rows, np.int64))

    def of(self, nodes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        return self.sides[nodes], self.begins[nodes], self.ends[nodes]

    def extended(self, nodes: Nodes, *places: NDArray[np.int64]) -> _Places:
        """The same with further nodes."""
        arrays = []
        for known, new in zip((self.sides, self.begins, self.ends), places, strict=True):
            grown = np.zeros(max(len(known), int(nodes.max()) + 1), np.int64)
            grown[: len(known)] = known
            grown[nodes] = new
            arrays.append(grown)
        return _Places(*arrays)


def _blocks(
    begins: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut every node's range into blocks: the node, the begin and the end of each."""
    n_blocks = np.maximum(-(-(ends - begins) // BLOCK), 1)
    nodes = np.repeat(np.arange(len(begins)), n_blocks)
    within = np.arange(len(nodes)) - np.repeat(np.cumsum(n_blocks) - n_blocks, n_blocks)
    block_begins = begins[nodes] + within * BLOCK
    return nodes, block_begins, np.minimum(block_begins + BLOCK, ends[nodes])
