"""Leaf rules: values of leaves from sums."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Nodes, Sums, Values
from opboost.trees.kernels.nodes import finish_nodes, newton_values
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
        out = np.empty(len(totals))
        newton_values(totals, lower, upper, *self._rule, out)
        return out

    def finished(
        self, nodes: NDArray[Any], lower: Values, upper: Values, learning_rate: float
    ) -> tuple[Nodes, Values, Mask, Nodes, Nodes, Values, Values, Values]:
        """The arrays of a `Tree` of grown nodes, whose leaves get their values times the learning rate.

        Parameters
        ----------
        nodes : ndarray of NODE
        lower, upper : ndarray of float64
            Bounds of every node's value, or one for all.
        learning_rate : float
        """
        return finish_nodes(nodes, lower, upper, *self._rule, float(learning_rate))

    @property
    def _rule(self) -> tuple[Any, ...]:
        """Parameters of the leaf rule, as compiled loops take them."""
        penalty = float(self.reg_lambda), float(self.reg_alpha)
        return self.grid.grad_scale, self.grid.hess_scale, penalty, float(self.min_child_weight)
