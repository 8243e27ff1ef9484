"""Local differential privacy for values without an order: k-ary randomised response (GRR)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Codes
from opboost.errors import check_integer
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.laws import check_epsilon
from opboost.privacy.settling import Boundary, LazyUniform
from opboost.rng import BitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomisedResponse:
    """k-ary randomised response: keep the category with probability ``e^eps / (e^eps + k - 1)``, else any other.

    Parameters
    ----------
    epsilon : float
        Positive; ``inf`` keeps every category.
    n_categories : int
        At least 2.

    Notes
    -----
    Privacy: exactly ``epsilon``-LDP between any two categories.
    """

    name: ClassVar[str] = "randomised_response"
    epsilon: float
    n_categories: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "epsilon", check_epsilon(self.epsilon))
        check_integer("the number of categories of randomised response", self.n_categories, least=2)

    @property
    def keep(self) -> float:
        """Probability that the true category comes out."""
        return 1.0 / (1.0 + (self.n_categories - 1) * math.exp(-self.epsilon))

    def log_probabilities(self) -> NDArray[np.float64]:
        """The exact table of ``log P[x, y]``, shape ``(k, k)``."""
        log_total = math.log1p((self.n_categories - 1) * math.exp(-self.epsilon))
        table = np.full((self.n_categories, self.n_categories), -self.epsilon - log_total)
        np.fill_diagonal(table, -log_total)
        return table

    def loss(self, t: int) -> float:
        """Exact loss between two categories; every two different ones are equally far apart."""
        return self.epsilon if t >= 1 else 0.0

    def randomise(self, codes: Codes, *, rng: BitSource) -> Codes:
        """Draw one category per category ``0 .. k - 1``, shape ``(n_values,)``, with exactly these probabilities."""
        codes = IntegerDomain(0, self.n_categories - 1).positions(codes)
        if math.isinf(self.epsilon):
            return codes
        is_kept = self._keeps(rng.words(len(codes)), rng)
        offset = self._other(rng.words(len(codes)), rng)
        return np.where(is_kept, codes, (codes + offset) % self.n_categories).astype(np.int64)

    def _keeps(self, words: NDArray[np.uint64], rng: BitSource) -> NDArray[np.bool_]:
        uniform = words.astype(np.float64) * 2.0**-64
        is_kept: NDArray[np.bool_] = uniform < self.keep
        for i in np.flatnonzero(np.abs(uniform - self.keep) < 1e-14):
            is_kept[i] = LazyUniform(int(words[i]), 64, rng=rng).is_below(self._keep_boundary)
        return is_kept

    def _keep_boundary(self, context: Context) -> Decimal:
        others = context.multiply(Decimal(self.n_categories - 1), context.exp(Decimal(self.epsilon).copy_negate()))
        return context.divide(Decimal(1), context.add(Decimal(1), others))

    def _other(self, words: NDArray[np.uint64], rng: BitSource) -> NDArray[np.int64]:
        """A uniform step ``1 .. k - 1`` to another category."""
        n_others = self.n_categories - 1
        scaled = words.astype(np.float64) * 2.0**-64 * n_others
        step = np.floor(scaled).astype(np.int64)
        for i in np.flatnonzero(np.abs(scaled - np.rint(scaled)) < 1e-14 * n_others):
            uniform = LazyUniform(int(words[i]), 64, rng=rng)
            nearest = int(np.rint(scaled[i]))
            step[i] = nearest - uniform.is_below(_fraction(nearest, n_others))
        return 1 + step


def _fraction(numerator: int, denominator: int) -> Boundary:
    return lambda context: context.divide(Decimal(numerator), Decimal(denominator))
