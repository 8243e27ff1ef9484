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

# An r below is taken for this in doubles, which have no smaller ones to divide by; the decimals are exact.
_LEAST = 1e-300


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
    def _cdf(self, v: Any, b: Any, gap: Any, r: Any) -> Any:
        """``Pr[output < b | input = v]`` for ``gap = b - v`` and ``r = exp(-epsilon / 2)``."""

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(n, n)``."""
        n = self.domain.size
        if math.isinf(self.epsilon):
            return np.where(np.eye(n, dtype=np.bool_), 0.0, -np.inf)
        inner = self._cumulative(np.arange(n)[:, None], np.arange(n - 1))
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
        uniform = words.astype(np.float64) * 2.0**-64
        low, high = np.zeros_like(positions), np.full_like(positions, self.domain.size - 1)
        is_close = np.zeros(len(positions), dtype=np.bool_)
        for _ in range((self.domain.size - 1).bit_length()):
            middle = (low + high) // 2
            gap = uniform - self._cumulative(positions, middle)
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
                return Decimal(self._cumulative(Decimal(x), Decimal(y), r=(Decimal(self.epsilon) / -2).exp()))

        return boundary

    def _cumulative(self, x: Any, y: Any, *, r: Any = None) -> Any:
        """The probability of an output of at most `y`, of arrays of positions, or of decimals with their `r`."""
        if r is None:
            r = max(math.exp(-self.epsilon / 2), _LEAST)
        span = self.domain.size - 1
        return self._cdf(2 * x / span - 1, (2 * y + 1) / span - 1, (2 * (y - x) + 1) / span, r)


@dataclass(frozen=True, slots=True, kw_only=True)
class Piecewise(_RealMechanism):
    """The Piecewise mechanism: a window around the value is more likely than the rest of ``[-C, C]``.

    Notes
    -----
    Privacy: ``epsilon``-LDP.
    """

    name: ClassVar[str] = "piecewise"

    def _cdf(self, v: Any, b: Any, gap: Any, r: Any) -> Any:
        return _piecewise_cdf(v, b, gap, r)


@dataclass(frozen=True, slots=True, kw_only=True)
class Duchi(_RealMechanism):
    """Duchi's minimax mechanism: one of two far numbers, and so one end of the domain after clipping.

    Notes
    -----
    Privacy: ``epsilon``-LDP.
    """

    name: ClassVar[str] = "duchi"

    def _cdf(self, v: Any, b: Any, gap: Any, r: Any) -> Any:
        return _duchi_cdf(v, b, r)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hybrid(_RealMechanism):
    """Piecewise with probability ``1 - exp(-epsilon / 2)`` above a threshold of about 0.61, else Duchi.

    Notes
    -----
    Privacy: ``epsilon``-LDP.
    """

    name: ClassVar[str] = "hybrid"

    def _cdf(self, v: Any, b: Any, gap: Any, r: Any) -> Any:
        if self.epsilon <= HYBRID_THRESHOLD:
            return _duchi_cdf(v, b, r)
        return (1 - r) * _piecewise_cdf(v, b, gap, r) + r * _duchi_cdf(v, b, r)


def _piecewise_cdf(v: Any, b: Any, gap: Any, r: Any) -> Any:
    """A share r is even over all outputs, the rest over a window that is as narrow as r.

    The place in the window comes from `gap`, which is exact: the difference of two rounded numbers is not, and a large
    budget divides by a small r.
    """
    return r * _clip((1 + b * (1 - r) / (1 + r)) / 2) + (1 - r) * _clip((gap * (1 - r) + r * (1 - v)) / (2 * r))


def _duchi_cdf(v: Any, b: Any, r: Any) -> Any:
    """Every boundary inside [-1, 1] lies between the two outputs."""
    return (1 - (1 - r * r) / (1 + r * r) * v) / 2 + 0 * b


def _clip(z: Any) -> Any:
    """The number in [0, 1] nearest to z, by operators alone."""
    return (z > 0) * (z < 1) * z + (z >= 1)
