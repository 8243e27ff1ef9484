"""An objective that the caller computes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import pack_gradients
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import Loss

Slopes = Callable[[Values, Values], tuple[Values, Values]]
"""Takes labels and raw scores; the first and second derivatives of the loss by the score, each of shape (n_rows,)."""


@dataclass(frozen=True, slots=True)
class Custom(Loss):
    """A loss of one raw score, which is the prediction, given by its derivatives.

    Attributes
    ----------
    slopes : callable, optional
        See `Slopes`. A model that was read from a file has none, and only predicts.
    """

    name: ClassVar[str] = "custom"
    score_type: ClassVar[type[np.floating]] = np.float64
    predicts_labels: ClassVar[bool] = False
    slopes: Slopes | None = None

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.zeros(1)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for four times the largest derivatives at the start; what exceeds it saturates."""
        grad, hess = self.pairs(labels, np.full(len(labels), initial_scores[0]))
        largest = (4 * max(float(np.abs(each).max()), 1e-100) for each in (grad, hess))
        return GradientGrid.for_weights(next(largest), next(largest), weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_gradients(*self.pairs(labels, scores[0].copy()), weights, *grid.rounding, out[0])

    def pairs(self, labels: Values, scores: Values) -> tuple[Values, Values]:
        """The derivatives, checked.

        Raises
        ------
        DataError, ParameterError
        """
        if self.slopes is None:
            raise ParameterError("a custom objective that was read from a file can predict, and not train")
        grad, hess = (np.asarray(each, dtype=np.float64) for each in self.slopes(labels, scores))
        if (
            not grad.shape == hess.shape == labels.shape
            or not (np.isfinite(grad) & (hess >= 0) & (hess < np.inf)).all()
        ):
            raise DataError(
                f"a custom objective must give finite derivatives of shape {labels.shape}, the second ones at least 0; "
                f"it gave shapes {grad.shape} and {hess.shape}, or other numbers"
            )
        return grad, hess
