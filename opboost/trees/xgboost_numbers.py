"""Numbers between an ensemble and XGBoost, which keeps them in float32 and tests ``x < condition``.

Every float32, and every float64 that XGBoost rounds to one, must go the same way in both; the places where that needs
care are the neighbours of a threshold, both zeros, the largest float32 and what lies behind it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError
from opboost.trees.tree import PRESENT

Singles = NDArray[np.float32]

# Base probabilities that every version of XGBoost takes as they are; 3.2 and later clip others to them.
PROBABILITIES = np.float32(1e-6), np.float32(1 - 1e-6)

# XGBoost keeps numbers and squares of residuals in single precision.
MAX_SINGLE, MAX_SINGLE_LABEL = float(np.finfo(np.float32).max), 1e18


def check_single_precision(values: Values, what: str, *, most: float = MAX_SINGLE) -> None:
    """Refuse numbers that are too large for single precision, in which XGBoost computes.

    Raises
    ------
    DataError
    """
    if (np.abs(values) > most).any():
        raise DataError(f"XGBoost needs {what} of magnitude {most:g} at most; found others")


def conditions_above(thresholds: Values) -> Singles:
    """The smallest float32 above each threshold; infinity behind the largest float32."""
    with np.errstate(over="ignore"):
        nearest = thresholds.astype(np.float32)
        return np.where(nearest > thresholds, nearest, np.nextafter(nearest, np.float32(np.inf)))


def thresholds_below(conditions: Singles) -> Values:
    """The largest finite float64 that rounds to a float32 below each condition; NaN for NaN.

    That is the middle between the condition and the float32 below it, or its neighbour where the middle rounds up.
    """
    with np.errstate(over="ignore"):
        below = np.nextafter(conditions, np.float32(-np.inf))
        middle = below.astype(np.float64) / 2 + conditions.astype(np.float64) / 2
        rounds_down = middle.astype(np.float32) < conditions
    return np.clip(np.where(rounds_down, middle, np.nextafter(middle, -np.inf)), -PRESENT, PRESENT)


def singles(values: Values, what: str) -> Singles:
    """Values rounded to float32, refused where they exceed it."""
    with np.errstate(over="ignore"):
        rounded = values.astype(np.float32)
    if not np.isfinite(rounded).all():
        raise ParameterError(f"{what} exceed 3.4e38, the most that XGBoost's numbers hold. No model was exported")
    return rounded


def margins(probabilities: Singles) -> Values:
    """Raw scores that XGBoost computes, in float32, from base probabilities."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.log(np.float32(1) / probabilities - np.float32(1)), dtype=np.float64)


def probability_of(score: float) -> Singles:
    """The base probability, shape ``(1,)``, whose margin is closest to a score.

    Rounding the logistic function is not enough: near 1, XGBoost's margins are coarse, so neighbours are tried.
    """
    # Loaded here for the reason that `opboost.trees.losses` gives.
    from scipy.special import expit

    down = up = np.float32(expit(score)).reshape(1)
    candidates = [down]
    for _ in range(3):
        down, up = np.nextafter(down, np.float32(0)), np.nextafter(up, np.float32(1))
        candidates += [down, up]
    allowed = np.clip(np.concatenate(candidates), *PROBABILITIES)
    return allowed[np.abs(margins(allowed) - score).argmin()].reshape(1)
