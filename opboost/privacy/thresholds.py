"""The exponential mechanism over every threshold of numeric features, without a grid of candidates.

S-GBDT (Kirschte et al., 2023), algorithm 2, with its indices mended: between two neighbouring values of the data the
utility of a threshold does not change, so a *bucket* is chosen with weight ``width * exp(epsilon * u / R)`` and then a
threshold uniformly inside. Here thresholds are the points of a public grid as fine as doubles are in practice (2**32
points per feature by default), so that widths are integers, the law is that of `opboost.privacy.selection` over all
points, and no width is rounded. Buckets without a point drop out by themselves.

A value goes left of a threshold when it is at most the threshold. Bucket j of n + 1 holds the points at or above
exactly j of the n values, so its utility is that of the split with the j lowest values on the left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.errors import ParameterError
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import BitSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdGrid:
    """The thresholds of a feature: ``2**n_bits`` points, evenly over its public bounds.

    Parameters
    ----------
    lower, upper : float
        Public bounds, not taken from the data.
    n_bits : int
        Between 1 and 40.
    """

    lower: float
    upper: float
    n_bits: int = 32

    def __post_init__(self) -> None:
        if not (math.isfinite(self.lower) and math.isfinite(self.upper - self.lower) and self.lower < self.upper):
            raise ParameterError(f"a feature needs finite bounds, lower < upper; got [{self.lower}, {self.upper}]")
        if not 1 <= self.n_bits <= 40:
            raise ParameterError(f"a threshold grid needs between 1 and 40 bits; got {self.n_bits}")
        if (self.upper - self.lower) * 2.0**-self.n_bits < 2 * math.ulp(max(abs(self.lower), abs(self.upper))):
            raise ParameterError(
                f"the {self.n_points} thresholds between {self.lower} and {self.upper} are not all different as "
                "doubles; use fewer bits"
            )

    @property
    def n_points(self) -> int:
        """Number of thresholds."""
        return 1 << self.n_bits

    def thresholds(self, points: NDArray[np.int64]) -> NDArray[np.float64]:
        """Thresholds of grid points ``0 .. n_points - 1``."""
        return self.lower + np.asarray(points, dtype=np.float64) * ((self.upper - self.lower) * 2.0**-self.n_bits)

    def points(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The first point whose threshold is at or above each value, or `n_points` if there is none.

        A value goes left of point p exactly if its own point is at most p. Values out of bounds are as good as clipped.
        """
        values = np.asarray(values, dtype=np.float64)
        if np.isnan(values).any():
            raise ParameterError("values must be numbers to be compared with thresholds. Nothing was drawn")
        with np.errstate(over="ignore"):
            scaled = (values - self.lower) * (2.0**self.n_bits / (self.upper - self.lower))
        guess = np.clip(np.ceil(scaled), 0, self.n_points).astype(np.int64)
        for _ in range(4):
            guess -= (guess > 0) & (self.thresholds(guess - 1) >= values)
            guess += (guess < self.n_points) & (self.thresholds(guess) < values)
        return guess


@dataclass(frozen=True, slots=True, kw_only=True)
class Buckets:
    """The buckets of one feature (or the values of one category column) among the candidates of a choice.

    Attributes
    ----------
    starts : ndarray of int64, shape (n_buckets,)
        First point of every bucket.
    widths : ndarray of int64, shape (n_buckets,)
        Number of points in every bucket; may be 0.
    utilities : ndarray of float64, shape (n_buckets,)
    weight_per_point : float
        Base measure of one point: a feature's public weight divided by its number of points. Kept to 12 bits, so
        that the measure of a bucket is exactly the sum of its points', wherever the data divide the grid.
    """

    starts: NDArray[np.int64]
    widths: NDArray[np.int64]
    utilities: NDArray[np.float64]
    weight_per_point: float

    def __post_init__(self) -> None:
        if not len(self.starts) == len(self.widths) == len(self.utilities):
            raise ParameterError("buckets need one start, one width and one utility each")
        if (np.asarray(self.widths) < 0).any() or not (
            math.isfinite(self.weight_per_point) and self.weight_per_point > 0
        ):
            raise ParameterError("buckets need widths that are not negative and a positive weight per point")
        mantissa, exponent = math.frexp(self.weight_per_point)
        object.__setattr__(self, "weight_per_point", math.ldexp(round(mantissa * 2**12), exponent - 12))


def bucket_extents(
    sorted_points: NDArray[np.int64], *, begin: int, end: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Starts and widths of the n + 1 buckets that n values divide the points ``begin .. end - 1`` into.

    Parameters
    ----------
    sorted_points : ndarray of int64, shape (n,)
        The values' points, ascending (`ThresholdGrid.points`).
    begin, end : int
        The points to choose from: the whole grid or, below an earlier split of the same feature, what is left of it.

    Returns
    -------
    starts, widths : ndarray of int64, shape (n + 1,)
        Bucket j holds the points at or above exactly j values.
    """
    if not begin < end:
        raise ParameterError(f"there must be a threshold to choose; got the points {begin} up to, not with, {end}")
    edges = np.concatenate([[begin], np.clip(sorted_points, begin, end), [end]]).astype(np.int64)
    widths = np.diff(edges)
    if (widths < 0).any():
        raise ParameterError("the values' points must be in ascending order")
    return edges[:-1], widths


def choose_point(mechanism: ExponentialMechanism, features: Sequence[Buckets], *, rng: BitSource) -> tuple[int, int]:
    """Choose one threshold among all points of all features.

    Returns
    -------
    feature, point : int
        The index of the feature in `features`, and the point.

    Notes
    -----
    Privacy: `mechanism.epsilon`-DP: each point p of feature i comes out with probability proportional to
    ``weight_per_point_i * exp(epsilon * u(i, p) / R)``, if every bucket has the utility of each of its points.
    """
    widths = np.concatenate([each.widths for each in features])
    # Exact: 12 bits times at most 40.
    measure = np.concatenate([each.weight_per_point * each.widths.astype(np.float64) for each in features])
    utilities = np.concatenate([each.utilities for each in features])
    is_real = widths > 0
    chosen = np.flatnonzero(is_real)[mechanism.choose(utilities[None, is_real], measure[is_real], rng=rng)[0]]
    ends = np.cumsum([len(each.starts) for each in features])
    feature = int(np.searchsorted(ends, chosen, side="right"))
    bucket = int(chosen - (ends[feature] - len(features[feature].starts)))
    start, width = int(features[feature].starts[bucket]), int(features[feature].widths[bucket])
    return feature, start + _below(width, rng=rng)


def _below(count: int, *, rng: BitSource) -> int:
    """A uniform integer in ``0 .. count - 1``, by refusing what lies beyond."""
    mask = (1 << (count - 1).bit_length()) - 1
    while True:
        drawn = int(rng.words(1)[0]) & mask
        if drawn < count:
            return drawn
