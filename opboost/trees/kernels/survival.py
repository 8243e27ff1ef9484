# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Gradients of survival times: accelerated failure times row by row, and proportional hazards in order of time."""

from __future__ import annotations

import math

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.gradients import MIN_HESS, exp
from opboost.trees.kernels.packing import OPTIONS, PARALLEL, weighted

# XGBoost's bound of the gradients and Hessians.
MAX_AFT = 15.0

NORMAL, LOGISTIC, EXTREME = 0, 1, 2

# From here on the normal distribution's hazard is its asymptotic series, to 1e-9 of it.
_FAR = 20.0
_ROOT_HALF, _DENSITY_AT_0 = math.sqrt(0.5), 1 / math.sqrt(2 * math.pi)

# The least probability of an interval.
_LEAST = 1e-12


@njit(**PARALLEL)
def pack_failure_gradients(scores, lower, upper, weights, noise, scale, grad_scale, hess_scale, is_count, out):
    """Packed gradients of the negative log likelihood of log times that are the score and `scale` times the noise.

    Parameters
    ----------
    scores, lower, upper, weights : ndarray, shape (n_rows,)
        Logarithms of times: an event is at `lower`, if that is `upper`; between both; or later, if `upper` is infinite.
    noise : {NORMAL, LOGISTIC, EXTREME}
    scale : float
    """
    for i in prange(len(lower)):
        z = min(max((lower[i] - scores[i]) / scale, -700.0), 700.0)
        if lower[i] < upper[i] < np.inf:
            high = min(max((upper[i] - scores[i]) / scale, -700.0), 700.0)
            slope, bend = _of_interval(z, high, noise)
        else:
            slope, bend = _of_time(z, lower[i] == upper[i], noise)
        grad = min(max(slope / scale, -MAX_AFT), MAX_AFT)
        hess = min(max(bend / (scale * scale), MIN_HESS), MAX_AFT)
        out[i] = weighted(grad, hess, weights[i], grad_scale, hess_scale, is_count)


@njit(**OPTIONS)
def _of_time(z, is_event, noise):
    """Derivatives by the score, at a scale of 1, of an event's negative log density, or of the log survival's."""
    if noise == EXTREME:
        power = exp(z)
        return is_event - power, power
    if noise == LOGISTIC:
        share = 1.0 / (1.0 + exp(-z))
        return is_event - (1.0 + is_event) * share, (1.0 + is_event) * share * (1.0 - share)
    if is_event:
        return -z, 1.0
    if z > _FAR:
        beyond = 1 / z - 2 / z**3 + 10 / z**5
    else:
        beyond = 2 * _DENSITY_AT_0 * exp(-0.5 * z * z) / math.erfc(z * _ROOT_HALF) - z if z > -37 else -z
    return -(z + beyond), (z + beyond) * beyond


@njit(**OPTIONS)
def _of_interval(low, high, noise):
    """Derivatives of the negative log probability of an interval."""
    density, bend, above, below = _at(low, noise)
    next_density, next_bend, next_above, next_below = _at(high, noise)
    # Of the two tails the shorter one keeps its precision.
    inside = max(above - next_above if low > 0 else next_below - below, _LEAST)
    slope = (next_density - density) / inside
    return slope, slope * slope - (next_bend - bend) / inside


@njit(**OPTIONS)
def _at(z, noise):
    """Density, its derivative, and the probabilities above and below."""
    if noise == NORMAL:
        density = _DENSITY_AT_0 * exp(max(-0.5 * z * z, -700.0))
        return density, -z * density, 0.5 * math.erfc(z * _ROOT_HALF), 0.5 * math.erfc(-z * _ROOT_HALF)
    if noise == LOGISTIC:
        above, below = 1.0 / (1.0 + exp(z)), 1.0 / (1.0 + exp(-z))
        return above * below, above * below * (above - below), above, below
    power = exp(min(z, 7.0))
    above = exp(max(-power, -700.0))
    return power * above, power * above * (1 - power), above, -math.expm1(-power)


@njit(**OPTIONS)
def hazard_gradients(scores, order, times, is_event, grad, hess):
    """Gradients and Hessians of the negative partial log likelihood of proportional hazards.

    Parameters
    ----------
    scores : ndarray, shape (n_rows,)
    order : ndarray of int64, shape (n_rows,)
        The rows in order of their times.
    times, is_event : ndarray, shape (n_rows,)
        In this order.
    grad, hess : ndarray of float64, shape (n_rows,)
        Overwritten.
    """
    n, highest = len(order), scores.max()
    hazards, at_risk = np.empty(n), np.empty(n)
    for i in range(n):
        hazards[i] = exp(max(scores[order[i]] - highest, -700.0))
    total = 0.0
    for i in range(n - 1, -1, -1):
        total += hazards[i]
        at_risk[i] = total
    once, twice, now = 0.0, 0.0, at_risk[0]
    for i in range(n):
        # All rows of the same time are at risk.
        now = at_risk[i] if i == 0 or times[i] > times[i - 1] else now
        if is_event[i]:
            once += 1.0 / now
            twice += 1.0 / (now * now)
        grad[order[i]] = hazards[i] * once - is_event[i]
        hess[order[i]] = max(hazards[i] * once - hazards[i] * hazards[i] * twice, 0.0)
