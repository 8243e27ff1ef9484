"""Losses of survival times: a label greater than 0 is the time of an event, one below 0 minus the last time without.

That is XGBoost's form for Cox's model; its other one, with bounds of the time, is made of it.
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
        check_times(self.name, labels)

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([np.average(np.log(np.abs(labels)), weights=weights)])

    def labels_of_xgboost(self, labels: Values) -> Mapping[str, Values]:
        upper = np.where(labels > 0, labels, np.inf)
        return {"label_lower_bound": np.abs(labels), "label_upper_bound": upper}

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_weights(MAX_AFT, MAX_AFT, weights, are_never_exceeded=True)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        z = np.clip((np.log(np.abs(labels)) - scores[0]) / self.aft_loss_distribution_scale, -700.0, 700.0)
        slope, curvature = self._slopes(z, labels > 0)
        grad = np.clip(slope / self.aft_loss_distribution_scale, -MAX_AFT, MAX_AFT)
        hess = np.clip(curvature / self.aft_loss_distribution_scale**2, MIN_HESS, MAX_AFT)
        pack_gradients(grad, hess, weights, *grid.rounding, out[0])

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
