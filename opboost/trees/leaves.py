"""Rules that give leaves their values."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opboost.arrays import Sums, Values
from opboost.trees.losses import Grid


@dataclass(frozen=True, slots=True)
class NewtonLeaves:
    """``-G / (H + reg_lambda)``, and 0 for a leaf that is too light, as in XGBoost."""

    grid: Grid
    reg_lambda: float
    min_child_weight: float

    def values(self, totals: Sums, lower: Values, upper: Values) -> Values:
        """Leaf values for sums of shape ``(n_leaves, 2)``, within the leaves' bounds."""
        grad, hess = totals[:, 0] / self.grid.grad_scale, totals[:, 1] / self.grid.hess_scale
        denominator = hess + self.reg_lambda
        is_heavy = (hess >= self.min_child_weight) & (hess > 0) & (denominator > 0)
        newton = np.where(is_heavy, -grad / np.where(is_heavy, denominator, 1.0), 0.0)
        return np.clip(newton, lower, upper)
