"""Step 2a, noise distributions ("laws") on ``n`` integer points, with exact tables and exact privacy losses.

Every law is one of two shapes with some exponent: weight ``q**|x - y|``, ``q = exp(-exponent)``, either normalised
over the n points, or drawn on all integers and clamped to them.

===================  ===========  ========================  =======================================
law                  shape        exponent                  promise, for a budget of epsilon
===================  ===========  ========================  =======================================
``clamped``          clamped      epsilon                   exactly epsilon per unit of distance
``exponential``      normalised   epsilon / 2               epsilon, never tight
``calibrated``       normalised   solved: loss(1) = epsilon exactly epsilon
``bounded_laplace``  normalised   epsilon                   2 * epsilon
===================  ===========  ========================  =======================================

Source: OpBoost (VLDB 2023), Global-Map and Theorem 4.11; `clamped` and `calibrated` are derived in the project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from opboost.errors import ParameterError, is_number

# A reported loss may be below the exact one by rounding only; reports are moved up by this much, relatively.
ROUND_UP = 1.0 + 1e-12

# Below this budget outputs are uniform for all practical purposes, and the samplers would settle every draw.
LEAST_EPSILON = 1e-9

# Where double precision ends: with odds of e^36 to 1, a draw is as certain as one without noise.
MOST_EPSILON = 36.0


class Law(StrEnum):
    """Names of the noise distributions, the parameter `law`."""

    CLAMPED = "clamped"
    EXPONENTIAL = "exponential"
    CALIBRATED = "calibrated"
    BOUNDED_LAPLACE = "bounded_laplace"

    @property
    def promise(self) -> float:
        """Guaranteed loss per unit of distance, as a multiple of the budget."""
        return 2.0 if self is Law.BOUNDED_LAPLACE else 1.0


@dataclass(frozen=True, slots=True)
class Kernel:
    """A matrix ``P[x, y] = Pr[output = y | input = x]`` on the points ``0 .. n - 1``.

    Attributes
    ----------
    n : int
        Number of points.
    exponent : float
        Positive; infinite for the identity.
    is_clamped : bool
        Drawn on all integers and clamped, or normalised over the n points.
    """

    n: int
    exponent: float
    is_clamped: bool

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(n, n)``."""
        points = np.arange(self.n)
        distance = np.abs(points[:, None] - points[None, :]).astype(np.float64)
        if math.isinf(self.exponent):
            return np.where(distance == 0, 0.0, -np.inf)
        if not self.is_clamped:
            return -self.exponent * distance - self.log_norm(points)[:, None]
        table = -self.exponent * distance - _log1p_exp(-self.exponent)
        table[:, 1:-1] += _log_one_minus_exp(-self.exponent)
        if self.n == 1:
            table[:] = 0.0
        return table

    def log_norm(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """Log of the weights' sum in row `x`; zero for a clamped kernel, whose tails are not cut but moved."""
        if self.is_clamped or math.isinf(self.exponent):
            return np.zeros(np.shape(x))
        return np.log(self._total(np.asarray(x))) - _log_one_minus_exp(-self.exponent)

    def divergence(self, x: NDArray[np.int64], other: NDArray[np.int64]) -> NDArray[np.float64]:
        """Exact ``max over y of log P[x, y] - log P[other, y]``, elementwise."""
        x, other = np.asarray(x), np.asarray(other)
        distance = np.abs(x - other)
        if math.isinf(self.exponent):
            return np.where(distance == 0, 0.0, np.inf)
        if self.is_clamped:
            return self.exponent * distance
        # The norms' ratio is written so that nothing cancels, however small the exponent, and that only powers of
        # numbers below 1 occur, so that nothing overflows, however large it is.
        low, high = np.minimum(x, other), np.maximum(x, other)
        between = self.n - 1 - high - low
        difference = np.expm1(-self.exponent * distance) * np.expm1(-self.exponent * np.abs(between))
        from_end = np.minimum(low + 1.0, self.n - high)
        ratio = np.log1p(np.sign(between) * difference * np.exp(-self.exponent * from_end) / self._total(low))
        return self.exponent * distance + np.where(other >= x, ratio, -ratio)

    def loss(self, t: int) -> float:
        """Exact privacy loss at distance at most `t`: the largest log-ratio of two rows so far apart.

        For the normalised shape ``log_norm`` is concave and symmetric, so the worst pair at distance t is ``(0, t)``;
        and it never falls by more than the exponent from one point to the next, so the curve only rises.
        """
        t = min(int(t), self.n - 1)
        if t <= 0:
            return 0.0
        return float(self.divergence(np.array(0), np.array(t))) * ROUND_UP

    def _total(self, x: NDArray[np.int64]) -> NDArray[np.float64]:
        """``(1 - q)`` times the weights' sum in row `x`."""
        below = -np.expm1(-self.exponent * (x + 1.0))
        return below - math.exp(-self.exponent) * np.expm1(-self.exponent * (self.n - 1.0 - x))


def kernel(law: Law, n: int, epsilon: float) -> Kernel:
    """The kernel of a law on `n` points for a budget of `epsilon` per unit of distance (see the module's table)."""
    if law is Law.CLAMPED:
        return Kernel(n, epsilon, is_clamped=True)
    if law is Law.EXPONENTIAL:
        return Kernel(n, epsilon / 2, is_clamped=False)
    if law is Law.BOUNDED_LAPLACE:
        return Kernel(n, epsilon, is_clamped=False)
    return Kernel(n, calibrated_exponent(n, epsilon), is_clamped=False)


def calibrated_exponent(n: int, epsilon: float) -> float:
    """The largest exponent whose normalised kernel on `n` points loses at most `epsilon` between neighbours."""
    if n < 2 or math.isinf(epsilon):
        return epsilon

    def excess(exponent: float) -> float:
        return Kernel(n, exponent, is_clamped=False).loss(1) - epsilon

    # The loss lies between the exponent and twice the exponent, so the root lies in this bracket.
    low, high = epsilon / 2, epsilon
    if excess(low) >= 0:
        return low / ROUND_UP
    # Loads slowly, and no other law needs it.
    from scipy.optimize import brentq

    exponent = float(brentq(excess, low, high, xtol=1e-15 * epsilon, rtol=1e-15))
    while excess(exponent) > 0:
        exponent = exponent * (1 - 1e-13)
    return exponent


def check_epsilon(epsilon: float, name: str = "epsilon") -> float:
    """Return a budget that is a positive number (infinity means no noise), or refuse it."""
    if not is_number(epsilon) or not epsilon > 0:
        raise ParameterError(f"{name} must be positive (inf means no noise); got {epsilon!r}. Nothing was drawn")
    if epsilon < LEAST_EPSILON:
        raise ParameterError(f"{name} must be at least {LEAST_EPSILON:g}; got {epsilon}. Nothing was drawn")
    return float(epsilon)


def _log_one_minus_exp(x: float) -> float:
    """Log of ``1 - exp(x)`` for x < 0, without cancellation."""
    return math.log(-math.expm1(x)) if x > -math.log(2) else math.log1p(-math.exp(x))


def _log1p_exp(x: float) -> float:
    return math.log1p(math.exp(x))
