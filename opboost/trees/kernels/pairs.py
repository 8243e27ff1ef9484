# mypy: disable-error-code="no-untyped-def,misc,call-arg"
"""Gradients of LambdaMART: sums over pairs of a group's rows whose labels differ."""

from __future__ import annotations

import numpy as np
from numba import njit, prange

from opboost.trees.kernels.gradients import MIN_HESS, exp
from opboost.trees.kernels.packing import OPTIONS

# Added to the difference of two scores by which a pair's weight is divided.
_SLACK = 0.01


@njit(parallel=True, **OPTIONS)
def pair_gradients(scores, labels, rows, begins, weights, n_pairs, is_pairwise, grad, hess):
    """Gradients and Hessians of the rows of groups, as XGBoost computes them.

    Pairs are those of the rows with the `n_pairs` highest scores and all rows below each. A pair weighs what NDCG would
    change by if the two were exchanged, or 1 if it `is_pairwise`, divided by the difference of the scores. A group's
    sums are scaled so that large ones count like their logarithm.

    Parameters
    ----------
    scores, labels : ndarray, shape (n_rows,)
        Labels are degrees of relevance, 0 to 31.
    rows : ndarray of int64, shape (n_rows,)
        The rows, group by group.
    begins : ndarray of int64, shape (n_groups + 1,)
        Where each group begins among them.
    weights : ndarray of float64, shape (n_groups,)
    grad, hess : ndarray of float64, shape (n_rows,)
        Overwritten.
    """
    for group in prange(len(weights)):
        of_group = rows[begins[group] : begins[group + 1]]
        n = len(of_group)
        s, gains, discounts = np.empty(n), np.empty(n), np.empty(n)
        for i in range(n):
            s[i] = -scores[of_group[i]]
        of_group = of_group[np.argsort(s, kind="mergesort")]
        for i in range(n):
            s[i] = scores[of_group[i]]
            gains[i] = 2.0 ** labels[of_group[i]] - 1.0
            discounts[i] = 1.0 / np.log2(i + 2.0)
        ideal, best = 0.0, np.sort(gains)
        for i in range(min(n, n_pairs)):
            ideal += best[n - 1 - i] * discounts[i]
        g, h = np.zeros(n), np.zeros(n)
        per_gain = 0.0 if is_pairwise else 1.0 / max(ideal, 1.0)
        total = _add_pairs(s, gains, discounts, min(n, n_pairs), per_gain, g, h)
        scale = weights[group] * (np.log2(1.0 + total) / total if total > 0 else 1.0)
        for i in range(n):
            grad[of_group[i]] = g[i] * scale
            hess[of_group[i]] = h[i] * scale


@njit(**OPTIONS)
def _add_pairs(s, gains, discounts, n_above, per_gain, g, h):
    """Add the pairs of a group whose scores descend to `g` and `h`; returns the sum of the gradients' magnitudes.

    A pair weighs its change of the discounted gain times `per_gain`, or 1 where that is 0.
    """
    n, total = len(s), 0.0
    slopes, bends = np.empty(n), np.empty(n)
    # Of equal scores, no weight is divided.
    share, slack = (1.0, _SLACK) if s[0] > s[n - 1] else (0.0, 1.0)
    for i in range(n_above):
        for j in range(i + 1, n):
            sign = 1.0 * (gains[i] > gains[j]) - 1.0 * (gains[i] < gains[j])
            change = abs((gains[i] - gains[j]) * (discounts[i] - discounts[j])) * per_gain
            weight = (change if per_gain > 0 else abs(sign)) / (share * (s[i] - s[j]) + slack)
            # The chance that the row with the lower label is above the other.
            odd = 1.0 / (1.0 + exp(min(max(sign * (s[i] - s[j]), -700.0), 700.0)))
            slopes[j] = sign * odd * weight
            bends[j] = 2.0 * max(odd * (1.0 - odd), MIN_HESS) * weight
            g[j] += slopes[j]
            h[j] += bends[j]
        for j in range(i + 1, n):
            g[i] -= slopes[j]
            h[i] += bends[j]
            total += 2.0 * abs(slopes[j])
    return total
