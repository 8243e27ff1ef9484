"""Settings of an InPrivate model, and how its budget divides."""

from __future__ import annotations

import math
from dataclasses import dataclass

from opboost.privacy.coins import RecordCoins

# Budgets are split into shares whose sum, rounded up, must not exceed the whole.
ROUND_DOWN = 1 - 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class InPrivateSettings:
    """What an InPrivate model is made of.

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
    def coins(self) -> RecordCoins:
        """In which round a record is: a half, a quarter, ..."""
        return RecordCoins(tuple(2.0 ** -(r + 1) for r in range(self.n_rounds)))

    def split_epsilon(self, epsilon: float) -> float:
        """What one level of splits may spend."""
        return epsilon / (2 * self.max_depth) if self.max_depth else math.inf

    def leaf_epsilon(self, epsilon: float) -> float:
        """What the leaves' sums, and their denominators, may spend each."""
        return epsilon / 4 if self.max_depth else epsilon / 2
