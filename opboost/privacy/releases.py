"""Releases as frozen values, which privacy accounting composes.

Each kind states what its mechanism promises between data sets that differ by one record, added or removed. `count`
releases of a kind may follow each other, each chosen after seeing those before. An account that does not know a kind
refuses it (`opboost.privacy.accounting`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from opboost.errors import AccountError, ParameterError, check_integer, check_positive
from opboost.privacy.coins import RecordCoins


@dataclass(frozen=True, slots=True, kw_only=True)
class PureRelease:
    """An `epsilon`-DP release, by a proof elsewhere."""

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        _check_positive(self.epsilon, "epsilon")
        _check_count(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionRelease:
    """A choice by `opboost.privacy.selection.ExponentialMechanism`: `epsilon`-DP and `epsilon`-bounded range."""

    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        _check_positive(self.epsilon, "epsilon")
        _check_count(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaplaceRelease:
    """An integer query of L1 sensitivity `l1` plus `DiscreteLaplace(scale)`, both in steps."""

    l1: int
    scale: float
    count: int = 1

    def __post_init__(self) -> None:
        check_integer("l1", self.l1, least=1)
        _check_positive(self.scale, "scale")
        _check_count(self.count)

    @property
    def epsilon(self) -> float:
        """At least ``l1 / scale``."""
        exact = Fraction(int(self.l1)) / Fraction(self.scale)
        return _at_least(exact)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaussianRelease:
    """A query plus Gaussian noise, continuous or rounded (`RoundedGaussian`).

    Attributes
    ----------
    mu : float
        L2 sensitivity over standard deviation.
    """

    mu: float
    count: int = 1

    def __post_init__(self) -> None:
        _check_positive(self.mu, "mu")
        _check_count(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledGaussianRelease:
    """A query on records that take part by a coin each, plus Gaussian noise as in `GaussianRelease`.

    Attributes
    ----------
    rate : float
        Probability of a record to take part.
    """

    rate: float
    mu: float
    count: int = 1

    def __post_init__(self) -> None:
        if not 0 < self.rate <= 1:
            raise ParameterError(f"a sampling rate must lie in (0, 1]; got {self.rate}")
        _check_positive(self.mu, "mu")
        _check_count(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkellamRounds:
    """Rounds of integer queries of several coordinates, each plus Skellam noise of its own.

    Attributes
    ----------
    mu : float
        Root of the most that any record's squared contributions over the noise's variances sum up to, over all
        coordinates and rounds: at most `n_rounds` times the largest one, or what an individual filter lets through.
    largest : tuple of int
        A record's largest contribution to each coordinate in one round, in steps.
    variances : tuple of float
        Of the noise on each coordinate, in squared steps.
    n_rounds : int
    """

    mu: float
    largest: tuple[int, ...]
    variances: tuple[float, ...]
    n_rounds: int
    count: int = 1

    def __post_init__(self) -> None:
        _check_positive(self.mu, "mu")
        if not self.largest or len(self.largest) != len(self.variances):
            raise ParameterError("Skellam noise needs a largest contribution and a variance for every coordinate")
        for steps, variance in zip(self.largest, self.variances, strict=True):
            _check_positive(steps, "a largest contribution")
            _check_positive(variance, "variance")
        _check_count(self.n_rounds)
        _check_count(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilteredRelease:
    """Everything that went through an individual Renyi filter: `rho` at one order, fixed before the data were seen."""

    order: int
    rho: float
    count: int = 1

    def __post_init__(self) -> None:
        check_order(self.order)
        _check_positive(self.rho, "rho")
        _check_count(self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedByCoins:
    """Releases on parts of the records that were dealt by `RecordCoins`: they cost as much as the costliest part.

    Attributes
    ----------
    coins : RecordCoins
    parts : tuple of tuple of releases
        What was released about each part.

    Notes
    -----
    Proof: given the coins of all records, neighbours differ in one part at most. Averaging over the coin of the record
    in question mixes outputs whose divergence from one and the same law is bounded by the costliest part's, and
    divergences are quasi-convex.
    """

    coins: RecordCoins
    parts: tuple[tuple[Release, ...], ...]
    count: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.coins, RecordCoins):
            raise AccountError("parallel composition needs coins of the records' own; anything else is refused")
        if len(self.parts) != self.coins.n_parts:
            raise AccountError(f"{self.coins.n_parts} parts were dealt, but releases were given for {len(self.parts)}")
        if not any(self.parts):
            raise AccountError("an account needs at least one release; parts without any are refused")
        _check_count(self.count)


Release = (
    PureRelease
    | SelectionRelease
    | LaplaceRelease
    | GaussianRelease
    | SampledGaussianRelease
    | SkellamRounds
    | FilteredRelease
    | SharedByCoins
)


def gaussian(l2: float, std: float, *, rate: float = 1.0, count: int = 1) -> GaussianRelease | SampledGaussianRelease:
    """A Gaussian release by its L2 sensitivity and standard deviation, in the same unit."""
    _check_positive(l2, "l2")
    _check_positive(std, "std")
    mu = _at_least(Fraction(l2) / Fraction(std))
    return GaussianRelease(mu=mu, count=count) if rate == 1 else SampledGaussianRelease(rate=rate, mu=mu, count=count)


def check_order(order: int) -> int:
    """Return a Renyi order that is an integer of at least 2, or refuse it."""
    return check_integer("a Renyi order", order, least=2)


def _check_positive(value: float, name: str) -> None:
    check_positive(name, value, outcome=". Nothing was released")


def _check_count(count: int) -> None:
    check_integer("the number of times that a release happens", count, least=1)


def _at_least(exact: Fraction) -> float:
    """The least double that is not below a fraction, or the next one."""
    value = float(exact)
    return value if value >= exact else math.nextafter(value, math.inf)
