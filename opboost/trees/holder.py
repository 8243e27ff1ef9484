"""Row holders: the interface between growing trees and the place where the data are.

The grower and the boosting loop number nodes and ask for sums; they see neither rows nor labels. Sums are integers on
the loss's grid, so the answers do not depend on how the rows are divided among holders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Scores, Sums, Values
from opboost.errors import DataError
from opboost.trees.binning import BinnedTable
from opboost.trees.constraints import NodeLimits
from opboost.trees.losses import GradientGrid, Loss
from opboost.trees.losses.quantiles import weighted_quantile
from opboost.trees.rows import PutBack, SortedRows, add_tree, take_out
from opboost.trees.splitting import GreedySplitter, Splits
from opboost.trees.tree import Tree


class RowHolder(Protocol):
    """Interface of a row holder. Node 0 is the root that holds all rows."""

    def start_tree(self, output: int) -> None:
        """Begin a round's tree for this output; for output 0, with fresh gradients at the current scores.

        A holder of rows with a single output takes other numbers for further trees on the same gradients.
        """

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        """Write the sums of g and h per bin to `out`, shape ``(n_nodes, 2, n_bins)``."""

    def totals(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) per node, shape ``(n_nodes, 2)``."""

    def divide(self, splits: Splits) -> None:
        """Move the rows of split nodes to their children."""

    def finish_tree(self, tree: Tree) -> None:
        """Add each leaf's value to the scores of its rows."""


class ForwardingHolder:
    """A row holder that forwards every call to another one; subclasses override what they change.

    Parameters
    ----------
    holder : RowHolder
    """

    def __init__(self, holder: RowHolder) -> None:
        self._holder = holder

    def start_tree(self, output: int) -> None:
        self._holder.start_tree(output)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._holder.write_histograms(nodes, out)

    def totals(self, nodes: Nodes) -> Sums:
        return self._holder.totals(nodes)

    def divide(self, splits: Splits) -> None:
        self._holder.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._holder.finish_tree(tree)


class LocalHolder:
    """Row holder of rows in this process.

    Parameters
    ----------
    table : BinnedTable
    labels, weights : ndarray of float64, shape (n_rows,)
    loss : Loss
    grid : GradientGrid
        One grid for all holders of a model.
    initial_scores : ndarray of float64, shape (n_outputs,) or (n_outputs, n_rows)
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
        grid: GradientGrid,
        initial_scores: Values,
        subsample: float = 1.0,
        rng: np.random.Generator,
    ) -> None:
        n_rows = table.n_rows
        if len(labels) != n_rows or weights.shape != (n_rows,):
            raise DataError(f"{n_rows} rows need as many labels and weights; got {labels.shape} and {weights.shape}")
        self._table = table
        self._labels = labels
        self._weights = weights
        self._loss = loss
        self._grid = grid
        self._subsample = subsample
        self._rng = rng
        self._compute = loss.gradients_of(labels, weights, grid)
        self._rows = SortedRows(table.bins, repeated(initial_scores, n_rows, loss.score_type))
        # With a single output, the only copy is that of the rows.
        self._gradients = np.empty((loss.n_outputs if loss.n_outputs > 1 else 0, n_rows), dtype=np.int64)
        self._output = 0

    def start_tree(self, output: int) -> None:
        self._rows.start_tree()
        row_gradients = self._rows.gradients
        if output == 0:
            gradients = self._gradients if len(self._gradients) else row_gradients[None]
            self._compute(self._rows.scores, gradients)
            if self._subsample < 1.0:
                is_left_out = self._rng.random(len(self._labels)) >= self._subsample
                gradients[:, is_left_out] = 0
        if len(self._gradients):
            row_gradients[:] = self._gradients[output]
        self._output = output

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        self._rows.write_histograms(nodes, out, offsets=self._table.axes.offsets)

    def totals(self, nodes: Nodes) -> Sums:
        return self._rows.totals(nodes)

    def divide(self, splits: Splits) -> None:
        self._rows.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self._rows.finish_tree(tree, self._output)

    def grow_levels(
        self, splitter: GreedySplitter, limits: NodeLimits, max_depth: int, room: Sequence[Sums], tree: NDArray[Any]
    ) -> int:
        """Grow a tree level by level after `start_tree`, as its grower would by asking for one level after the other.

        Parameters
        ----------
        splitter : GreedySplitter
            Of numbers only.
        limits : NodeLimits
            Of all nodes.
        max_depth : int
        room : sequence of ndarray of int64, shape (n_nodes, 2, n_bins)
            For the histograms of every other level.
        tree : ndarray of NODE
            Gets the nodes.

        Returns
        -------
        int
            The number of nodes.
        """
        return self._rows.grow_levels(splitter, limits, max_depth, room, tree)

    def add_tree(self, tree: Tree, output: int) -> None:
        """Add the leaves' values of a tree that was grown before to the scores of all rows."""
        add_tree(self._rows.scores[output], self._table.bins, self._table.axes, tree)

    def take_out(self, trees: Sequence[tuple[int, Tree]]) -> PutBack:
        """Take trees, each with its output, out of the scores of all rows; returns what puts them back."""
        return take_out(self._rows.scores, self._table.bins, self._table.axes, trees)

    def with_quantiles(self, tree: Tree, learning_rate: float) -> Tree:
        """The tree, not finished yet, with the quantiles of its rows' residuals as leaves, for a loss that has them."""
        if not self._loss.leaf_quantiles:
            return tree
        leaves, values = np.flatnonzero(tree.is_leaf), tree.values.copy()
        residuals = self._labels - self._rows.scores[self._output]
        for leaf in leaves.tolist():
            numbers, gradients = self._rows.of(leaf)
            rows = numbers[gradients != 0]
            if len(rows):
                alpha = self._loss.leaf_quantiles[self._output]
                values[leaf] = learning_rate * weighted_quantile(residuals[rows], self._weights[rows], alpha)
        return replace(tree, values=values)


def starting_scores(table: BinnedTable, base_scores: Values, margins: Values | float) -> Values:
    """Scores at the start: those of all rows, shape ``(n_outputs,)``, or row by row where there are margins.

    A table that holds its rows several times, one version after the other, starts each version so.
    """
    if isinstance(margins, float):
        return base_scores
    return np.tile(base_scores[:, None] + margins, (1, table.n_rows // margins.shape[1]))


def repeated(initial_scores: Values, n_rows: int, dtype: type[np.floating]) -> Scores:
    """Scores of shape ``(n_outputs, n_rows)``, the same for all rows unless they are given row by row."""
    if initial_scores.ndim == 2:
        return np.array(initial_scores, dtype, order="C")
    return np.repeat(initial_scores.astype(dtype)[:, None], n_rows, axis=1)


class SummedHolders:
    """Sum of several row holders with disjoint rows.

    Parameters
    ----------
    holders : sequence of RowHolder
        All on the same grid and histogram axes.
    """

    def __init__(self, holders: Sequence[RowHolder]) -> None:
        self._holders = holders

    def start_tree(self, output: int) -> None:
        for holder in self._holders:
            holder.start_tree(output)

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        out[:] = 0
        for holder in self._holders:
            part = np.zeros_like(out)
            holder.write_histograms(nodes, part)
            out += part

    def totals(self, nodes: Nodes) -> Sums:
        return np.sum([holder.totals(nodes) for holder in self._holders], axis=0)

    def divide(self, splits: Splits) -> None:
        for holder in self._holders:
            holder.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        for holder in self._holders:
            holder.finish_tree(tree)
