# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Gradients of LambdaMART: sums over pairs of a group's rows whose labels differ."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.gradients import exp
from opboost.trees.kernels.packing import OPTIONS, PARALLEL

# Added to the difference of two scores by which a pair's weight is divided.
_SLACK = 0.01

# Scores farther below the highest one of their group count as so far below: squares of their powers stay above 0.
_FARTHEST = 300.0

# Groups of so many rows are sorted by insertion, which is faster for few (by half for 20).
_FEW = 48


@njit(**PARALLEL)
def pair_gradients(scores, gains, ideals, discounts, rows, begins, weights, n_pairs, grad, hess):
    """Gradients and Hessians of the rows of groups, as XGBoost computes them.

    Pairs are those of the rows with the `n_pairs` highest scores and all rows below each. A pair weighs what NDCG would
    change by if the two were exchanged, or 1 where a group's ideal is 0, divided by the difference of the scores. A
    group's sums are scaled so that large ones count like their logarithm.

    Parameters
    ----------
    scores : ndarray, shape (n_rows,)
    gains : ndarray of float64, shape (n_rows,)
        Of the labels, group by group.
    ideals, weights : ndarray of float64, shape (n_groups,)
    discounts : ndarray of float64, at least as many as a group has rows
        Of the places in a group.
    rows : ndarray of int64, shape (n_rows,)
        The rows, group by group.
    begins : ndarray of int64, shape (n_groups + 1,)
        Where each group begins among them.
    grad, hess : ndarray of float64, shape (n_rows,)
        Overwritten.
    """
    for group in prange(len(weights)):
        begin, end = begins[group], begins[group + 1]
        n = end - begin
        s, powers, of_place = np.empty(n), np.empty(n), np.empty(n)
        for i in range(n):
            s[i] = scores[rows[begin + i]]
        order = _descending(s)
        for i in range(n):
            s[i] = scores[rows[begin + order[i]]]
            of_place[i] = gains[begin + order[i]]
        for i in range(n):
            powers[i] = exp(max(s[i] - s[0], -_FARTHEST))
        g, h = np.zeros(n), np.zeros(n)
        total = _add_pairs(s, powers, of_place, discounts, min(n, n_pairs), ideals[group], g, h)
        scale = weights[group] * (np.log2(1.0 + total) / total if total > 0 else 1.0)
        for i in range(n):
            grad[rows[begin + order[i]]] = g[i] * scale
            hess[rows[begin + order[i]]] = h[i] * scale


@njit(**OPTIONS)
def _descending(s):
    """The order of numbers from the highest one, equal ones as they come; few are sorted themselves, too."""
    if len(s) > _FEW:
        return np.argsort(-s, kind="mergesort")
    order = np.empty(len(s), np.int64)
    for i in range(len(s)):
        score, place = s[i], i
        while place > 0 and s[place - 1] < score:
            s[place], order[place] = s[place - 1], order[place - 1]
            place -= 1
        s[place], order[place] = score, i
    return order


@njit(**OPTIONS)
def _add_pairs(s, powers, gains, discounts, n_above, ideal, g, h):
    """Add the pairs of a group whose scores descend to `g` and `h`; returns the sum of the gradients' magnitudes."""
    n, total = len(s), 0.0
    slopes, bends = np.empty(n), np.empty(n)
    # Of equal scores, no weight is divided.
    share, slack = (1.0, _SLACK) if s[0] > s[n - 1] else (0.0, 1.0)
    by_gain, alike = (1.0 / ideal, 0.0) if ideal > 0 else (0.0, 1.0)
    for i in range(n_above):
        gain, discount, power, score = gains[i], discounts[i], powers[i], s[i]
        for j in range(i + 1, n):
            sign = 1.0 * (gain > gains[j]) - 1.0 * (gain < gains[j])
            weight = abs((gain - gains[j]) * (discount - discounts[j])) * by_gain + abs(sign) * alike
            both = power + powers[j]
            each = weight / (both * both * (share * (score - s[j]) + slack))
            # The chance that the row with the lower label is above the other one is its power's share in both.
            slopes[j] = sign * each * both * (powers[j] if sign > 0 else power)
            bends[j] = 2.0 * each * power * powers[j]
            g[j] += slopes[j]
            h[j] += bends[j]
        for j in range(i + 1, n):
            g[i] -= slopes[j]
            h[i] += bends[j]
            total += 2.0 * abs(slopes[j])
    return total
