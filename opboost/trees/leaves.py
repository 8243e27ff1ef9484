"""Leaf rules: values of leaves from sums."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from opboost.arrays import Sums, Values
from opboost.trees.kernels.nodes import newton_values
from opboost.trees.losses import GradientGrid
from opboost.trees.parameters import BoostingParameters


@dataclass(frozen=True, slots=True)
class NewtonLeaves:
    """``-G / (H + reg_lambda)``, G less `reg_alpha`, and 0 for a leaf that is too light, as in XGBoost."""

    grid: GradientGrid
    reg_lambda: float
    min_child_weight: float
    reg_alpha: float = 0.0

    @classmethod
    def of(cls, parameters: BoostingParameters, grid: GradientGrid) -> NewtonLeaves:
        """The rule of these parameters."""
        return cls(grid, parameters.reg_lambda, parameters.min_child_weight, parameters.reg_alpha)

    def values(self, totals: Sums, lower: Values, upper: Values) -> Values:
        """Leaf values for sums of shape ``(n_leaves, 2)``, within the leaves' bounds."""
        out, of = np.empty(len(totals)), self.grid
        least = float(self.min_child_weight)
        newton_values(
            totals,
            lower,
            upper,
            of.grad_scale,
            of.hess_scale,
            (float(self.reg_lambda), float(self.reg_alpha)),
            least,
            out,
        )
        return out
