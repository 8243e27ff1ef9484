"""Losses of survival times: a label greater than 0 is the time of an event, one below 0 minus the last time without.

That is XGBoost's form for Cox's model; its other one, with bounds of the time, is made of it. Accelerated failure times
take bounds, too: labels of shape ``(n_rows, 2)``, whose upper one is 0 or infinite where none is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import MIN_HESS, pack_gradients
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.numbers import MAX_MEAN, LogMean

# XGBoost's bound of the gradients and Hessians of accelerated failure times.
MAX_AFT = 15.0


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
        grad, hess = self._pairs(np.full(len(labels), initial_scores[0]), labels)
        return GradientGrid.for_weights(
            2 * max(float(np.abs(grad).max()), 1.0), 2 * max(float(hess.max()), 1.0), weights
        )

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_gradients(*self._pairs(scores[0], labels), weights, *grid.rounding, out[0])

    def _pairs(self, scores: Scores, labels: Values) -> tuple[Values, Values]:
        times = np.abs(labels)
        order = np.argsort(times, kind="stable")
        times, is_event = times[order], labels[order] > 0
        hazards = np.exp(scores[order] - scores.max())
        first = np.searchsorted(times, times)
        at_risk = np.cumsum(hazards[::-1])[::-1][first]
        once, twice = np.cumsum(is_event / at_risk), np.cumsum(is_event / at_risk**2)
        grad, hess = np.empty((2, len(labels)))
        grad[order] = hazards * once - is_event
        hess[order] = np.maximum(hazards * once - hazards**2 * twice, 0.0)
        return grad, hess


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
        if self.aft_loss_distribution not in ("normal", "logistic", "extreme"):
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
        return GradientGrid.for_weights(MAX_AFT, MAX_AFT, weights, are_never_exceeded=True)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        lower, upper = bounds_of(labels)
        low = np.clip((np.log(lower) - scores[0]) / self.aft_loss_distribution_scale, -700.0, 700.0)
        is_between = (lower < upper) & (upper < np.inf)
        if not is_between.any():
            slope, curvature = self._slopes(low, lower == upper)
        else:
            slope, curvature = np.empty((2, len(lower)))
            alone, between = np.flatnonzero(~is_between), np.flatnonzero(is_between)
            slope[alone], curvature[alone] = self._slopes(low[alone], (lower == upper)[alone])
            high = np.clip((np.log(upper[between]) - scores[0, between]) / self.aft_loss_distribution_scale, -700, 700)
            slope[between], curvature[between] = self._slopes_between(low[between], high)
        grad = np.clip(slope / self.aft_loss_distribution_scale, -MAX_AFT, MAX_AFT)
        hess = np.clip(curvature / self.aft_loss_distribution_scale**2, MIN_HESS, MAX_AFT)
        pack_gradients(grad, hess, weights, *grid.rounding, out[0])

    def _slopes_between(self, low: Values, high: Values) -> tuple[Values, Values]:
        """Derivatives by the score of a scale of 1: of the negative log probability of an interval."""
        from scipy.special import expit, ndtr

        ends = np.stack([low, high])
        match self.aft_loss_distribution:
            case "normal":
                density = np.exp(-(ends**2) / 2) / np.sqrt(2 * np.pi)
                bend, (above, below) = -ends * density, (ndtr(-ends), ndtr(ends))
            case "logistic":
                above, below = expit(-ends), expit(ends)
                density = above * below
                bend = density * (above - below)
            case _:
                powers = np.exp(np.minimum(ends, 7.0))
                above, below = np.exp(-powers), -np.expm1(-powers)
                density = powers * above
                bend = density * (1 - powers)
        # Of the two tails the shorter one keeps its precision.
        inside = np.maximum(np.where(low > 0, above[0] - above[1], below[1] - below[0]), 1e-12)
        slope = (density[1] - density[0]) / inside
        return slope, slope**2 - (bend[1] - bend[0]) / inside

    def _slopes(self, z: Values, is_event: NDArray[np.bool_]) -> tuple[Values, Values]:
        """Derivatives by the score of a scale of 1: of the log density's negative, or of the log survival's."""
        from scipy.special import expit, log_ndtr

        match self.aft_loss_distribution:
            case "normal":
                hazard = np.exp(-(z**2) / 2 - log_ndtr(-z)) / np.sqrt(2 * np.pi)
                return np.where(is_event, -z, -hazard), np.where(is_event, 1.0, hazard * (hazard - z))
            case "logistic":
                share = expit(z)
                return np.where(is_event, 1 - 2 * share, -share), (1.0 + is_event) * share * (1 - share)
            case _:
                return is_event - np.exp(z), np.exp(z)
