"""All trees of an ensemble in one set of arrays, as compiled walks and other systems' formats read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Nodes, Values


class FlatTrees(NamedTuple):
    """Trees, one behind the other; siblings lie side by side, so that a right child is one behind the left.

    A leaf is its own left child; nothing is greater than its threshold or missing to it.

    Attributes
    ----------
    roots, depths, outputs : ndarray, shape (n_trees,)
        Where a tree begins, its depth, and the output that it adds to.
    columns, thresholds, missing_left, lefts : ndarray, shape (n_nodes,)
    sets : ndarray of int32, shape (n_nodes,)
        Which row of `members` a node asks; -1 for none.
    members : ndarray of bool, shape (n_sets, n_categories)
        The categories that go left.
    values, covers : ndarray of float64, shape (n_nodes,)
    """

    roots: Nodes
    depths: NDArray[np.int64]
    outputs: NDArray[np.int64]
    columns: Nodes
    thresholds: Values
    missing_left: Mask
    lefts: Nodes
    sets: Nodes
    members: Mask
    values: Values
    covers: Values

    @property
    def is_leaf(self) -> Mask:
        return self.lefts == np.arange(len(self.lefts))

    @property
    def node_outputs(self) -> NDArray[np.int64]:
        """The output that each node's tree adds to."""
        return self.outputs[np.searchsorted(self.roots, np.arange(len(self.lefts)), side="right") - 1]

    def leaves(self, features: Values) -> NDArray[np.int64]:
        """The leaf that each row reaches in each tree, shape ``(n_rows, n_trees)``, numbered within its tree."""
        out = np.empty((len(features), len(self.roots)), np.int64)
        rows = np.arange(len(features))
        for tree, (root, depth) in enumerate(zip(self.roots, self.depths, strict=True)):
            nodes = np.full(len(features), root, np.int64)
            for _ in range(depth):
                goes_left = self.goes_left(nodes, features[rows, self.columns[nodes]])
                nodes = (self.lefts[nodes] + ~goes_left).astype(np.int64)
            out[:, tree] = nodes - root
        return out

    def goes_left(self, nodes: NDArray[np.int64], cells: Values) -> Mask:
        """True for each cell that goes left at its node; `nodes` and `cells` have one entry per row."""
        goes_left = np.where(np.isnan(cells), self.missing_left[nodes], cells <= self.thresholds[nodes])
        of_set = np.flatnonzero((self.sets[nodes] >= 0) & ~np.isnan(cells))
        goes_left[of_set] = self._are_members(nodes[of_set], cells[of_set])
        return goes_left

    def _are_members(self, nodes: NDArray[np.int64], cells: Values) -> Mask:
        """True for each category in the set of its node; false for cells that are no known category."""
        is_known = (cells >= 0) & (cells < self.members.shape[1])
        places = np.where(is_known, cells, 0).astype(np.int64)
        return is_known & (places == cells) & self.members[self.sets[nodes], places]


def flatten(trees: Sequence[Any], n_outputs: int) -> FlatTrees:
    """Flat form of a sequence of `opboost.trees.tree.Tree`, which come round by round with one for every output."""
    trees = [tree.in_levels() for tree in trees]
    starts = np.concatenate([[0], np.cumsum([tree.n_nodes for tree in trees])]).astype(np.int32)
    columns, thresholds, missing_left, values, covers, is_leaf = (
        np.concatenate([getattr(tree, name) for tree in trees])
        for name in ("columns", "thresholds", "missing_left", "values", "covers", "is_leaf")
    )
    lefts = np.concatenate([tree.lefts + start for tree, start in zip(trees, starts, strict=False)])
    return FlatTrees(
        starts[:-1],
        np.array([tree.depth for tree in trees]),
        np.arange(len(trees)) % n_outputs,
        np.where(is_leaf, 0, columns).astype(np.int32),
        np.where(is_leaf, np.inf, thresholds),
        missing_left | is_leaf,
        np.where(is_leaf, np.arange(starts[-1]), lefts).astype(np.int32),
        *_category_sets(trees, starts),
        values,
        covers,
    )


def _category_sets(trees: Sequence[Any], starts: Nodes) -> tuple[Nodes, Mask]:
    of_trees = zip(trees, starts, strict=False)
    splits = [(start + node, left) for tree, start in of_trees for node, left in tree.left_categories.items()]
    sets = np.full(starts[-1], -1, np.int32)
    members = np.zeros((len(splits), max((categories[-1] + 1 for _, categories in splits), default=0)), np.bool_)
    for row, (node, categories) in enumerate(splits):
        sets[node] = row
        members[row, list(categories)] = True
    return sets, members
