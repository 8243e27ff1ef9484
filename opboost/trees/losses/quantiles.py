"""Losses of quantiles, under XGBoost's names: gradients choose the splits, quantiles of residuals are the leaves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import ParameterError
from opboost.trees.kernels.gradients import pack_sided_gradients
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import Loss


def weighted_quantile(values: Values, weights: Values, alpha: float) -> float:
    """The smallest value such that those up to it have a share of at least `alpha` in the weights."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order])
    place = np.searchsorted(reached, alpha * reached[-1])
    return float(values[order[min(place, len(order) - 1)]])


@dataclass(frozen=True, slots=True)
class Quantiles(Loss):
    """Pinball losses of several quantiles, one tree each; leaves take the quantile of their rows' residuals.

    Attributes
    ----------
    quantile_alpha : tuple of float
        Each between 0 and 1.
    """

    name: ClassVar[str] = "reg:quantileerror"
    score_type: ClassVar[type[np.floating]] = np.float64
    predicts_labels: ClassVar[bool] = False
    quantile_alpha: tuple[float, ...] = (0.5,)

    def __post_init__(self) -> None:
        if not self.quantile_alpha or not all(0 < alpha < 1 for alpha in self.quantile_alpha):
            raise ParameterError(
                f"quantile_alpha must list numbers greater than 0 and less than 1; got {self.quantile_alpha}"
            )

    @property
    def n_outputs(self) -> int:
        return len(self.quantile_alpha)

    @property
    def settings(self) -> dict[str, Any]:
        return {"quantile_alpha": self.quantile_alpha}

    @property
    def leaf_quantiles(self) -> tuple[float, ...]:
        return self.quantile_alpha

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([weighted_quantile(labels, weights, alpha) for alpha in self.quantile_alpha])

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_unit_hessians(1.0, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        for of_output, alpha, to in zip(scores, self.quantile_alpha, out, strict=True):
            pack_sided_gradients(of_output, labels, weights, -alpha, 1 - alpha, 1 - alpha, *grid.rounding, to)

    def predictions(self, scores: Scores) -> Values:
        return np.array(scores[:, 0] if len(self.quantile_alpha) == 1 else scores, dtype=np.float64)


@dataclass(frozen=True, slots=True)
class AbsoluteError(Loss):
    """The absolute error; leaves take the median of their rows' residuals."""

    name: ClassVar[str] = "reg:absoluteerror"
    score_type: ClassVar[type[np.floating]] = np.float64

    @property
    def leaf_quantiles(self) -> tuple[float, ...]:
        return (0.5,)

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([weighted_quantile(labels, weights, 0.5)])

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_unit_hessians(1.0, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_sided_gradients(scores[0], labels, weights, -1.0, 0.0, 1.0, *grid.rounding, out[0])
