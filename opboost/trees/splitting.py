"""Split rules."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Nodes, Sums, Values
from opboost.trees.constraints import Constraints, NodeLimits
from opboost.trees.kernels.cuts import MIN_GAIN, best_cuts, category_order, no_cuts, sums_of_bins
from opboost.trees.kernels.threads import n_threads
from opboost.trees.losses import GradientGrid

_NONE = np.empty(0, dtype=np.intp)


@dataclass(frozen=True, slots=True)
class Splits:
    """Nodes to divide, with the numbers of their children; all arrays have shape ``(n_splits,)`` or start with it.

    Attributes
    ----------
    nodes, columns : ndarray of int32
    cuts : ndarray of int32
        A row goes left when its bin is at most the cut; for categories, see `goes_left`.
    missing_left : ndarray of bool
    goes_left : ndarray of bool, shape (n_splits, most bins of a column)
        Whether each bin of the column goes left, the missing bin included.
    lefts, rights : ndarray of int32
    """

    nodes: Nodes
    columns: Nodes
    cuts: Nodes
    missing_left: Mask
    goes_left: Mask
    lefts: Nodes
    rights: Nodes


@dataclass(frozen=True, slots=True)
class BestCuts:
    """The best cut of each node; arrays have shape ``(n_nodes,)``, `left_sums` has ``(n_nodes, 2)``.

    `worthwhile` has the places of the nodes whose best cut is worth a split.
    """

    worthwhile: NDArray[np.intp]
    gains: Values
    columns: Nodes
    cuts: Nodes
    missing_left: Mask
    left_sums: Sums


@dataclass(frozen=True, slots=True)
class Children:
    """Sums and limits of nodes whose splits are to be chosen: one of every two siblings, then the other ones.

    Attributes
    ----------
    totals : ndarray of int64, shape (n_nodes, 2)
    histograms : ndarray of int64, shape (n_asked or n_nodes, 2, n_bins)
        Sums of g and of h per bin for the first of every two siblings. The splitter replaces them by running sums of
        each column and, if there is room for the others, fills it with what their parents' leave for them.
    parents : ndarray of int64, shape (n_parents, 2, n_bins)
        Running sums.
    parent_of : ndarray of int64, shape (n_asked,)
        Where in `parents` the parent of each pair of siblings is.
    limits : NodeLimits
    """

    totals: Sums
    histograms: Sums
    parents: Sums
    parent_of: NDArray[np.int64]
    limits: NodeLimits


@dataclass(frozen=True)
class GreedySplitter:
    """XGBoost's exact greedy rule on histograms.

    ``gain = G_L^2 / (H_L + reg_lambda) + G_R^2 / (H_R + reg_lambda) - G^2 / (H + reg_lambda)``; a node splits when
    its gain exceeds 1e-6 and is at least `gamma`, and both children weigh at least `min_child_weight`. Where leaf
    values are bounded, the squares give way to the loss's quadratic approximation at the bounded values.

    Parameters
    ----------
    axes : HistogramAxes
    grid : GradientGrid
    constraints : Constraints
    reg_lambda, gamma, min_child_weight : float
    max_cat_to_onehot : int
        Up to so many categories, each stands alone against the others; more are put in order of their mean gradient
        and cut like numbers.
    reg_alpha : float
        Every G is moved towards zero by so much.
    """

    axes: HistogramAxes
    grid: GradientGrid
    constraints: Constraints
    reg_lambda: float
    gamma: float
    min_child_weight: float
    max_cat_to_onehot: int
    reg_alpha: float = 0.0

    def choose(self, children: Children) -> BestCuts:
        """The best cut of each node."""
        n_asked, best = len(children.parent_of), no_cuts(len(children.totals))
        best_cuts(
            children.histograms[:n_asked],
            children.parents,
            children.parent_of,
            children.histograms[n_asked:],
            children.totals,
            self.rules(children.limits),
            n_threads(),
            best,
        )
        return BestCuts((best[0] >= self.least_gain).nonzero()[0], *best)

    def rules(self, limits: NodeLimits) -> tuple[Any, ...]:
        """Parameters of the compiled search other than sums."""
        return (
            self.axes.offsets,
            limits.allowed,
            self._category_modes,
            self.constraints.monotone,
            limits.lower,
            limits.upper,
            self.constraints.is_bounded,
            *self._steps,
            *self._penalty,
            float(self.min_child_weight),
        )

    def part_categories(self, splits: Splits, histogram_of: Callable[[int], Sums]) -> dict[int, tuple[int, ...]]:
        """Set which bins go left, for the splits on columns of categories.

        Parameters
        ----------
        splits : Splits
            Whose cuts of categories are places in their order; `goes_left` is written to.
        histogram_of : callable
            The running sums of each column of the node of a split, by its place, shape ``(2, n_bins)``.

        Returns
        -------
        dict of int to tuple of int
            By node, the categories that go left.
        """
        parted = {}
        for k in self._categorical(splits.columns).tolist():
            column = int(splits.columns[k])
            left = self._bins_left_of(int(splits.cuts[k]), column, histogram_of(k))
            splits.goes_left[k] = False
            splits.goes_left[k, left] = True
            splits.goes_left[k, self.axes.sizes[column] - 1] = splits.missing_left[k]
            parted[int(splits.nodes[k])] = tuple(np.sort(left).tolist())
        return parted

    def _categorical(self, columns: Nodes) -> NDArray[np.intp]:
        """Positions of the categorical ones among these columns."""
        return np.flatnonzero(self.axes.is_categorical[columns]) if self.has_categories else _NONE

    def _bins_left_of(self, cut: int, column: int, histogram: Sums) -> NDArray[np.int64]:
        """The bins of the categories left of a cut."""
        running = histogram[:, self.axes.offsets[column] : self.axes.offsets[column + 1]]
        order = category_order(*map(sums_of_bins, running), *self._steps, self._penalty)
        is_alone = self._category_modes[column] == 2
        return order[cut : cut + 1] if is_alone else order[: cut + 1]

    @cached_property
    def has_categories(self) -> bool:
        """True if any column holds categories."""
        return bool(self.axes.is_categorical.any())

    @cached_property
    def least_gain(self) -> float:
        """The smallest gain that is worth a split."""
        return max(self.gamma, math.nextafter(MIN_GAIN, math.inf))

    @cached_property
    def _penalty(self) -> tuple[float, float]:
        return float(self.reg_lambda), float(self.reg_alpha)

    @cached_property
    def _steps(self) -> tuple[float, float]:
        """Steps of the gradients' grid."""
        return 1.0 / self.grid.grad_scale, 1.0 / self.grid.hess_scale

    @cached_property
    def _category_modes(self) -> NDArray[np.int8]:
        """Per column: 0 for numbers, 1 for categories put in order, 2 for categories that each stand alone."""
        modes = np.where(self.axes.sizes - 1 <= self.max_cat_to_onehot, 2, 1)
        return np.where(self.axes.is_categorical, modes, 0).astype(np.int8)
