"""Complete trees: every node of a level splits, by a rule that may or may not ask for sums.

The shape and the number of questions depend on nothing but the depth. A rule that draws its splits asks nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Nodes, Sums, Values
from opboost.errors import ParameterError, check_integer
from opboost.trees.holder import RowHolder
from opboost.trees.kernels.random_cuts import draw_cuts
from opboost.trees.splitting import Splits
from opboost.trees.tree import Tree

# Gives so many independent uniform numbers in [0, 1).
Uniforms = Callable[[int], Values]

# The columns that the next tree may use.
ColumnTurns = Callable[[], NDArray[np.int64]]

LeafValues = Callable[[Sums], Values]

# Levels at most, of a tree whose nodes have numbers of 16 bits.
MOST_LEVELS = 15


def check_depth(depth: object, *, least: int = 0) -> None:
    """Refuse numbers of levels that no complete tree has; raises ParameterError."""
    check_integer("max_depth", depth, least=least, most=MOST_LEVELS)


@dataclass(frozen=True, slots=True)
class Cuts:
    """One split per node of a level; all arrays have shape ``(n_nodes,)``.

    Attributes
    ----------
    columns, cuts : ndarray of int32
        A row goes left when its bin is at most the cut; of a column of categories, when it is the cut.
    missing_left : ndarray of bool
        False for categories: rows with an empty cell go right, with the other categories.
    """

    columns: Nodes
    cuts: Nodes
    missing_left: Mask


@dataclass(frozen=True, slots=True)
class CompleteShape:
    """A complete tree whose leaves have no values yet: its splits, level by level."""

    levels: tuple[Splits, ...]
    axes: HistogramAxes

    @property
    def leaves(self) -> Nodes:
        n_leaves = 2 ** len(self.levels)
        return np.arange(n_leaves - 1, 2 * n_leaves - 1, dtype=np.int32)

    def with_leaf_values(self, values: Values) -> Tree:
        """The tree, with values of its leaves in their order."""
        return tree_of(self.levels, np.concatenate([np.zeros(len(values) - 1), values]), self.axes)


class SplitRule(Protocol):
    """Chooses the splits of a complete tree."""

    def start_tree(self) -> None:
        """Reset the rule before a tree."""

    def choose(self, nodes: Nodes, holder: RowHolder) -> Cuts:
        """One split for each node of the next level."""


def grow_complete_tree(
    holder: RowHolder, *, rule: SplitRule, leaf_values: LeafValues, axes: HistogramAxes, depth: int
) -> Tree:
    """Grow a tree of ``2**depth`` leaves, numbered level by level.

    Parameters
    ----------
    holder : RowHolder
        After ``start_tree``.
    rule : SplitRule
    leaf_values : callable
        From the leaves' sums of (g, h), shape ``(n_leaves, 2)``, to values, learning rate included.
    axes : HistogramAxes
    depth : int
        Levels of splits; 0 for a single leaf.

    Returns
    -------
    Tree
        Without gains and covers: these are statistics of the data.
    """
    shape = grow_complete_shape(holder, rule=rule, axes=axes, depth=depth)
    return shape.with_leaf_values(leaf_values(holder.totals(shape.leaves)))


def grow_complete_shape(holder: RowHolder, *, rule: SplitRule, axes: HistogramAxes, depth: int) -> CompleteShape:
    """Grow the shape of a complete tree, without asking for the leaves' sums."""
    rule.start_tree()
    levels: list[Splits] = []
    for level in range(depth):
        nodes = np.arange(2**level - 1, 2 ** (level + 1) - 1, dtype=np.int32)
        levels.append(splits_of(nodes, rule.choose(nodes, holder), axes, first_child=2 ** (level + 1) - 1))
        holder.divide(levels[-1])
    return CompleteShape(tuple(levels), axes)


def drawn_columns(n_columns: int, n_drawn: int, uniforms: Uniforms) -> ColumnTurns | None:
    """Sample columns for every tree; None if all are used."""
    if not 0 < n_drawn < n_columns:
        return None
    return lambda: np.argsort(uniforms(n_columns))[:n_drawn]


class RandomRule:
    """Random split rule: columns and cuts drawn independently of the data.

    A child draws from the cuts that its ancestors have left, unless none is left in any column. Of a column of
    categories one is drawn, and parted from the others (Kirschte et al., 2023, algorithm 5).

    Parameters
    ----------
    axes : HistogramAxes
        At least two bins for each column.
    columns : callable, optional
        Called for every tree: the columns that it may use. All by default.
    uniforms : callable
    """

    def __init__(self, axes: HistogramAxes, *, columns: ColumnTurns | None = None, uniforms: Uniforms) -> None:
        if (axes.sizes < 3).any():
            raise ParameterError("every column needs at least two bins to cut between")
        self._axes = axes
        self._columns = columns
        self._uniforms = uniforms
        self._use(np.arange(axes.n_columns))
        self._limits = self._whole[None]

    def start_tree(self) -> None:
        if self._columns is not None:
            self._use(self._columns())
        self._limits = self._whole[None]

    def _use(self, columns: NDArray[np.int64]) -> None:
        """Draw from these columns, and from all of their bins at the root."""
        self._open = columns
        self._is_alone = self._axes.is_categorical[columns]
        self._whole = np.stack([np.zeros_like(columns), self._axes.sizes[columns] - 2])

    def choose(self, nodes: Nodes, holder: RowHolder) -> Cuts:
        """Draw one split per node. The holder is not asked for anything."""
        drawn = self._uniforms(3 * len(nodes)).reshape(3, -1)
        places, cuts = np.empty(len(nodes), np.int64), np.empty(len(nodes), np.int32)
        self._limits = draw_cuts(self._limits, self._whole, self._is_alone, drawn, places, cuts)
        missing_left = (drawn[2] < 0.5) & ~self._is_alone[places]
        return Cuts(self._open[places].astype(np.int32), cuts, missing_left)


def splits_of(nodes: Nodes, chosen: Cuts, axes: HistogramAxes, *, first_child: int) -> Splits:
    """Splits of nodes of one level, as holders carry them out.

    Parameters
    ----------
    nodes : ndarray of int32, shape (n_nodes,)
    chosen : Cuts
    axes : HistogramAxes
    first_child : int
        Number of the first node's left child; the other children follow, siblings side by side.
    """
    bins, cuts = np.arange(axes.largest, dtype=np.int32), chosen.cuts[:, None]
    goes_left = bins <= cuts
    alone = axes.is_categorical[chosen.columns]
    if alone.any():
        goes_left[alone] = bins == cuts[alone]
    goes_left[np.arange(len(nodes)), axes.sizes[chosen.columns] - 1] = chosen.missing_left
    lefts = (first_child + 2 * np.arange(len(nodes))).astype(np.int32)
    return Splits(nodes, chosen.columns, chosen.cuts, chosen.missing_left, goes_left, lefts, lefts + np.int32(1))


def tree_of(levels: Sequence[Splits], values: Values, axes: HistogramAxes) -> Tree:
    """The tree that splits make, in bins and without gains and covers.

    Parameters
    ----------
    levels : sequence of Splits
    values : ndarray of float64, shape (n_nodes,)
        Those of nodes that split do not count.
    axes : HistogramAxes
    """
    n = len(values)
    columns, cuts, missing_left = np.full(n, -1, np.int32), np.zeros(n), np.zeros(n, np.bool_)
    lefts, rights = np.zeros(n, np.int32), np.zeros(n, np.int32)
    for each in levels:
        columns[each.nodes], cuts[each.nodes], missing_left[each.nodes] = each.columns, each.cuts, each.missing_left
        lefts[each.nodes], rights[each.nodes] = each.lefts, each.rights
    alone = np.flatnonzero(axes.is_categorical[columns] & (columns >= 0))
    return Tree(
        columns,
        cuts,
        missing_left,
        lefts,
        rights,
        np.where(columns < 0, values, 0.0),
        np.zeros(n),
        np.zeros(n),
        {node: (int(cuts[node]),) for node in alone.tolist()},
    )
