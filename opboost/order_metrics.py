"""Order preservation of a randomised column, and the success of a Bayes-optimal attack on its values.

Functions that take `log_probabilities` are exact: they read a mechanism's table, ``log P[x, y]`` of shape ``(n, n)``.
Source: OpBoost (VLDB 2023), section 5, and the weighted Kendall coefficient of its evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opboost.errors import DataError, ParameterError

Table = NDArray[np.float64]

# Largest count matrix from which Kendall's coefficient is computed; above it the rows are merged instead.
_MAX_COUNT_CELLS = 1 << 22


def weighted_kendall(values: ArrayLike, released: ArrayLike) -> float:
    """Weighted Kendall coefficient between a column and its release, in -1..1.

    A pair weighs as much as its dense ranks in `values` lie apart, and counts +1, 0 or -1 for the same, tied or
    opposite order in `released`. Takes O(n log n) for n rows, or O(distinct values x distinct releases) if less.

    Parameters
    ----------
    values, released : array of shape (n_rows,)

    Raises
    ------
    DataError
        If the lengths differ, or `values` holds a single value, so that there is no pair to compare.
    """
    x_distinct, x = np.unique(np.asarray(values), return_inverse=True)
    y_distinct, y = np.unique(np.asarray(released), return_inverse=True)
    if x.shape != y.shape or len(x_distinct) < 2:
        raise DataError(f"need two columns of equal length and two distinct values; got {x.shape} and {y.shape}")
    counts = np.bincount(x)
    if len(x_distinct) * len(y_distinct) <= _MAX_COUNT_CELLS:
        joint = np.bincount(x * len(y_distinct) + y, minlength=len(x_distinct) * len(y_distinct))
        concordance = _concordance(joint.reshape(len(x_distinct), -1).astype(np.float64))
    else:
        concordance = _merged_concordance(x, y)
    return concordance / _spread(counts.astype(np.float64))


def expected_weighted_kendall(log_probabilities: Table, weights: ArrayLike | None = None) -> float:
    """Expected weighted Kendall coefficient of a large column.

    Parameters
    ----------
    log_probabilities : ndarray of shape (n, n)
    weights : array of shape (n,), optional
        How often each code occurs; by default all alike. Codes that do not occur do not widen the distances, since
        these are between dense ranks.
    """
    prior = _prior(log_probabilities, weights)
    occurs = prior > 0
    joint = prior[occurs, None] * np.exp(log_probabilities[occurs])
    return _concordance(joint) / _spread(prior[occurs])


def gamma(log_probabilities: Table, t: int) -> float:
    """Least probability that two inputs at distance `t` come out in strictly the same order; ties count against."""
    return gammas(log_probabilities, (t,))[0]


def gammas(log_probabilities: Table, distances: Sequence[int]) -> tuple[float, ...]:
    """`gamma` at several distances, for little more than the price of one."""
    n = len(log_probabilities)
    for t in distances:
        if not 1 <= t < n:
            raise ParameterError(f"t must lie in 1..{n - 1}; got {t}")
    table = np.exp(log_probabilities)
    below = np.cumsum(table, axis=1) - table
    return tuple(float(np.einsum("ij,ij->i", table[t:], below[:-t]).min()) for t in distances)


def beta(log_probabilities: Table, left: ArrayLike, right: ArrayLike) -> float:
    """Probability that the releases of `left` all stay below those of `right`: no value crosses the split.

    Parameters
    ----------
    log_probabilities : ndarray of shape (n, n)
    left, right : array of int
        Positions in the domain of the records on the two sides.

    Notes
    -----
    The sum over the largest release s on the left is ``sum over s of (prod F_j(s) - prod F_j(s - 1)) * prod over the
    right of (1 - F_j(s))``. The paper's sum over "which record is the largest" counts ties more than once.
    """
    left_up_to, right_up_to = (np.cumsum(np.exp(log_probabilities[np.asarray(side)]), axis=1) for side in (left, right))
    with np.errstate(divide="ignore"):
        log_at_most = np.log(np.clip(left_up_to, 0.0, 1.0)).sum(axis=0)
        log_above = np.log(np.clip(1.0 - right_up_to, 0.0, 1.0)).sum(axis=0)
    at_most = np.exp(log_at_most)
    return float(np.sum(np.diff(at_most, prepend=0.0) * np.exp(log_above)))


def crossing(log_probabilities: Table, split: int, weights: ArrayLike | None = None) -> float:
    """Expected share of a large column's records whose release lies on the other side of a split.

    Parameters
    ----------
    log_probabilities : ndarray of shape (n, n)
    split : int
        Positions up to `split` lie on the left.
    weights : array of shape (n,), optional
        How often each code occurs; by default all alike.

    Raises
    ------
    ParameterError
        If nothing of the domain lies to the right of the split.
    """
    n = len(log_probabilities)
    if not 0 <= split < n - 1:
        raise ParameterError(f"a split must lie in 0..{n - 2}; got {split}")
    prior = _prior(log_probabilities, weights)
    occurs = np.flatnonzero(prior)
    comes_left = np.exp(log_probabilities[occurs, : split + 1]).sum(axis=1)
    crosses = np.where(occurs <= split, 1.0 - comes_left, comes_left)
    return float(np.clip(prior[occurs] @ crosses, 0.0, 1.0))


@dataclass(frozen=True, slots=True)
class Attack:
    """Success and error of the best guess at a value, after seeing its release.

    Attributes
    ----------
    success : float
        Probability of naming the code exactly.
    blind_success : float
        The same without seeing the release.
    error : float
        Expected absolute error of the best guess, in codes.
    blind_error : float
        The same without seeing the release.
    """

    success: float
    blind_success: float
    error: float
    blind_error: float


def bayes_attack(log_probabilities: Table, weights: ArrayLike | None = None) -> Attack:
    """The Bayes-optimal attacker who knows the mechanism and how often each code occurs.

    Parameters
    ----------
    log_probabilities : ndarray of shape (n, n)
    weights : array of shape (n,), optional
        How often each code occurs; by default all alike.
    """
    prior = _prior(log_probabilities, weights)
    occurs = np.flatnonzero(prior)
    joint = prior[occurs, None] * np.exp(log_probabilities[occurs])
    return Attack(
        success=float(joint.max(axis=0).sum()),
        blind_success=float(prior.max()),
        error=_median_error(occurs, joint),
        blind_error=_median_error(occurs, prior[occurs, None]),
    )


def _prior(log_probabilities: Table, weights: ArrayLike | None) -> NDArray[np.float64]:
    n = len(log_probabilities)
    prior = np.ones(n) if weights is None else np.asarray(weights, dtype=np.float64)
    if prior.shape != (n,) or (prior < 0).any() or not prior.sum() > 0:
        raise ParameterError(f"weights must be {n} numbers, none negative and not all zero; got shape {prior.shape}")
    return prior / prior.sum()


def _median_error(codes: NDArray[np.int64], joint: NDArray[np.float64]) -> float:
    """Expected distance of a code from the best guess in each column of ``joint[code, y]``: the weighted median."""
    cumulative = np.cumsum(joint, axis=0)
    guesses = codes[(cumulative < cumulative[-1] / 2).sum(axis=0)]
    return float((joint * np.abs(codes[:, None] - guesses)).sum())


def _spread(weights: NDArray[np.float64]) -> float:
    """Sum over all pairs of rows of the distance of their dense ranks; ``weights[r]`` rows have rank r."""
    ranks = np.arange(len(weights))
    return float(
        np.sum(weights * (ranks * (np.cumsum(weights) - weights) - (np.cumsum(weights * ranks) - weights * ranks)))
    )


def _concordance(joint: NDArray[np.float64]) -> float:
    """Signed sum of rank distances over all pairs, from ``joint[x rank, y rank]``."""
    lower = np.cumsum(joint, axis=0)
    lower -= joint
    # Summed once more, every lower row counts as often as it lies ranks below.
    weighted = np.cumsum(lower, axis=0)
    up_to = np.cumsum(weighted, axis=1)
    # Agreeing pairs are those up to y without y itself, opposing ones those behind y.
    agree_and_tied, tied = np.einsum("ij,ij->", joint, up_to), np.einsum("ij,ij->", joint, weighted)
    return float(2 * agree_and_tied - tied - joint.sum(axis=1) @ up_to[:, -1])


def _merged_concordance(x: NDArray[np.int64], y: NDArray[np.int64]) -> float:
    """The same by merging: rows in order of x, blocks of doubling size sorted by y, pairs counted across halves."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    n_y = int(y.max()) + 1
    total, size = 0.0, 1
    while size < len(x):
        block, is_right = np.divmod(np.arange(len(x)) // size, 2)
        key = block * n_y + y
        left, right = key[is_right == 0], key[is_right == 1]
        sums = np.concatenate([[0], np.cumsum(x[is_right == 0])])
        first, last = (np.searchsorted(left, (block[is_right == 1] + end) * n_y) for end in (0, 1))
        low, high = (np.searchsorted(left, right, side=side) for side in ("left", "right"))
        n_agree_less_oppose = (low - first) - (last - high)
        sum_agree_less_oppose = (sums[low] - sums[first]) - (sums[last] - sums[high])
        total += float(np.sum(x[is_right == 1] * n_agree_less_oppose - sum_agree_less_oppose))
        order = np.argsort(key, kind="stable")
        x, y = x[order], y[order]
        size *= 2
    return total
