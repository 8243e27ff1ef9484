"""Noise that is added to integers: discrete Laplace, discrete and rounded Gaussian, Skellam, each exactly of its law.

Counts and fixed-point sums are integers, and so is the noise: a double's last bits
would tell which number the noise was added to (Mironov, CCS 2012). Scales are in steps of the grid.

Which Gaussian? For a real-valued Gaussian mechanism on an integer query, rounding the output to an integer is
post-processing, so `RoundedGaussian` has every guarantee of the continuous mechanism to the letter: Renyi, exact
(epsilon, delta), sampled, loss distribution. `DiscreteGaussian` has the Renyi guarantees of the continuous one at all
orders, but not exactly its (epsilon, delta). On a fine grid nobody can tell them apart.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.errors import ParameterError
from opboost.privacy.envelope import Envelope, Weight, poisson_envelope
from opboost.privacy.releases import (
    DiscreteGaussianRelease,
    GaussianRelease,
    LaplaceRelease,
    Release,
    SampledGaussianRelease,
    SkellamRelease,
    gaussian,
)
from opboost.privacy.sampling import draw_noise
from opboost.rng import BitSource

# Largest scale or standard deviation, in steps. Values then stay within an int64 for certain.
LARGEST_SCALE = 2.0**40
LARGEST_MEAN = 2**60


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """How far one record can move an integer query, in steps.

    Attributes
    ----------
    l1 : int
        In the sum of absolute values.
    l2_squared : int
        Square of the Euclidean distance.
    """

    l1: int
    l2_squared: int

    def __post_init__(self) -> None:
        if not 0 < self.l2_squared <= self.l1**2:
            raise ParameterError(
                f"a sensitivity needs 0 < l2 <= l1; got l1={self.l1} and l2 squared={self.l2_squared} steps"
            )

    @property
    def l2(self) -> float:
        """At least the Euclidean distance, in steps."""
        return at_least_sqrt(self.l2_squared)


class Noise(Protocol):
    """A law of integer noise with mean zero."""

    @property
    def variance(self) -> float:
        """Variance, in squared steps."""
        ...

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        ...

    def release(self, sensitivity: Sensitivity, *, count: int = 1) -> Release:
        """What an integer query of this sensitivity plus this noise is to an account."""
        ...


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """``Pr[z]`` proportional to ``exp(-|z| / scale)`` on all integers (the two-sided geometric law).

    Parameters
    ----------
    scale : float
        In steps, between 2**-5 and 2**40; the double is taken as the exact number it stands for.

    Notes
    -----
    Privacy: ``l1 / scale``-DP for an integer query of L1 sensitivity l1 (Ghosh, Roughgarden, Sundararajan, STOC 2009).
    """

    scale: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "scale", _check_scale(self.scale, "scale", 2.0**-5))

    @property
    def variance(self) -> float:
        """Variance, in squared steps."""
        return 1.0 / (2.0 * math.sinh(0.5 / self.scale) ** 2)

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        return draw_noise(Envelope(Weight.LAPLACE, self.scale), count, rng=rng)

    def release(self, sensitivity: Sensitivity, *, count: int = 1) -> LaplaceRelease:
        """What an integer query of this sensitivity plus this noise is to an account."""
        return LaplaceRelease(l1=sensitivity.l1, scale=self.scale, count=count)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """``Pr[z]`` proportional to ``exp(-z^2 / (2 std^2))`` on all integers (Canonne, Kamath, Steinke, NeurIPS 2020).

    Parameters
    ----------
    std : float
        In steps, between 2**-5 and 2**40; the variance is its exact square. The law's own standard deviation is
        smaller by less than one part in a million from ``std = 1`` on.

    Notes
    -----
    Privacy: ``alpha * mu^2 / 2`` in the Renyi sense at every order alpha > 1, ``mu = l2 / std``, for an integer query
    of L2 sensitivity l2 (their theorem 4).
    """

    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", _check_scale(self.std, "std", 2.0**-5))

    @property
    def variance(self) -> float:
        """At least the variance, in squared steps (they differ by less than 1e-6 of it from ``std = 1`` on)."""
        return self.std**2

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        return draw_noise(Envelope(Weight.GAUSSIAN, math.floor(self.std) + 1.0, self.std), count, rng=rng)

    def release(self, sensitivity: Sensitivity, *, count: int = 1) -> DiscreteGaussianRelease:
        """What an integer query of this sensitivity plus this noise is to an account."""
        return DiscreteGaussianRelease(mu=gaussian(sensitivity.l2, self.std).mu, count=count)


@dataclass(frozen=True, slots=True)
class RoundedGaussian:
    """A normal variable of standard deviation `std`, rounded to the nearest integer.

    Parameters
    ----------
    std : float
        In steps, between 1 and 2**40.

    Notes
    -----
    Privacy: that of the continuous Gaussian mechanism, ``mu = l2 / std``: an integer query plus this noise is the
    continuous mechanism's output, rounded.
    """

    std: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "std", _check_scale(self.std, "std", 1.0))

    @property
    def variance(self) -> float:
        """Variance, in squared steps; rounding adds a twelfth, to within 1e-7 of it."""
        return self.std**2 + 1.0 / 12.0

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        return draw_noise(Envelope(Weight.ROUNDED_GAUSSIAN, self.std, self.std), count, rng=rng)

    def release(
        self, sensitivity: Sensitivity, *, rate: float = 1.0, count: int = 1
    ) -> GaussianRelease | SampledGaussianRelease:
        """What an integer query of this sensitivity plus this noise is to an account.

        With a rate below 1 the query is on records that took part by a coin of this probability each.
        """
        return gaussian(sensitivity.l2, self.std, rate=rate, count=count)


@dataclass(frozen=True, slots=True)
class Skellam:
    """The difference of two independent Poisson variables of the same mean; independent ones sum within the family.

    Parameters
    ----------
    mean : int
        Of each Poisson variable: half the variance, in squared steps. An integer between 1 and 2**60.

    Notes
    -----
    Privacy: Agarwal, Kairouz and Liu (NeurIPS 2021), theorem 3.5; see `opboost.privacy.renyi`.
    """

    mean: int

    def __post_init__(self) -> None:
        if isinstance(self.mean, bool) or not isinstance(self.mean, (int, np.integer)):
            raise ParameterError(f"Skellam noise needs an integer mean; got {self.mean!r}. Nothing was drawn")
        if not 1 <= self.mean <= LARGEST_MEAN:
            raise ParameterError(f"Skellam noise needs a mean between 1 and 2**60; got {self.mean}. Nothing was drawn")
        object.__setattr__(self, "mean", int(self.mean))

    @classmethod
    def of_variance(cls, variance: float) -> Skellam:
        """The least noise of at least this variance, in squared steps."""
        if not 0 < variance <= 2.0 * LARGEST_MEAN:
            raise ParameterError(f"the variance must be positive and at most 2**61; got {variance}. Nothing was drawn")
        return cls(math.ceil(variance / 2))

    @property
    def variance(self) -> float:
        """Variance, in squared steps."""
        return 2.0 * self.mean

    def share(self, n_honest: int) -> Skellam:
        """The noise that each of several parties draws, such that any `n_honest` of them sum to this noise or more.

        Their sum is Skellam with ``n_honest`` times the share's mean, exactly: at least this mean, and above it by less
        than `n_honest`.
        """
        if isinstance(n_honest, bool) or not isinstance(n_honest, (int, np.integer)) or n_honest < 1:
            raise ParameterError(f"noise is shared among at least one honest party; got {n_honest!r}")
        return Skellam(-(-self.mean // int(n_honest)))

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        envelope = poisson_envelope(self.mean)
        return draw_noise(envelope, count, rng=rng) - draw_noise(envelope, count, rng=rng)

    def release(self, sensitivity: Sensitivity, *, count: int = 1) -> SkellamRelease:
        """What an integer query of this sensitivity plus this noise is to an account."""
        return SkellamRelease(l1=sensitivity.l1, l2_squared=sensitivity.l2_squared, variance=self.variance, count=count)


def _check_scale(value: float, name: str, least: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise ParameterError(f"{name} must be a number of steps; got {value!r}. Nothing was drawn")
    if not least <= value <= LARGEST_SCALE:
        raise ParameterError(f"{name} must lie between {least:g} and 2**40 steps; got {value}. Nothing was drawn")
    return float(value)


def at_least_sqrt(square: int) -> float:
    """The least double whose square is at least an integer, or the next one."""
    root = math.sqrt(square)
    while Fraction(root) ** 2 < square:
        root = math.nextafter(root, math.inf)
    return root
