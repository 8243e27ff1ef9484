"""Tree growth from a row holder's sums: level by level, or best leaf first."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Nodes, Sums, Values
from opboost.trees.constraints import NodeLimits
from opboost.trees.holder import LocalHolder, RowHolder
from opboost.trees.kernels.nodes import NODE, split_nodes
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.sampling import ColumnSampler
from opboost.trees.splitting import BestCuts, Children, GreedySplitter, Splits
from opboost.trees.tree import Tree

# Histograms that a level has room for from the start: those of trees of depth 6, unless bins are many.
_RESERVED_NODES, _RESERVED_BYTES = 16, 1 << 26

# Nodes that a tree has room for from the start: one of depth 6.
_ROOM = 127


def grow_tree(
    holder: RowHolder,
    *,
    splitter: GreedySplitter,
    leaves: NewtonLeaves,
    learning_rate: float,
    max_depth: int,
    max_leaves: int,
    limits: NodeLimits,
    room: HistogramRoom,
    columns: ColumnSampler,
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
    limits : NodeLimits
        Of the root.
    room : HistogramRoom
    columns : ColumnSampler
        Which of the allowed columns each node looks at.
    """
    draft = _Draft(limits)
    is_plain = columns.draws_once and not splitter.has_categories and not splitter.constraints.change_below
    if isinstance(holder, LocalHolder) and is_plain and not max_leaves and room.holds_trees_of(max_depth):
        draft.grow_levels(holder, splitter, room, max_depth)
        return draft.finish(leaves, learning_rate)
    # The best leaf first: its histogram must last until it is split.
    growth = _Growth(holder, splitter, leaves, max_depth or np.inf, draft, None if max_leaves else room, columns)
    if max_leaves:
        growth.split_best_leaves(max_leaves)
    else:
        growth.split_levels()
    return draft.finish(leaves, learning_rate)


class HistogramRoom:
    """Reusable memory for the histograms of two levels.

    Fresh memory for every level would be mapped and cleared by the operating system each time, and smaller pieces from
    earlier levels would lie about unused. What is reserved takes no memory until it is used.
    """

    def __init__(self, n_bins: int) -> None:
        n_nodes = min(_RESERVED_NODES, _RESERVED_BYTES // (16 * n_bins + 1))
        self.levels = [np.empty((n_nodes, 2, n_bins), dtype=np.int64) for _ in range(2)]

    def holds_trees_of(self, max_depth: int) -> bool:
        """True if there is room for whole trees of this depth."""
        return (
            max_depth > 0 and 2 ** (max_depth - 2) <= min(map(len, self.levels)) and 2 ** (max_depth + 1) <= _ROOM + 1
        )

    def of_level(self, depth: int, n_nodes: int) -> Sums:
        """Room for a level's histograms; what the level before the last one left there is lost."""
        room = self.levels[depth % 2]
        if len(room) < n_nodes:
            room = self.levels[depth % 2] = np.empty((n_nodes, *room.shape[1:]), dtype=np.int64)
        return room[:n_nodes]


@dataclass(frozen=True, slots=True)
class _OpenNodes:
    """Leaves that may still be split, their best cuts known: one of every two siblings, then the other ones."""

    nodes: Nodes
    children: Children
    best: BestCuts
    depth: int

    def histogram(self, place: int) -> Sums:
        """Running sums of the columns of one of the nodes, shape ``(2, n_bins)``, whether they were kept or not."""
        children = self.children
        if place < len(children.histograms):
            return children.histograms[place]
        pair = place - len(children.parent_of)
        return children.parents[children.parent_of[pair]] - children.histograms[pair]


class _Draft:
    """A tree under construction: nodes are numbered as they arise, siblings side by side."""

    def __init__(self, limits: NodeLimits) -> None:
        self._nodes = np.empty(_ROOM, NODE)
        self._n_nodes = 0
        self._limits = [(limits, 1)]
        self.categories: dict[int, tuple[int, ...]] = {}

    @property
    def at_root(self) -> NodeLimits:
        """Limits of the root."""
        return self._limits[0][0]

    def grow_levels(self, holder: LocalHolder, splitter: GreedySplitter, room: HistogramRoom, max_depth: int) -> None:
        """Grow the whole tree, whose nodes all have the root's limits."""
        self._n_nodes = holder.grow_levels(splitter, self.at_root, max_depth, room.levels, self._nodes)

    def start(self, root: Sums) -> None:
        """Begin with a root of these sums."""
        self._nodes[0] = (-1, 0, 0.0, False, 0.0, root)
        self._n_nodes = 1

    def split(
        self, opened: _OpenNodes, chosen: NDArray[np.intp], sizes: NDArray[np.int64]
    ) -> tuple[Splits, Nodes, Sums]:
        """Split some of the open nodes by their best cuts.

        Returns
        -------
        splits : Splits
        children : ndarray of int32, shape (2 n_splits,)
            The lighter one of every two siblings, then the other ones.
        sums : ndarray of int64, shape (2 n_splits, 2)
            Of the children, in that order.
        """
        first, best = self._n_nodes, opened.best
        self._n_nodes += 2 * len(chosen)
        if self._n_nodes > len(self._nodes):
            self._nodes = np.concatenate([self._nodes, np.empty(self._n_nodes, NODE)])
        nodes, columns, cuts, missing_left, goes_left, lefts, children, sums = split_nodes(
            chosen,
            opened.nodes,
            opened.children.totals,
            (best.gains, best.columns, best.cuts, best.missing_left, best.left_sums),
            sizes,
            first,
            self._nodes,
        )
        return Splits(nodes, columns, cuts, missing_left, goes_left, lefts, lefts + np.int32(1)), children, sums

    def limit(self, limits: NodeLimits, n_nodes: int) -> None:
        """Note the limits of the nodes that arose last."""
        self._limits.append((limits, n_nodes))

    def latest_sums(self, n_nodes: int) -> Sums:
        """Sums of the nodes that arose last, in the order of their numbers."""
        return np.ascontiguousarray(self._nodes["sums"][self._n_nodes - n_nodes : self._n_nodes])

    def finish(self, leaves: NewtonLeaves, learning_rate: float) -> Tree:
        """Give every node without a split its value."""
        arrays = leaves.finished(self._nodes[: self._n_nodes], *self._bounds(), learning_rate)
        return Tree(*arrays, self.categories)

    def _bounds(self) -> tuple[Values, Values]:
        """Bounds of every node's value, one number if they are the same for all."""
        if all(len(limits.lower) == 1 for limits, _ in self._limits):
            return self.at_root.lower, self.at_root.upper
        lower = np.concatenate([np.broadcast_to(limits.lower, n) for limits, n in self._limits])
        upper = np.concatenate([np.broadcast_to(limits.upper, n) for limits, n in self._limits])
        return lower, upper


class _Growth:
    """The steps of growing one tree."""

    def __init__(
        self,
        holder: RowHolder,
        splitter: GreedySplitter,
        leaves: NewtonLeaves,
        max_depth: float,
        draft: _Draft,
        room: HistogramRoom | None,
        columns: ColumnSampler,
    ) -> None:
        self._columns = columns
        self._holder = holder
        self._splitter = splitter
        self._leaves = leaves
        self._max_depth = max_depth
        self._room = room
        self._draft = draft
        root, nothing = np.zeros(1, dtype=np.int32), np.empty((0, 2, splitter.axes.n_bins), dtype=np.int64)
        histograms = self._ask(root, n_kept=1, depth=0)
        # Every row is in one bin of the first column.
        totals = histograms[:, :, : splitter.axes.sizes[0]].sum(axis=2)
        children = Children(totals, histograms, nothing, np.zeros(1, np.int64), draft.at_root)
        self._root = _OpenNodes(root, children, self._choose(children, 0), depth=0)
        draft.start(totals[0])

    def split_levels(self) -> None:
        """Split all nodes of a level that are worth it, then those of the next."""
        level: _OpenNodes | None = self._root
        while level is not None:
            chosen = level.best.worthwhile
            level = self._split(level, chosen) if len(chosen) else None

    def split_best_leaves(self, max_leaves: int) -> None:
        """Split the leaf with the largest gain, and again; of equal gains the one that arose first."""
        queue: list[tuple[float, int, _OpenNodes, int]] = []
        opened: _OpenNodes | None = self._root
        for _ in range(max_leaves - 1):
            if opened is not None:
                for place in opened.best.worthwhile.tolist():
                    heapq.heappush(queue, (-opened.best.gains[place], int(opened.nodes[place]), opened, place))
            if not queue:
                break
            *_, siblings, place = heapq.heappop(queue)
            opened = self._split(siblings, np.array([place]))

    def _split(self, opened: _OpenNodes, chosen: NDArray[np.intp]) -> _OpenNodes | None:
        """Split some of the open nodes; returns their children if these may be split in turn."""
        splitter, n, depth = self._splitter, len(chosen), opened.depth + 1
        splits, nodes, totals = self._draft.split(opened, chosen, splitter.axes.sizes)
        self._draft.categories |= splitter.part_categories(splits, lambda k: opened.histogram(int(chosen[k])))
        limits = self._limits_of_children(opened.children.limits.of(chosen), splits.columns)
        self._draft.limit(limits, 2 * n)
        self._holder.divide(splits)
        if depth >= self._max_depth:
            return None
        # The other siblings' histograms are kept for their children, if these will ask.
        n_kept = 2 * n if depth + 1 < self._max_depth else n
        histograms = self._ask(nodes[:n], n_kept=n_kept, depth=depth)
        children = Children(totals, histograms, opened.children.histograms, chosen, limits.of(nodes - splits.lefts[0]))
        return _OpenNodes(nodes, children, self._choose(children, depth), depth)

    def _choose(self, children: Children, depth: int) -> BestCuts:
        limits = self._columns.sampled(children.limits, depth, len(children.totals))
        return self._splitter.choose(children if limits is children.limits else replace(children, limits=limits))

    def _ask(self, nodes: Nodes, *, n_kept: int, depth: int) -> Sums:
        """The nodes' histograms, and room for more behind them."""
        shape = n_kept, 2, self._splitter.axes.n_bins
        histograms = self._room.of_level(depth, n_kept) if self._room else np.empty(shape, dtype=np.int64)
        self._holder.write_histograms(nodes, histograms[: len(nodes)])
        return histograms

    def _limits_of_children(self, limits: NodeLimits, columns: Nodes) -> NodeLimits:
        """Limits of the latest children, left and right by turns; the parents have `limits` and split on `columns`."""
        constraints, n = self._splitter.constraints, len(columns)
        if not constraints.change_below:
            return limits
        bounds = (np.repeat(bound, 2 * n // len(bound)) for bound in (limits.lower, limits.upper))
        values = self._leaves.values(self._draft.latest_sums(2 * n), *bounds)
        below = constraints.at_children(limits, columns, values[0::2], values[1::2], self._draft.at_root)
        return below.of(np.arange(2 * n).reshape(2, n).T.ravel())
