"""Losses of classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import pack_logistic_gradients, pack_softmax_gradients
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import Loss


@dataclass(frozen=True, slots=True)
class Logistic(Loss):
    """Binary cross-entropy on labels 0 and 1."""

    name: ClassVar[str] = "binary:logistic"

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
        return GradientGrid.for_weights(1.0, 0.25, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_logistic_gradients(scores[0], labels, weights, *grid.rounding, out[0])

    def predictions(self, scores: Scores) -> Values:
        from scipy.special import expit

        return np.asarray(expit(scores[:, 0]))


@dataclass(frozen=True, slots=True)
class Softmax(Loss):
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

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return GradientGrid.for_weights(1.0, 0.5, weights)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        pack_softmax_gradients(scores, labels, weights, *grid.rounding, out)

    def predictions(self, scores: Scores) -> Values:
        from scipy.special import softmax

        return np.asarray(softmax(scores, axis=1))


@dataclass(frozen=True, slots=True)
class Ordinal(Loss):
    """Binary cross-entropies of "above class k" for ordered classes ``0 .. n_classes - 1``, one tree for each k.

    Predicted shares above a class never exceed those above the class before it.
    """

    name: ClassVar[str] = "ordinal:logistic"
    n_classes: int

    def __post_init__(self) -> None:
        if self.n_classes < 3:
            raise ParameterError(f"{self.name} needs at least 3 classes; got {self.n_classes}")

    @property
    def n_outputs(self) -> int:
        return self.n_classes - 1

    def check_labels(self, labels: Values) -> None:
        Softmax(self.n_classes).check_labels(labels)

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.concatenate([Logistic().initial_scores(above, weights) for above in self._above(labels)])

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        return Logistic().grid(labels, weights, initial_scores)

    def gradients(
        self, scores: Scores, labels: Values, weights: Values, grid: GradientGrid, *, out: NDArray[np.int64]
    ) -> None:
        for of_output, above, to in zip(scores, self._above(labels), out, strict=True):
            pack_logistic_gradients(of_output, above, weights, *grid.rounding, to)

    def predictions(self, scores: Scores) -> Values:
        from scipy.special import expit

        above = np.minimum.accumulate(expit(scores), axis=1)
        return -np.diff(above, prepend=1.0, append=0.0, axis=1)

    def _above(self, labels: Values) -> list[Values]:
        return [(labels > k).astype(np.float64) for k in range(self.n_outputs)]
