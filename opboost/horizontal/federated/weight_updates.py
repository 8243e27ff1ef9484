"""Weight updates: averaging, gradient and Newton leaf values (Maddock et al., CCS 2022, section 4.4).

Each update is a vector (G, H) that every record adds to sums, and a rule from noisy sums to a leaf's value.

=========  ======================  ==================  ==================================
update     vector of a record      sensitivity, paper  true supremum, used by default
=========  ======================  ==================  ==================================
newton     (g, h)                  sqrt(17) / 4        1: ``|g| = q`` leaves ``h = q (1 - q)``
gradient   (g, 1)                  sqrt(2)             sqrt(2)
averaging  (1[y = 1], 1)           sqrt(2)             1, if released as (1[y = 0], 1[y = 1])
=========  ======================  ==================  ==================================

For numbers, g is clipped, h is 1, and labels lie in [-1, 1].
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from opboost.arrays import Sums, Values
from opboost.errors import check_choice
from opboost.horizontal.rows.record_holder import (
    Clipping,
    Gradients,
    counted_logistic_gradients,
    logistic_gradients,
    squared_gradients,
)

UpdateName = Literal["averaging", "gradient", "newton"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """Weight update: the contribution of a record to sums, and leaf values from sums.

    Attributes
    ----------
    name : {"averaging", "gradient", "newton"}
    gradients : callable
        The two numbers of every record.
    clipping : Clipping
        Their bounds, their grid, and the sensitivity that the noise is scaled by.
    true_sensitivity : float
        The largest norm that a record's vector really has.
    hess_sensitivity : float
        Largest H of one record.
    has_class_counts : bool
        Whether the two numbers are counts of the two classes, which sum to H. The second one is G.
    is_classification : bool
        Labels 0 and 1; otherwise numbers in [-1, 1].
    """

    name: UpdateName
    gradients: Gradients
    clipping: Clipping
    true_sensitivity: float
    hess_sensitivity: float
    is_classification: bool
    has_class_counts: bool = False

    @property
    def lowest(self) -> float:
        """The lower end of labels; the upper one is 1."""
        return 0.0 if self.is_classification else -1.0

    @property
    def scales(self) -> tuple[float, float]:
        """Steps per unit of the two sums."""
        return self.clipping.grid.grad_scale, self.clipping.grid.hess_scale

    def read(self, sums: Sums) -> tuple[Values, Values]:
        """G and H of integer sums of shape ``(n_nodes, 2, ...)``, each of shape ``(n_nodes, ...)``."""
        first, second = sums[:, 0] / self.scales[0], sums[:, 1] / self.scales[1]
        if not self.has_class_counts:
            return first, second
        return (self.lowest * first + second), first + second

    def weights(self, sums: Sums) -> tuple[Sums, float]:
        """H alone, in integers, of sums of shape ``(n_nodes, 2, ...)``; and steps per unit."""
        if not self.has_class_counts:
            return sums[:, 1], self.scales[1]
        return sums[:, 0] + sums[:, 1] * round(self.scales[0] / self.scales[1]), self.scales[0]

    def max_value(self, rule: LeafRule) -> float:
        """Largest absolute value of a leaf."""
        return 1.0 if self.name == "averaging" else rule.learning_rate * rule.max_leaf

    def values(self, grad: Values, hess: Values, rule: LeafRule) -> Values:
        """Leaf values from noisy sums, the learning rate included."""
        if self.name == "averaging":
            middle = (self.lowest + 1) / 2
            means = np.divide(grad, hess, out=np.full_like(grad, middle), where=hess > 0)
            return np.clip(means, self.lowest, 1.0)
        # A denominator that noise has made negative says nothing about the gradients.
        weight = np.maximum(hess, 0.0) + rule.reg_lambda
        steps = np.divide(grad, weight, out=np.zeros_like(grad), where=(hess if rule.is_printed else weight) > 0)
        return -rule.learning_rate * np.clip(steps, -rule.max_leaf, rule.max_leaf)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafRule:
    """Settings that turn sums into leaf values and gains.

    Attributes
    ----------
    learning_rate, reg_lambda, max_leaf : float
        A leaf's value before the learning rate is at most `max_leaf`.
    is_printed : bool
        Whether a leaf whose noisy sum of H is not positive is 0, as the paper has it, rather than of no weight but that
        of the regulariser.
    """

    learning_rate: float
    reg_lambda: float
    max_leaf: float
    is_printed: bool = False

    def gain(self, grad: Values, hess: Values) -> Values:
        """Twice the gain of a node's best bounded value: ``G^2 / (H + reg_lambda)`` if it is not clipped."""
        weight = hess + self.reg_lambda
        safe = np.where(np.abs(weight) < 1e-12, 1e-12, weight)
        value = -grad / safe
        bounded = np.clip(value, -self.max_leaf, self.max_leaf)
        return np.where(value == bounded, grad * grad / safe, -(2 * grad * bounded + safe * bounded * bounded))


# Deviations of the noise on a leaf's sums that its regulariser is, in default mode: of classes, and of numbers, whose
# gradients are small beside their bounds. Of 5 to 80, on inner folds of four tables of classes and five of numbers at
# epsilon .1, .5, 1, 4: R^2 at .5 of .18 (mean of five) for 5, .46 for 20, .46 for 40; leaving out any table, 20 is best
# or within .01 of it.
_NOISE_LAMBDA, _NOISE_LAMBDA_OF_NUMBERS = 5.0, 20.0
_LEAST_LAMBDA = 1.0


def strength_for(std: float, *, is_classification: bool, is_printed: bool = False) -> float:
    """L2 regularisation for a standard deviation of the noise on leaf sums; 1 as published."""
    factor = _NOISE_LAMBDA if is_classification else _NOISE_LAMBDA_OF_NUMBERS
    return _LEAST_LAMBDA if is_printed else max(_LEAST_LAMBDA, factor * std)


def weight_update(
    name: UpdateName, *, is_classification: bool, is_printed: bool = False, max_grad: float = 1.0
) -> WeightUpdate:
    """Make the weight update of this name.

    Parameters
    ----------
    name : {"averaging", "gradient", "newton"}
    is_classification : bool
        Labels 0 and 1; otherwise numbers in [-1, 1].
    is_printed : bool
        Whether vectors and sensitivities are those of the paper.
    max_grad : float
        Bound of the gradients of numbers.
    """
    check_choice("weight_update", name, "averaging", "gradient", "newton")
    bound = 1.0 if is_classification else max_grad
    match name:
        case "newton" if is_classification:
            norm = math.inf if is_printed else 1.0
            return WeightUpdate(
                name=name,
                gradients=logistic_gradients,
                hess_sensitivity=0.25,
                true_sensitivity=1.0,
                is_classification=True,
                clipping=Clipping(max_grad=1.0, max_hess=0.25, max_norm=norm),
            )
        case "newton" | "gradient":
            return WeightUpdate(
                name=name,
                gradients=counted_logistic_gradients if is_classification else squared_gradients,
                clipping=Clipping(max_grad=bound, max_hess=1.0),
                hess_sensitivity=1.0,
                true_sensitivity=math.hypot(bound, 1.0),
                is_classification=is_classification,
            )
        case "averaging":
            return WeightUpdate(
                name=name,
                hess_sensitivity=1.0,
                is_classification=is_classification,
                has_class_counts=not is_printed,
                gradients=_labels if is_printed else (_class_counts if is_classification else _half_labels),
                clipping=Clipping(max_grad=1.0, max_hess=1.0, max_norm=math.inf if is_printed else 1.0),
                true_sensitivity=math.sqrt(2) if is_printed else 1.0,
            )


def _labels(scores: Values, labels: Values) -> tuple[Values, Values]:
    return labels, np.ones_like(labels)


def _class_counts(scores: Values, labels: Values) -> tuple[Values, Values]:
    return 1.0 - labels, labels


def _half_labels(scores: Values, labels: Values) -> tuple[Values, Values]:
    """Labels in [-1, 1] as two shares that sum to 1."""
    return (1.0 - labels) / 2, (1.0 + labels) / 2
