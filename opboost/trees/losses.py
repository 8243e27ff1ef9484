"""Losses: gradients on a fixed integer grid, first scores, and scores to predictions.

Gradients are rounded to a grid whose step is a power of two, fixed before training. Sums of integers do not depend on
their order, so any number of threads and any division of the rows gives the same trees to the last bit.

SciPy is loaded by what calls it: who has no labels has a run file with the same words, and starts without it, which
saves a sixth of a second.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import (
    pack_logistic_gradients,
    pack_poisson_gradients,
    pack_softmax_gradients,
    pack_squared_gradients,
)
from opboost.trees.kernels.packing import BLOCK, GRAD_BITS, HESS_BITS

# Squares of gradients must not overflow.
MAX_LABEL = 1e100

# Counts and their means.
MAX_POISSON_LABEL, LEAST_MEAN = 1e9, 1e-9

# Weights up to this are taken for counts if all are integers.
MAX_COUNT_OF_A_ROW = 16

# Residuals below this are as good as none.
LEAST_RESIDUAL = 1e-200


@dataclass(frozen=True, slots=True)
class GradientGrid:
    """Steps of the integer gradients: ``gradient = integer / scale``.

    The largest weight and residual fix the step, 22 bits below them for gradients and 17 for Hessians; one that is
    millions of times larger than the others leaves these no precision. Weights that are small integers multiply
    rounded gradients, so that a row of weight 2 counts exactly as the row twice.

    Attributes
    ----------
    grad_scale, hess_scale : float
        Powers of two.
    weights_are_counts : bool
        Whether gradients are rounded before the weights, which are integers, multiply them.
    block : int
        Rows whose packed gradients may be added before the sum is taken apart.
    """

    grad_scale: float
    hess_scale: float
    weights_are_counts: bool = False
    block: int = BLOCK

    @property
    def rounding(self) -> tuple[float, float, bool]:
        """How the compiled loops are to round."""
        return self.grad_scale, self.hess_scale, self.weights_are_counts

    @classmethod
    def for_bounds(cls, max_grad: float, max_hess: float, *, are_never_exceeded: bool = False) -> GradientGrid:
        """The finest grid that holds gradients up to these magnitudes; those beyond twice of them saturate.

        Of gradients that never exceed the bounds, twice as many less one fit a sum.
        """
        block = 2 * BLOCK - 1 if are_never_exceeded else BLOCK
        return cls(_scale(GRAD_BITS - 1, max_grad), _scale(HESS_BITS - 1, max_hess), block=block)

    @classmethod
    def for_weights(
        cls, max_grad: float, max_hess: float, weights: Values, *, are_never_exceeded: bool = False
    ) -> GradientGrid:
        """The finest grid that holds gradients up to these magnitudes, times the weights."""
        heaviest = float(weights.max())
        if 1 < heaviest <= MAX_COUNT_OF_A_ROW and (weights == np.rint(weights)).all():
            grid = cls.for_bounds(max_grad, max_hess, are_never_exceeded=are_never_exceeded)
            return replace(grid, weights_are_counts=True, block=grid.block >> math.ceil(math.log2(heaviest)))
        return cls.for_bounds(max_grad * heaviest, max_hess * heaviest, are_never_exceeded=are_never_exceeded)


def _scale(n_bits: int, bound: float) -> float:
    """The largest power of two by which numbers up to the bound stay within so many bits."""
    return 2.0 ** min(n_bits - math.ceil(math.log2(bound)), 1000)


class Loss(Protocol):
    """Interface of a loss (objective)."""

    name: ClassVar[str]
    score_type: ClassVar[type[np.floating]]
    """What raw scores are kept in while trees grow."""

    @property
    def n_outputs(self) -> int:
        """Trees per round."""

    @property
    def max_delta_step(self) -> float:
        """Bound of the leaves' magnitude that suits the loss; 0 for none."""

    def check_labels(self, labels: Values) -> None:
        """Refuse labels that the objective is not defined for."""

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        """Best constant raw score per output, shape ``(n_outputs,)``."""

    def score_of(self, base_score: float) -> float:
        """Raw score of a prediction that the user gives as a start."""

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """A grid that holds the gradients of these rows."""

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        """Write packed gradients and Hessians to `out`; it and `scores` have shape ``(n_outputs, n_rows)``."""

    def predictions(self, scores: Scores) -> Values:
        """Raw scores of shape ``(n_rows, n_outputs)`` to what users expect: probabilities or values."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """Binary cross-entropy on labels 0 and 1."""

    name: ClassVar[str] = "binary:logistic"
    score_type: ClassVar[type[np.floating]] = np.float32
    max_delta_step: ClassVar[float] = 0.0
    n_outputs: ClassVar[int] = 1

    def check_labels(self, labels: Values) -> None:
        if not np.isin(labels, (0.0, 1.0)).all():
            raise DataError(f"{self.name} needs labels 0 and 1; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        from scipy.special import logit

        mean = np.average(labels, weights=weights)
        return np.array([logit(np.clip(mean, 1e-6, 1 - 1e-6))])

    def score_of(self, base_score: float) -> float:
        from scipy.special import logit

        if not 0 < base_score < 1:
            raise ParameterError(f"base_score is a probability for {self.name}; got {base_score}")
        return float(logit(base_score))

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_weights(1.0, 0.25, weights, are_never_exceeded=True)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_logistic_gradients(scores[0], labels, weights, *grid.rounding, out[0])

    def predictions(self, scores: Scores) -> Values:
        from scipy.special import expit

        return np.asarray(expit(scores[:, 0]))


@dataclass(frozen=True, slots=True)
class SquaredError:
    """Half the squared error."""

    name: ClassVar[str] = "reg:squarederror"
    # Labels may lie far from 0, close together.
    score_type: ClassVar[type[np.floating]] = np.float64
    max_delta_step: ClassVar[float] = 0.0
    n_outputs: ClassVar[int] = 1

    def check_labels(self, labels: Values) -> None:
        if not (np.abs(labels) <= MAX_LABEL).all():
            raise DataError(f"{self.name} needs labels of magnitude {MAX_LABEL:g} at most; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([np.average(labels, weights=weights)])

    def score_of(self, base_score: float) -> float:
        return float(base_score)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for residuals of four times the largest one at the start; what exceeds it saturates."""
        largest = max(float(np.abs(labels - initial_scores[0]).max()), LEAST_RESIDUAL)
        return GradientGrid.for_weights(4 * largest, 1.0, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_squared_gradients(scores[0], labels, weights, *grid.rounding, out[0])

    def predictions(self, scores: Scores) -> Values:
        return np.array(scores[:, 0], dtype=np.float64)


@dataclass(frozen=True, slots=True)
class Poisson:
    """Negative log likelihood of counts, on the logarithm of their mean.

    As in XGBoost, Hessians are multiplied by ``exp(max_delta_step)``, which keeps the steps of an unbounded loss small.
    """

    name: ClassVar[str] = "count:poisson"
    score_type: ClassVar[type[np.floating]] = np.float32
    max_delta_step: ClassVar[float] = 0.7
    n_outputs: ClassVar[int] = 1

    def check_labels(self, labels: Values) -> None:
        if not ((labels >= 0) & (labels <= MAX_POISSON_LABEL)).all():
            raise DataError(f"{self.name} needs labels of at least 0 and at most {MAX_POISSON_LABEL:g}; found others")

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.array([math.log(max(np.average(labels, weights=weights), LEAST_MEAN))])

    def score_of(self, base_score: float) -> float:
        if not base_score > 0:
            raise ParameterError(f"base_score is a mean of counts for {self.name}, greater than 0; got {base_score}")
        return math.log(base_score)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for means of twice the largest count; what exceeds it saturates."""
        largest = max(float(labels.max()), math.exp(initial_scores[0]))
        return GradientGrid.for_weights(largest, largest * math.exp(self.max_delta_step), weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_poisson_gradients(scores[0], labels, weights, self.max_delta_step, *grid.rounding, out[0])

    def predictions(self, scores: Scores) -> Values:
        return np.asarray(np.exp(scores[:, 0]))


@dataclass(frozen=True, slots=True)
class Softmax:
    """Multiclass cross-entropy on labels ``0 .. n_classes - 1``, one tree per class and round."""

    name: ClassVar[str] = "multi:softprob"
    score_type: ClassVar[type[np.floating]] = np.float32
    max_delta_step: ClassVar[float] = 0.0
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

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_weights(1.0, 0.5, weights, are_never_exceeded=True)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_softmax_gradients(scores, labels, weights, *grid.rounding, out)

    def predictions(self, scores: Scores) -> Values:
        from scipy.special import softmax

        return np.asarray(softmax(scores, axis=1))


def loss_by_name(name: str, n_classes: int = 0) -> Loss:
    """The loss that a model file or a run file names."""
    match name:
        case Logistic.name:
            return Logistic()
        case SquaredError.name:
            return SquaredError()
        case Poisson.name:
            return Poisson()
        case Softmax.name:
            return Softmax(n_classes)
        case other:
            known = ", ".join((Logistic.name, SquaredError.name, Poisson.name, Softmax.name))
            raise ParameterError(f"objective must be one of {known}; got {other!r}")
