"""Rows sorted by the node that they are in, and their scores."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Bins, Nodes, Scores, Sums
from opboost.trees.kernels.division import add_children_to_scores, add_to_scores, divide_rows
from opboost.trees.kernels.histograms import build_histograms, sum_nodes
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

# Rows that are numbered at a time.
_PIECE = 1 << 16


class SortedRows:
    """Follows the rows of a binned table through one tree after the other.

    The latest splits are carried out when somebody asks for the rows of their children. Nobody does for the last level
    of a tree, whose leaf values go to the scores straight from the parents.

    Parameters
    ----------
    bins : ndarray of uint8 or uint16, shape (n_columns, n_rows)
    scores : ndarray of float32 or float64, shape (n_outputs, n_rows)
        At the start, in the order of the table; leaf values are added to them.
    has_gradients : bool
        Whether rows carry gradients along.

    Attributes
    ----------
    scores : ndarray of float32 or float64, shape (n_outputs, n_rows)
    numbers : ndarray of uint32, shape (n_rows,)
        The rows of a node lie side by side.
    gradients : ndarray of int64, shape (n_rows,) or (0,)
        Packed, in the order of `numbers`.
    """

    def __init__(self, bins: Bins, scores: Scores, *, has_gradients: bool) -> None:
        n_rows = bins.shape[1]
        self._bins = bins
        self.scores = scores
        self.numbers = np.empty(n_rows, dtype=np.uint32)
        self.gradients = np.empty(n_rows if has_gradients else 0, dtype=np.int64)
        self._places = np.empty((2, 1), dtype=np.int64)
        self._waiting: Splits | None = None

    def copied(self, scores: Scores) -> SortedRows:
        """The same rows with these scores, which go their own way from here on; bins are shared."""
        twin = SortedRows.__new__(SortedRows)
        twin._bins, twin.scores = self._bins, scores
        twin.numbers, twin.gradients = self.numbers.copy(), self.gradients.copy()
        twin._places, twin._waiting = self._places, self._waiting
        return twin

    def start_tree(self) -> None:
        """Put all rows into the root, in the order of the table."""
        n_rows = len(self.numbers)
        # In pieces, so that no second array of this size is made.
        for begin in range(0, n_rows, _PIECE):
            end = min(begin + _PIECE, n_rows)
            self.numbers[begin:end] = np.arange(begin, end, dtype=np.uint32)
        self._places = np.array([[0], [n_rows]], dtype=np.int64)
        self._waiting = None

    def of(self, nodes: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where each node's rows begin and end."""
        self._divide()
        begins, ends = self._places[:, nodes]
        return begins, ends

    def add_histograms(self, nodes: Nodes, out: Sums, *, offsets: NDArray[np.int64], block: int) -> None:
        """Add the sums of g and h per bin to `out`; as many as `block` packed gradients fit one sum."""
        begins, ends = self.of(nodes)
        build_histograms(self._bins, self.numbers, self.gradients, begins, ends, offsets, block, out)

    def totals(self, nodes: Nodes) -> Sums:
        """Sums of (g, h) per node, shape ``(n_nodes, 2)``."""
        out = np.empty((len(nodes), 2), dtype=np.int64)
        sum_nodes(self.gradients, *self.of(nodes), out)
        return out

    def divide(self, splits: Splits) -> None:
        """Move the rows of split nodes to their children."""
        self._divide()
        self._waiting = splits

    def finish_tree(self, tree: Tree, output: int) -> None:
        """Add each leaf's value to the scores of its rows."""
        scores, values, is_placed = self.scores[output], tree.values, tree.is_leaf
        if self._waiting is not None:
            splits = self._waiting
            is_placed = is_placed & (np.arange(tree.n_nodes) < splits.lefts[0])
            add_children_to_scores(
                self._bins, scores, self.numbers, *self._places[:, splits.nodes], splits.columns, splits.goes_left,
                values[splits.lefts], values[splits.rights],
            )  # fmt: skip
        leaves = np.flatnonzero(is_placed)
        if len(leaves):
            add_to_scores(scores, self.numbers, *self._places[:, leaves], values[leaves])

    def _divide(self) -> None:
        if self._waiting is None:
            return
        splits, self._waiting = self._waiting, None
        begins, ends = self._places[:, splits.nodes]
        children = np.empty((2, 2 * len(begins)), dtype=np.int64)
        middles = np.empty_like(begins)
        divide_rows(self._bins, self.numbers, self.gradients, begins, ends, splits.columns, splits.goes_left, middles)
        children[0, 0::2], children[1, 1::2] = begins, ends
        children[1, 0::2] = children[0, 1::2] = middles
        # Children are numbered in order, left before right, behind all nodes before them.
        self._places = np.concatenate([self._places, children], axis=1)
