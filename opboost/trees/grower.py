"""Grow one tree by asking a row holder for sums: level by level, or the best leaf first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums, Values
from opboost.trees.constraints import Limits
from opboost.trees.holder import RowHolder
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.splitting import BestCuts, Children, GreedySplitter, Splits
from opboost.trees.tree import Tree

# Histograms that a level has room for from the start: those of trees of depth 6, unless bins are many.
_RESERVED_NODES, _RESERVED_BYTES = 16, 1 << 26


def grow_tree(
    holder: RowHolder,
    *,
    splitter: GreedySplitter,
    leaves: NewtonLeaves,
    learning_rate: float,
    max_depth: int,
    max_leaves: int,
    columns: NDArray[np.int64],
    room: HistogramRoom,
) -> Tree:
    """Grow one tree on the holder's current gradients.

    Of every two siblings only the lighter one's histogram is asked for; the other is the parent's less that one,
    exactly, since sums are integers.

    Parameters
    ----------
    holder : RowHolder
        After ``start_tree``.
    splitter : GreedySplitter
    leaves : NewtonLeaves
    learning_rate : float
        Factor of the leaves' values.
    max_depth : int
        0 for no limit.
    max_leaves : int
        0 splits all nodes of a level at once. Otherwise the leaf with the largest gain is split next, until there are
        so many leaves.
    columns : ndarray of int64
        The columns that this tree may split on.
    room : HistogramRoom
    """
    growth = _Growth(holder, splitter, leaves, max_depth or np.inf, columns, room)
    if max_leaves:
        growth.split_best_leaves(max_leaves)
    else:
        growth.split_levels()
    return growth.draft.finish(leaves, learning_rate)


class HistogramRoom:
    """Memory for the histograms of two levels, used by one tree after the other.

    Fresh memory for every level would be mapped and cleared by the operating system each time, and smaller pieces from
    earlier levels would lie about unused. What is reserved takes no memory until it is used.
    """

    def __init__(self, n_bins: int) -> None:
        n_nodes = min(_RESERVED_NODES, _RESERVED_BYTES // (16 * n_bins + 1))
        self._levels = [np.empty((n_nodes, 2, n_bins), dtype=np.int64) for _ in range(2)]

    def of_level(self, depth: int, n_nodes: int) -> Sums:
        """Room for a level's histograms; what the level before the last one left there is lost."""
        room = self._levels[depth % 2]
        if len(room) < n_nodes:
            room = self._levels[depth % 2] = np.empty((n_nodes, *room.shape[1:]), dtype=np.int64)
        return room[:n_nodes]


@dataclass(frozen=True, slots=True)
class _OpenNodes:
    """Leaves that may still be split, their best cuts known: one of every two siblings, then the other ones."""

    nodes: Nodes
    children: Children
    best: BestCuts
    depth: int

    def histogram(self, place: int) -> Sums:
        """The histogram of one of the nodes, shape ``(2, n_bins)``, whether it was kept or not."""
        children = self.children
        if place < len(children.histograms):
            return children.histograms[place]
        pair = place - len(children.parent_of)
        return children.parents[children.parent_of[pair]] - children.histograms[pair]


@dataclass(slots=True)
class _Draft:
    """A tree under construction: nodes are numbered as they arise, siblings side by side."""

    totals: list[Sums] = field(default_factory=list)
    limits: list[Limits] = field(default_factory=list)
    splits: list[Splits] = field(default_factory=list)
    gains: list[Values] = field(default_factory=list)
    categories: dict[int, tuple[int, ...]] = field(default_factory=dict)
    n_nodes: int = 0

    def add_nodes(self, totals: Sums, limits: Limits) -> Nodes:
        """Number further nodes."""
        self.totals.append(totals)
        self.limits.append(limits)
        first, self.n_nodes = self.n_nodes, self.n_nodes + len(totals)
        return np.arange(first, self.n_nodes, dtype=np.int32)

    def finish(self, leaves: NewtonLeaves, learning_rate: float) -> Tree:
        """Give every node without a split its value."""
        columns, cuts = np.full(self.n_nodes, -1, np.int32), np.zeros(self.n_nodes)
        lefts, rights = np.zeros(self.n_nodes, np.int32), np.zeros(self.n_nodes, np.int32)
        missing_left, gains = np.zeros(self.n_nodes, np.bool_), np.zeros(self.n_nodes)
        if self.splits:
            nodes = np.concatenate([splits.nodes for splits in self.splits])
            columns[nodes] = np.concatenate([splits.columns for splits in self.splits])
            cuts[nodes] = np.concatenate([splits.cuts for splits in self.splits])
            missing_left[nodes] = np.concatenate([splits.missing_left for splits in self.splits])
            lefts[nodes] = np.concatenate([splits.lefts for splits in self.splits])
            rights[nodes] = lefts[nodes] + np.int32(1)
            gains[nodes] = np.concatenate(self.gains)
        totals = np.concatenate(self.totals)
        values = np.where(columns < 0, learning_rate * leaves.values(totals, *self._bounds()), 0.0)
        covers = totals[:, 1] / leaves.grid.hess_scale
        return Tree(columns, cuts, missing_left, lefts, rights, values, gains, covers, self.categories)

    def _bounds(self) -> tuple[Values, Values]:
        """Bounds of every node's value, one number if they are the same for all."""
        if all(len(limits.lower) == 1 for limits in self.limits):
            return self.limits[0].lower, self.limits[0].upper
        sizes = [len(totals) for totals in self.totals]
        lower, upper = (
            np.concatenate([np.broadcast_to(each, n) for each, n in zip(bounds, sizes, strict=True)])
            for bounds in ([limits.lower for limits in self.limits], [limits.upper for limits in self.limits])
        )
        return lower, upper


class _Growth:
    """The steps of growing one tree."""

    def __init__(
        self,
        holder: RowHolder,
        splitter: GreedySplitter,
        leaves: NewtonLeaves,
        max_depth: float,
        columns: NDArray[np.int64],
        room: HistogramRoom,
    ) -> None:
        self._holder = holder
        self._splitter = splitter
        self._leaves = leaves
        self._max_depth = max_depth
        self._room: HistogramRoom | None = room
        self._at_root = splitter.constraints.at_root(columns)
        self.draft = _Draft()

    def split_levels(self) -> None:
        """Split all nodes of a level that are worth it, then those of the next."""
        level: _OpenNodes | None = self._root()
        while level is not None:
            chosen = np.flatnonzero(level.best.is_worthwhile)
            level = self._split(level, chosen) if len(chosen) else None

    def split_best_leaves(self, max_leaves: int) -> None:
        """Split the leaf with the largest gain, and again; of equal gains the one that arose first."""
        self._room = None  # a leaf's histogram must last until the leaf is split
        queue: list[tuple[float, int, _OpenNodes, int]] = []
        opened: _OpenNodes | None = self._root()
        for _ in range(max_leaves - 1):
            if opened is not None:
                for place in np.flatnonzero(opened.best.is_worthwhile).tolist():
                    heapq.heappush(queue, (-opened.best.gains[place], int(opened.nodes[place]), opened, place))
            if not queue:
                break
            *_, of, place = heapq.heappop(queue)
            opened = self._split(of, np.array([place]))

    def _root(self) -> _OpenNodes:
        root, nothing = np.zeros(1, dtype=np.int32), np.empty((0, 2, self._splitter.axes.n_bins), dtype=np.int64)
        histograms = self._ask(root, n_kept=1, depth=0)
        # Every row is in one bin of the first column.
        totals = histograms[:, :, : self._splitter.axes.sizes[0]].sum(axis=2)
        self.draft.add_nodes(totals, self._at_root)
        children = Children(totals, histograms, nothing, np.zeros(1, np.int64), self._at_root)
        return _OpenNodes(root, children, self._splitter.choose(children), depth=0)

    def _split(self, opened: _OpenNodes, chosen: NDArray[np.intp]) -> _OpenNodes | None:
        """Split some of the open nodes; returns their children if these may be split in turn."""
        best, splitter, n = opened.best, self._splitter, len(chosen)
        columns, totals = best.columns[chosen], np.empty((2 * n, 2), dtype=np.int64)
        totals[0::2] = best.left_sums[chosen]
        totals[1::2] = opened.children.totals[chosen] - totals[0::2]
        limits = self._limits_of_children(opened.children.limits.of(chosen), columns, totals)
        nodes = self.draft.add_nodes(totals, limits)
        splits = Splits(
            opened.nodes[chosen], columns, best.cuts[chosen], best.missing_left[chosen],
            splitter.goes_left(best, chosen, opened.histogram), nodes[0::2], nodes[1::2],
        )  # fmt: skip
        self.draft.splits.append(splits)
        self.draft.gains.append(best.gains[chosen])
        self.draft.categories |= splitter.left_categories(splits)
        self._holder.divide(splits)
        if opened.depth + 1 >= self._max_depth:
            return None
        lighter = np.arange(0, 2 * n, 2) + (totals[1::2, 1] < totals[0::2, 1])
        order, depth = np.concatenate([lighter, lighter ^ 1]), opened.depth + 1
        # The other siblings' histograms are kept for their children, if these will ask.
        n_kept = 2 * n if depth + 1 < self._max_depth else n
        histograms = self._ask(nodes[lighter], n_kept=n_kept, depth=depth)
        children = Children(totals[order], histograms, opened.children.histograms, chosen, limits.of(order))
        return _OpenNodes(nodes[order], children, splitter.choose(children), depth)

    def _ask(self, nodes: Nodes, *, n_kept: int, depth: int) -> Sums:
        """The nodes' histograms, and room for more behind them."""
        shape = n_kept, 2, self._splitter.axes.n_bins
        histograms = self._room.of_level(depth, n_kept) if self._room else np.empty(shape, dtype=np.int64)
        asked = histograms[: len(nodes)]
        asked[:] = 0
        self._holder.add_histograms(nodes, asked)
        return histograms

    def _limits_of_children(self, limits: Limits, columns: Nodes, totals: Sums) -> Limits:
        """Limits of the children, left and right by turns, whose sums are `totals`."""
        constraints, n = self._splitter.constraints, len(columns)
        if not constraints.change_below:
            return limits
        bounds = (np.repeat(bound, len(totals) // len(bound)) for bound in (limits.lower, limits.upper))
        values = self._leaves.values(totals, *bounds)
        below = constraints.at_children(limits, columns, values[0::2], values[1::2], self._at_root)
        return below.of(np.arange(2 * n).reshape(2, n).T.ravel())
