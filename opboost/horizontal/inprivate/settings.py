"""Settings of an InPrivate model, and how its budget divides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.coins import RecordCoins

# Budgets are split into shares whose sum, rounded up, must not exceed the whole.
ROUND_DOWN = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class InPrivateSettings:
    """Settings of an InPrivate model.

    Attributes
    ----------
    n_rounds : int
        Turns of every owner.
    max_depth : int
        Levels of splits.
    learning_rate : float
        The paper has 1.
    reg_lambda : float
        Least denominator of a leaf.
    noise_lambda : float
        A leaf's denominator is at least so many scales of the noise on it.
    max_residual : float
        B, to which residuals are clipped: the paper takes 1 for their bound, which they exceed.
    utility_range : float, optional
        Of the squared error; ``4 B^2`` is right.
    """

    n_rounds: int
    max_depth: int
    learning_rate: float
    reg_lambda: float
    noise_lambda: float
    max_residual: float = 1.0
    utility_range: float | None = None

    @property
    def max_value(self) -> float:
        """Largest absolute value of a leaf."""
        return self.learning_rate * self.max_residual

    @property
    def clipping(self) -> Clipping:
        """Bounds of a record's residual and of its count."""
        return Clipping(max_grad=self.max_residual, max_hess=1.0)

    @property
    def coins(self) -> RecordCoins:
        """Probabilities with which a record is in each round: a half, a quarter, ..."""
        return RecordCoins(tuple(2.0 ** -(r + 1) for r in range(self.n_rounds)))

    def split_epsilon(self, epsilon: float) -> float:
        """Epsilon of one level of splits."""
        return epsilon / (2 * self.max_depth) if self.max_depth else math.inf

    def leaf_epsilon(self, epsilon: float) -> float:
        """Epsilon of the leaves' sums, and of their denominators, each."""
        return epsilon / 4 if self.max_depth else epsilon / 2
