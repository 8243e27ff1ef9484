"""Which of many columns the labels depend on, from one released number per column.

Of each column the screen adds up how far the sums of its cells' gradients are from 0. A record is in one cell of each
column, so it moves every number by no more than its own gradient, however many cells there are; squares of released
sums would hold the noise of every cell. A hundred columns that say nothing would otherwise have trees whose noise is in
every score.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from opboost.arrays import HistogramAxes, Sums, Values
from opboost.trees.binning import BinnedTable

# Consecutive cells of numbers, and consecutive categories, are in so many groups at most. On inner folds with 100
# columns of noise at epsilon .1, 4 groups of numbers in place of 8 lose .004 of R^2 and AUC on average.
_N_GROUPS, _N_CATEGORY_GROUPS = 8, 32

# Of the columns that are left so large a part is expected to say nothing, at most (the rule of Benjamini and Hochberg,
# 1995); and at least so many are left. Where few columns say something this asks for about three deviations: there, on
# inner folds at epsilon .1, 2 and 3.5 deviations lose .023 and .003 of R^2 and AUC on average. Where most do, as in
# Spambase, it asks for two, which win .003 at epsilon .5.
_LARGEST_FALSE_PART, _LEAST_KEPT = 0.03, 2

# A quarter of a normal law lies below its mean by more than so many deviations.
_QUARTER = 0.6745


def cell_sums(table: BinnedTable, codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sums of the records' codes in every bin of all columns, shape ``(n_bins,)``; exact below 2**53."""
    sums = [
        np.bincount(bins, weights=codes, minlength=size)
        for bins, size in zip(table.bins, table.axes.sizes.tolist(), strict=True)
    ]
    return np.concatenate(sums).astype(np.int64)


def dependences(sums: Sums, axes: HistogramAxes) -> NDArray[np.int64]:
    """How far the sums of each column's cells are from 0: the norms over all outputs, added up and rounded down.

    Parameters
    ----------
    sums : ndarray of int64, shape (n_outputs, n_bins)
    axes : HistogramAxes

    Returns
    -------
    ndarray of int64, shape (n_columns,)

    Notes
    -----
    Privacy: exact, to be released under noise. A record changes one cell's sums of each column, and so each of the
    numbers by at most the norm of its codes over all outputs, and by less than 2 more where norms are rounded.
    """
    begins, first_groups = _groups(axes)
    grouped = np.add.reduceat(sums, begins, axis=1)
    norms = np.abs(grouped[0]) if len(sums) == 1 else np.sqrt((grouped.astype(np.float64) ** 2).sum(axis=0))
    return np.floor(np.add.reduceat(norms, first_groups)).astype(np.int64)


def columns_that_stand_out(noisy: Values, axes: HistogramAxes, *, std: float) -> tuple[NDArray[np.int64], Values]:
    """The columns that are left, in their order, and merits of all for `LearntColumns`.

    What every column has from chance, from scores that are too low on the whole and from several owners' rows being
    added up after the fact is what a quarter of the columns have less than, noise left out. Chance alone gives to a
    column in proportion to the root of its number of groups, less where records are in few of them. So a column of few
    groups is expected to have no more than that share of what others have.

    Parameters
    ----------
    noisy : ndarray of float64, shape (n_columns,)
        Released `dependences`.
    axes : HistogramAxes
    std : float
        Deviation of the noise on each.

    Notes
    -----
    Privacy: post-processing of released numbers.
    """
    begins, first_groups = _groups(axes)
    n_groups = np.diff(first_groups, append=len(begins))
    # So raised, numbers that differ by their noise alone have their lower quarter at their mean, whatever divides them.
    levels = noisy + _QUARTER * std
    by_chance = np.quantile(levels / np.sqrt(n_groups), 0.25) * np.sqrt(n_groups)
    excess = noisy - np.minimum(np.quantile(levels, 0.25), by_chance)
    order = np.argsort(-excess, kind="stable")
    expected_false = len(order) * ndtr(-excess[order] / std)
    is_enough = expected_false <= _LARGEST_FALSE_PART * np.arange(1, len(order) + 1)
    n_kept = max(_LEAST_KEPT, int(np.flatnonzero(is_enough).max(initial=-1)) + 1)
    return np.sort(order[:n_kept]), np.maximum(excess, 0.0) ** 2 / n_groups


def _groups(axes: HistogramAxes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """First bins of all groups, and the first group of each column; missing cells are a group."""
    begins = []
    for column, begin in enumerate(axes.offsets[:-1].tolist()):
        n_values = axes.n_value_bins(column)
        n_groups = min(_N_CATEGORY_GROUPS if axes.is_categorical[column] else _N_GROUPS, n_values)
        begins.append(begin + np.append(np.arange(n_groups) * n_values // n_groups, n_values))
    return np.concatenate(begins), np.cumsum([0, *map(len, begins[:-1])])
