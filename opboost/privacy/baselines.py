"""Numeric epsilon-LDP mechanisms, as baselines for the order-preserving mechanisms.

Each maps the domain to [-1, 1], draws a real number, maps it back, rounds it and clips it to the domain; rounding and
clipping are post-processing. They protect all values alike, whatever their distance, and keep far less order.

Sources: Piecewise and Hybrid: Wang et al., ICDE 2019, algorithms 2 and 3. Duchi: Duchi, Jordan and Wainwright, JASA
2018, in the one-dimensional form of Wang et al., algorithm 1.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from decimal import Context, Decimal, localcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Codes
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.laws import ROUND_UP, check_epsilon
from opboost.privacy.settling import Boundary, LazyUniform, smallest_where
from opboost.rng import BitSource

# Budget up to which Hybrid is Duchi's mechanism alone (Wang et al., equation 9).
HYBRID_THRESHOLD = math.log(
    (-5 + 2 * (6353 - 405 * math.sqrt(241)) ** (1 / 3) + 2 * (6353 + 405 * math.sqrt(241)) ** (1 / 3)) / 27
)

# Values that are randomised at a time.
CHUNK_DRAWS = 1 << 16

# Bound on the rounding error of a distribution function below, with room to spare.
_SLACK = 1e-13


@dataclass(frozen=True, slots=True, kw_only=True)
class _RealMechanism(ABC):
    """A mechanism on [-1, 1] whose distribution function is known in closed form.

    `_cdf` is written with arithmetic operators alone, so that it serves arrays of doubles, to draw and to tabulate,
    and decimals, to settle a draw that doubles cannot decide.
    """

    name: ClassVar[str]
    epsilon: float
    domain: IntegerDomain

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))

    @abstractmethod
    def _cdf(self, v: Any, b: Any, s: Any) -> Any:
        """``Pr[output < b | input = v]`` for ``s = exp(epsilon / 2)``."""

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(n, n)``."""
        n = self.domain.size
        if math.isinf(self.epsilon):
            return np.where(np.eye(n, dtype=np.bool_), 0.0, -np.inf)
        v, b = self._scaled(np.arange(n)), self._scaled(np.arange(1, n) - 0.5)
        inner = np.broadcast_to(self._cdf(v[:, None], b, math.exp(self.epsilon / 2)), (n, n - 1))
        cumulative = np.concatenate([np.zeros((n, 1)), inner, np.ones((n, 1))], axis=1)
        probabilities = np.diff(cumulative, axis=1)
        with np.errstate(divide="ignore"):
            return np.log(np.where(probabilities > _SLACK, probabilities, 0.0))

    def loss(self, t: int) -> float:
        """Loss between any two inputs at distance at most `t`: the mechanism's epsilon, whatever the distance."""
        return self.epsilon * ROUND_UP if t >= 1 else 0.0

    def randomise(self, codes: Codes, *, rng: BitSource) -> Codes:
        """Draw one released code per code, shape ``(n_values,)``, with exactly the table's probabilities."""
        positions = self.domain.positions(codes)
        if math.isinf(self.epsilon):
            return positions + self.domain.lo
        for begin in range(0, len(positions), CHUNK_DRAWS):
            chunk = positions[begin : begin + CHUNK_DRAWS]
            chunk[:] = self._draw(chunk, rng.words(len(chunk)), rng)
        return positions + self.domain.lo

    def _draw(self, positions: NDArray[np.int64], words: NDArray[np.uint64], rng: BitSource) -> NDArray[np.int64]:
        """Find each uniform number's place in the distribution function by bisection over the outputs."""
        uniform, v, s = words.astype(np.float64) * 2.0**-64, self._scaled(positions), math.exp(self.epsilon / 2)
        low, high = np.zeros_like(positions), np.full_like(positions, self.domain.size - 1)
        is_close = np.zeros(len(positions), dtype=np.bool_)
        for _ in range((self.domain.size - 1).bit_length()):
            middle = (low + high) // 2
            gap = uniform - self._cdf(v, self._scaled(middle + 0.5), s)
            is_close |= (np.abs(gap) < _SLACK) & (low < high)
            high = np.where((gap < 0) & (low < high), middle, high)
            low = np.where((gap >= 0) & (low < high), middle + 1, low)
        for i in np.flatnonzero(is_close):
            low[i] = self._settle(int(positions[i]), LazyUniform(int(words[i]), 64, rng=rng))
        return low

    def _settle(self, x: int, uniform: LazyUniform) -> int:
        return smallest_where(lambda y: uniform.is_below(self._boundary(x, y)), 0, self.domain.size - 1)

    def _boundary(self, x: int, y: int) -> Boundary:
        """The probability of an output of at most `y`, to any precision."""

        def boundary(context: Context) -> Decimal:
            with localcontext(context):
                span = Decimal(self.domain.size - 1)
                v, b = 2 * Decimal(x) / span - 1, (2 * Decimal(y) + 1) / span - 1
                return Decimal(self._cdf(v, b, (Decimal(self.epsilon) / 2).exp()))

        return boundary

    def _scaled(self, positions: NDArray[Any]) -> NDArray[np.float64]:
        """Positions of the domain as numbers in [-1, 1]."""
        return 2.0 * positions / (self.domain.size - 1) - 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise(_RealMechanism):
    """The Piecewise mechanism: a window around the value is more likely than the rest of ``[-C, C]``.

    Notes
    -----
    Privacy: ``epsilon``-LDP.
    """

    name: ClassVar[str] = "piecewise"

    def _cdf(self, v: Any, b: Any, s: Any) -> Any:
        return _piecewise_cdf(v, b, s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duchi(_RealMechanism):
    """Duchi's minimax mechanism: one of two far numbers, and so one end of the domain after clipping.

    Notes
    -----
    Privacy: ``epsilon``-LDP.
    """

    name: ClassVar[str] = "duchi"

    def _cdf(self, v: Any, b: Any, s: Any) -> Any:
        return _duchi_cdf(v, b, s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(_RealMechanism):
    """Piecewise with probability ``1 - exp(-epsilon / 2)`` above a threshold of about 0.61, else Duchi.

    Notes
    -----
    Privacy: ``epsilon``-LDP.
    """

    name: ClassVar[str] = "hybrid"

    def _cdf(self, v: Any, b: Any, s: Any) -> Any:
        if self.epsilon <= HYBRID_THRESHOLD:
            return _duchi_cdf(v, b, s)
        return (1 - 1 / s) * _piecewise_cdf(v, b, s) + _duchi_cdf(v, b, s) / s


def _piecewise_cdf(v: Any, b: Any, s: Any) -> Any:
    reach = (s + 1) / (s - 1)
    high = s * (s - 1) / (2 * (s + 1))
    low = high / (s * s)
    width = reach - 1
    left = (reach + 1) / 2 * v - width / 2
    return low * _clip(b + reach, 2 * reach) + (high - low) * _clip(b - left, width)


def _duchi_cdf(v: Any, b: Any, s: Any) -> Any:
    """Every boundary inside [-1, 1] lies between the two outputs."""
    return (1 - (s * s - 1) / (s * s + 1) * v) / 2 + 0 * b


def _clip(z: Any, width: Any) -> Any:
    """The part of ``[0, width]`` below z, by operators alone."""
    return (abs(z) - abs(z - width) + width) / 2
