"""Losses of numbers, under XGBoost's names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import (
    pack_gamma_gradients,
    pack_huber_gradients,
    pack_poisson_gradients,
    pack_squared_gradients,
    pack_tweedie_gradients,
)
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import Loss

# Counts and their means.
MAX_MEAN, LEAST_MEAN = 1e9, 1e-9

# Residuals below this are as good as none.
LEAST_RESIDUAL = 1e-200


@dataclass(frozen=True, slots=True)
class SquaredError(Loss):
    """Half the squared error."""

    name: ClassVar[str] = "reg:squarederror"
    # Labels may lie far from 0, close together.
    score_type: ClassVar[type[np.floating]] = np.float64

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for residuals of four times the largest one at the start; what exceeds it saturates."""
        largest = max(float(np.abs(labels - initial_scores[0]).max()), LEAST_RESIDUAL)
        return GradientGrid.for_unit_hessians(4 * largest, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_squared_gradients(scores[0], labels, weights, *grid.rounding, out[0])


class LogMean(Loss):
    """A loss on the logarithm of a mean, of labels that are at least 0."""

    __slots__ = ()
    # Far beyond the logarithm of any count or exposure; single precision holds its exponential, and sums of these.
    most_margin: ClassVar[float] = 50.0
    # A Newton step far beyond the logarithm of a ratio of labels: it only leads back.
    longest_step: ClassVar[float] = 10.0

    def check_labels(self, labels: Values) -> None:
        if not ((labels >= 0) & (labels <= MAX_MEAN)).all():
            raise DataError(f"{self.name} needs labels of at least 0 and at most {MAX_MEAN:g}; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([math.log(max(np.average(labels, weights=weights), LEAST_MEAN))])

    def score_of(self, base_score: float) -> float:
        if not base_score > 0:
            raise ParameterError(f"base_score is a mean for {self.name}, greater than 0; got {base_score}")
        return math.log(base_score)

    def predictions(self, scores: Scores) -> Values:
        return np.asarray(np.exp(scores[:, 0]))


@dataclass(frozen=True, slots=True)
class Poisson(LogMean):
    """Negative log likelihood of counts, on the logarithm of their mean.

    As in XGBoost, Hessians are multiplied by ``exp(max_delta_step)``, which keeps the steps of an unbounded loss small.
    """

    name: ClassVar[str] = "count:poisson"
    max_delta_step: ClassVar[float] = 0.7

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for means of twice the largest count; what exceeds it saturates."""
        largest = max(float(labels.max()), float(np.exp(initial_scores[0]).max()))
        return GradientGrid.for_weights(largest, largest * math.exp(self.max_delta_step), weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_poisson_gradients(scores[0], labels, weights, self.max_delta_step, *grid.rounding, out[0])


@dataclass(frozen=True, slots=True)
class Gamma(LogMean):
    """Negative log likelihood of gamma distributed labels, greater than 0."""

    name: ClassVar[str] = "reg:gamma"

    def check_labels(self, labels: Values) -> None:
        if not ((labels > 0) & (labels <= MAX_MEAN)).all():
            raise DataError(f"{self.name} needs labels greater than 0 and at most {MAX_MEAN:g}; found others")

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for twice the largest share of a label in its mean at the start; what exceeds it saturates."""
        largest = 2 * max(float((labels / np.exp(initial_scores[0])).max()), 1.0)
        return GradientGrid.for_weights(largest, largest, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_gamma_gradients(scores[0], labels, weights, *grid.rounding, out[0])


@dataclass(frozen=True, slots=True)
class Tweedie(LogMean):
    """Negative log likelihood of the Tweedie distribution, of labels that are 0 or spread: claims, sales.

    Attributes
    ----------
    tweedie_variance_power : float
        Of the mean that the variance grows with, between 1 (Poisson) and 2 (gamma).
    """

    name: ClassVar[str] = "reg:tweedie"
    tweedie_variance_power: float = 1.5

    def __post_init__(self) -> None:
        if not 1 < self.tweedie_variance_power < 2:
            raise ParameterError(
                f"tweedie_variance_power must be greater than 1 and less than 2; got {self.tweedie_variance_power}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {"tweedie_variance_power": self.tweedie_variance_power}

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for twice the largest terms at the start; what exceeds it saturates."""
        mean = np.exp(initial_scores[0])
        label, power = np.maximum(labels.max(), mean), self.tweedie_variance_power
        largest = 2 * float(np.maximum(label * mean ** (1 - power), label ** (2 - power)).max())
        return GradientGrid.for_weights(largest, 2 * largest, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_tweedie_gradients(scores[0], labels, weights, self.tweedie_variance_power, *grid.rounding, out[0])


@dataclass(frozen=True, slots=True)
class PseudoHuber(Loss):
    """The Pseudo-Huber loss: squared near 0, absolute far from it.

    Attributes
    ----------
    huber_slope : float
        Residuals much larger than this count as they are, smaller ones squared.
    """

    name: ClassVar[str] = "reg:pseudohubererror"
    score_type: ClassVar[type[np.floating]] = np.float64
    huber_slope: float = 1.0

    def __post_init__(self) -> None:
        if not 1e-100 <= self.huber_slope <= 1e100:
            raise ParameterError(f"huber_slope must be a number greater than 0; got {self.huber_slope}")

    @property
    def settings(self) -> dict[str, Any]:
        return {"huber_slope": self.huber_slope}

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_weights(self.huber_slope, 1.0, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_huber_gradients(scores[0], labels, weights, self.huber_slope, *grid.rounding, out[0])
