"""Rules that choose where nodes split."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import HistogramAxes, Mask, Nodes, Sums, Values
from opboost.trees.kernels import MIN_GAIN, best_cuts
from opboost.trees.losses import Grid


@dataclass(frozen=True, slots=True)
class Splits:
    """Nodes to divide, with the numbers of their children; all arrays have shape ``(n_splits,)``.

    A row goes left when its bin in `columns` is at most `cuts`, or when it is missing and `missing_left`.
    """

    nodes: Nodes
    columns: Nodes
    cuts: Nodes
    missing_left: Mask
    lefts: Nodes
    rights: Nodes


@dataclass(frozen=True, slots=True)
class BestCuts:
    """The best cut of each node; all arrays have shape ``(n_nodes,)``, `left_sums` has ``(n_nodes, 2)``."""

    is_worthwhile: Mask
    gains: Values
    columns: Nodes
    cuts: Nodes
    missing_left: Mask
    left_sums: Sums


@dataclass(frozen=True, slots=True)
class GreedySplitter:
    """XGBoost's exact greedy rule on histograms.

    ``gain = G_L^2 / (H_L + reg_lambda) + G_R^2 / (H_R + reg_lambda) - G^2 / (H + reg_lambda)``; a node splits when
    its gain exceeds 1e-6 and is at least `gamma`, and both children weigh at least `min_child_weight`.
    """

    axes: HistogramAxes
    grid: Grid
    reg_lambda: float
    gamma: float
    min_child_weight: float

    def choose(self, totals: Sums, histograms: Sums, columns: NDArray[np.int64]) -> BestCuts:
        """The best cut of each node among the given columns."""
        n_nodes = len(totals)
        gains = np.empty(n_nodes)
        best_columns, cuts = np.zeros(n_nodes, np.int32), np.zeros(n_nodes, np.int32)
        missing_left, left_sums = np.zeros(n_nodes, np.bool_), np.zeros((n_nodes, 2), np.int64)
        best_cuts(
            histograms, totals, self.axes.offsets, columns, self.grid.grad_scale, self.grid.hess_scale,
            float(self.reg_lambda), float(self.min_child_weight), gains, best_columns, cuts, missing_left, left_sums,
        )  # fmt: skip
        is_worthwhile = (gains > MIN_GAIN) & (gains >= self.gamma)
        return BestCuts(is_worthwhile, gains, best_columns, cuts, missing_left, left_sums)
