"""Losses of survival times: a label greater than 0 is the time of an event, one below 0 minus the last time without.

That is XGBoost's form for Cox's model; its other one, with bounds of the time, is made of it. Accelerated failure times
take bounds, too: labels of shape ``(n_rows, 2)``, whose upper one is 0 or infinite where none is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import pack_gradients
from opboost.trees.kernels.survival import MAX_AFT, hazard_gradients, pack_failure_gradients
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import WriteGradients
from opboost.trees.losses.numbers import MAX_MEAN, LogMean

# In the order of the kernel's numbers.
NOISES = "normal", "logistic", "extreme"


def check_times(name: str, labels: Values) -> None:
    """Refuse labels that are no times.

    Raises
    ------
    DataError
    """
    if not ((labels != 0) & (np.abs(labels) <= MAX_MEAN)).all():
        raise DataError(
            f"{name} needs times of events, or minus the last time without one, of magnitude {MAX_MEAN:g} at most "
            "and not 0; found others"
        )


def bounds_of(labels: Values) -> tuple[Values, Values]:
    """Lower and upper bounds of times, infinite for none, of labels in either form."""
    if labels.ndim == 1:
        return np.abs(labels), np.where(labels > 0, labels, np.inf)
    return labels[:, 0], np.where(labels[:, 1] == 0, np.inf, labels[:, 1])


def signed_times(labels: Values) -> Values:
    """Labels of one number for bounds: the middle of an interval, minus the lower bound where there is no upper one."""
    lower, upper = bounds_of(labels)
    return np.where(np.isinf(upper), -lower, (lower + np.where(np.isinf(upper), 0.0, upper)) / 2)


@dataclass(frozen=True, slots=True)
class Cox(LogMean):
    """Negative partial log likelihood of proportional hazards; predictions are hazard ratios.

    As in XGBoost, of events at the same time each counts those before it, and weights do not enter the sums over those
    at risk.
    """

    name: ClassVar[str] = "survival:cox"
    score_type: ClassVar[type[np.floating]] = np.float64
    predicts_labels: ClassVar[bool] = False

    def check_labels(self, labels: Values) -> None:
        check_times(self.name, labels)

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.zeros(1)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for twice the largest terms at the start; what exceeds it saturates."""
        grad, hess = self._pairs_of(labels)(np.full(len(labels), initial_scores[0]))
        return GradientGrid.for_weights(
            2 * max(float(np.abs(grad).max()), 1.0), 2 * max(float(hess.max()), 1.0), weights
        )

    def gradients_of(self, labels: Values, weights: Values, grid: GradientGrid) -> WriteGradients:
        pairs_of = self._pairs_of(labels)
        return lambda scores, out: pack_gradients(*pairs_of(scores[0]), weights, *grid.rounding, out[0])

    def _pairs_of(self, labels: Values) -> Callable[[Scores], tuple[Values, Values]]:
        """Takes scores of the rows; gives their gradients and Hessians."""
        order = np.argsort(np.abs(labels), kind="stable")
        times, is_event = np.abs(labels)[order], labels[order] > 0

        def pairs(scores: Scores) -> tuple[Values, Values]:
            grad, hess = np.empty((2, len(labels)))
            hazard_gradients(scores, order, times, is_event, grad, hess)
            return grad, hess

        return pairs


@dataclass(frozen=True, slots=True)
class AcceleratedFailure(LogMean):
    """Negative log likelihood of log times that are the score and noise; predictions are times.

    Attributes
    ----------
    aft_loss_distribution : {"normal", "logistic", "extreme"}
        Of the noise.
    aft_loss_distribution_scale : float
        Of the noise.
    """

    name: ClassVar[str] = "survival:aft"
    score_type: ClassVar[type[np.floating]] = np.float64
    predicts_labels: ClassVar[bool] = False
    takes_pairs: ClassVar[bool] = True
    aft_loss_distribution: Literal["normal", "logistic", "extreme"] = "normal"
    aft_loss_distribution_scale: float = 1.0

    def __post_init__(self) -> None:
        if self.aft_loss_distribution not in NOISES:
            raise ParameterError(
                f"aft_loss_distribution must be normal, logistic or extreme; got {self.aft_loss_distribution!r}"
            )
        if not 1e-3 <= self.aft_loss_distribution_scale <= 1e3:
            raise ParameterError(
                f"aft_loss_distribution_scale must be from 0.001 to 1000; got {self.aft_loss_distribution_scale}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {
            "aft_loss_distribution": self.aft_loss_distribution,
            "aft_loss_distribution_scale": self.aft_loss_distribution_scale,
        }

    def check_labels(self, labels: Values) -> None:
        if labels.ndim == 1:
            check_times(self.name, labels)
            return
        lower, upper = bounds_of(labels)
        if (
            not ((lower > 0) & (lower <= MAX_MEAN) & (lower <= upper)).all()
            or not ((upper <= MAX_MEAN) | np.isinf(upper)).all()
        ):
            raise DataError(
                f"{self.name} needs bounds of times greater than 0 and at most {MAX_MEAN:g}, the lower one first, and "
                "0 for no upper one; found others"
            )

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        times = np.abs(labels if labels.ndim == 1 else signed_times(labels))
        return np.array([np.average(np.log(times), weights=weights)])

    def labels_of_xgboost(self, labels: Values) -> Mapping[str, Values]:
        lower, upper = bounds_of(labels)
        return {"label_lower_bound": lower, "label_upper_bound": upper}

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_weights(MAX_AFT, MAX_AFT, weights)

    def gradients_of(self, labels: Values, weights: Values, grid: GradientGrid) -> WriteGradients:
        lower, upper = (np.log(np.ascontiguousarray(one)) for one in bounds_of(labels))
        noise = NOISES.index(self.aft_loss_distribution), self.aft_loss_distribution_scale
        return lambda scores, out: pack_failure_gradients(
            scores[0], lower, upper, weights, *noise, *grid.rounding, out[0]
        )
