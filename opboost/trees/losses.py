"""Losses: gradients on a fixed integer grid, first scores, and scores to predictions.

Gradients are rounded to a grid whose step is a power of two, fixed before training. Sums of integers do not depend on
their order, so any number of threads and any division of the rows gives the same trees to the last bit.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit, softmax

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels import logistic_gradients, softmax_gradients, squared_gradients

# Gradients fill 30 bits of a 32-bit integer, so the sum over 2^31 rows still fits 62 bits.
GRID_BITS = 30

# Squares of gradients must not overflow.
MAX_LABEL = 1e100

# Residuals below this are as good as none.
LEAST_RESIDUAL = 1e-200


@dataclass(frozen=True, slots=True)
class Grid:
    """Steps of the integer gradients: ``gradient = integer / scale``.

    The step is fixed by the largest weight and residual, 30 bits below them; a weight or residual that is 10^9 times
    larger than the others leaves these no precision.

    Attributes
    ----------
    grad_scale, hess_scale : float
        Powers of two.
    """

    grad_scale: float
    hess_scale: float

    @classmethod
    def for_bounds(cls, max_grad: float, max_hess: float) -> Grid:
        """The finest grid on which gradients up to these magnitudes fit; larger ones saturate."""
        return cls(*(2.0 ** min(GRID_BITS - math.ceil(math.log2(bound)), 1000) for bound in (max_grad, max_hess)))


class Loss(Protocol):
    """What the core needs to know of an objective."""

    name: ClassVar[str]

    @property
    def n_outputs(self) -> int:
        """Trees per round."""

    def check_labels(self, labels: Values) -> None:
        """Refuse labels that the objective is not defined for."""

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        """Best constant raw score per output, shape ``(n_outputs,)``."""

    def score_of(self, base_score: float) -> float:
        """Raw score of a prediction that the user gives as a start."""

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> Grid:
        """A grid that holds the gradients of these rows."""

    def gradients(self, scores: Values, labels: Values, weights: Values, grid: Grid) -> NDArray[np.int32]:
        """Gradients and Hessians, shape ``(n_outputs, n_rows, 2)``; `scores` has shape ``(n_outputs, n_rows)``."""

    def predictions(self, scores: Values) -> Values:
        """Raw scores of shape ``(n_rows, n_outputs)`` to what users expect: probabilities or values."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """Binary cross-entropy on labels 0 and 1."""

    name: ClassVar[str] = "binary:logistic"

    @property
    def n_outputs(self) -> int:
        return 1

    def check_labels(self, labels: Values) -> None:
        if not np.isin(labels, (0.0, 1.0)).all():
            raise DataError(f"{self.name} needs labels 0 and 1; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        mean = np.average(labels, weights=weights)
        return np.array([logit(np.clip(mean, 1e-6, 1 - 1e-6))])

    def score_of(self, base_score: float) -> float:
        if not 0 < base_score < 1:
            raise ParameterError(f"base_score is a probability for {self.name}; got {base_score}")
        return float(logit(base_score))

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> Grid:
        heaviest = float(weights.max())
        return Grid.for_bounds(heaviest, heaviest / 4)

    def gradients(self, scores: Values, labels: Values, weights: Values, grid: Grid) -> NDArray[np.int32]:
        out = np.empty((1, len(labels), 2), dtype=np.int32)
        logistic_gradients(scores[0], labels, weights, grid.grad_scale, grid.hess_scale, out[0])
        return out

    def predictions(self, scores: Values) -> Values:
        return np.asarray(expit(scores[:, 0]))


@dataclass(frozen=True, slots=True)
class SquaredError:
    """Half the squared error."""

    name: ClassVar[str] = "reg:squarederror"

    @property
    def n_outputs(self) -> int:
        return 1

    def check_labels(self, labels: Values) -> None:
        if not (np.abs(labels) <= MAX_LABEL).all():
            raise DataError(f"{self.name} needs labels of magnitude {MAX_LABEL:g} at most; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([np.average(labels, weights=weights)])

    def score_of(self, base_score: float) -> float:
        return float(base_score)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> Grid:
        """Room for residuals of four times the largest one at the start; what exceeds it saturates."""
        heaviest = float(weights.max())
        largest = max(float(np.abs(labels - initial_scores[0]).max()), LEAST_RESIDUAL)
        return Grid.for_bounds(4 * largest * heaviest, heaviest)

    def gradients(self, scores: Values, labels: Values, weights: Values, grid: Grid) -> NDArray[np.int32]:
        out = np.empty((1, len(labels), 2), dtype=np.int32)
        squared_gradients(scores[0], labels, weights, grid.grad_scale, grid.hess_scale, out[0])
        return out

    def predictions(self, scores: Values) -> Values:
        return scores[:, 0].copy()


@dataclass(frozen=True, slots=True)
class Softmax:
    """Multiclass cross-entropy on labels ``0 .. n_classes - 1``, one tree per class and round."""

    name: ClassVar[str] = "multi:softprob"
    n_classes: int

    def __post_init__(self) -> None:
        if self.n_classes < 2:
            raise ParameterError(f"{self.name} needs at least 2 classes; got {self.n_classes}")

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def check_labels(self, labels: Values) -> None:
        if not np.isin(labels, np.arange(self.n_classes)).all():
            raise DataError(f"{self.name} needs labels 0..{self.n_classes - 1}; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        shares = np.bincount(labels.astype(np.int64), weights=weights, minlength=self.n_classes) / weights.sum()
        return np.log(np.clip(shares, 1e-6, None))

    def score_of(self, base_score: float) -> float:
        return float(base_score)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> Grid:
        heaviest = float(weights.max())
        return Grid.for_bounds(heaviest, heaviest / 2)

    def gradients(self, scores: Values, labels: Values, weights: Values, grid: Grid) -> NDArray[np.int32]:
        out = np.empty((self.n_classes, len(labels), 2), dtype=np.int32)
        softmax_gradients(scores, labels, weights, grid.grad_scale, grid.hess_scale, out)
        return out

    def predictions(self, scores: Values) -> Values:
        return np.asarray(softmax(scores, axis=1))


def loss_by_name(name: str, n_classes: int = 0) -> Loss:
    """The loss that a model file or a run file names."""
    match name:
        case Logistic.name:
            return Logistic()
        case SquaredError.name:
            return SquaredError()
        case Softmax.name:
            return Softmax(n_classes)
        case other:
            known = ", ".join((Logistic.name, SquaredError.name, Softmax.name))
            raise ParameterError(f"objective must be one of {known}; got {other!r}")
