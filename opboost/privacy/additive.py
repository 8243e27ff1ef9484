"""Additive integer noise: discrete Laplace, rounded Gaussian and Skellam, sampled exactly.

Counts and fixed-point sums are integers, and so is the noise: a double's last bits would tell which number the noise
was added to (Mironov, CCS 2012). Scales are in steps of the grid.

For a real-valued Gaussian mechanism on an integer query, rounding the output to an integer is post-processing. So
`RoundedGaussian` has every guarantee of the continuous mechanism: Renyi, exact (epsilon, delta), sampled, loss
distribution. The discrete Gaussian of Canonne, Kamath and Steinke has its Renyi guarantees, but not its exact delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.errors import ParameterError, check_integer, is_integer, is_number
from opboost.privacy.envelope import Envelope, Weight, poisson_envelope
from opboost.privacy.sampling import draw_noise
from opboost.rng import BitSource

# Largest scale or standard deviation, in steps. Values then stay within an int64 for certain.
LARGEST_SCALE = 2.0**40
LARGEST_MEAN = 2**60


class Noise(Protocol):
    """A distribution of integer noise with mean zero."""

    @property
    def variance(self) -> float:
        """Variance, in squared steps."""
        ...

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        ...


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """Discrete Laplace (two-sided geometric) noise: ``Pr[z]`` proportional to ``exp(-|z| / scale)``.

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


@dataclass(frozen=True, slots=True)
class RoundedGaussian:
    """Rounded Gaussian noise: a normal variable rounded to the nearest integer.

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


@dataclass(frozen=True, slots=True)
class Skellam:
    """Skellam noise: the difference of two independent Poisson variables of one mean. Sums of it are Skellam.

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
        if not is_integer(self.mean) or not 1 <= self.mean <= LARGEST_MEAN:
            raise ParameterError(
                f"Skellam noise needs an integer mean between 1 and 2**60; got {self.mean!r}. Nothing was drawn"
            )
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
        return Skellam(-(-self.mean // check_integer("the number of honest parties", n_honest, least=1)))

    def draw(self, count: int, *, rng: BitSource) -> NDArray[np.int64]:
        """Draw independent noise, shape ``(count,)``."""
        envelope = poisson_envelope(self.mean)
        return draw_noise(envelope, count, rng=rng) - draw_noise(envelope, count, rng=rng)


def _check_scale(value: float, name: str, least: float) -> float:
    if not is_number(value) or not least <= value <= LARGEST_SCALE:
        raise ParameterError(f"{name} must lie between {least:g} and 2**40 steps; got {value!r}. Nothing was drawn")
    return float(value)
