"""Splits chosen by the exponential mechanism among the cuts, and the categories, of a public grid."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from opboost.arrays import HistogramAxes, Mask, Nodes, Sums, Values
from opboost.errors import check_not_negative
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import BitSource
from opboost.trees.complete import Cuts
from opboost.trees.holder import RowHolder
from opboost.trees.losses import GradientGrid


@dataclass(frozen=True, kw_only=True)
class ScoredRule:
    """Base of the rules that choose a split by the exponential mechanism over gains.

    The gain is ``S_L^2 / (n_L + reg_lambda) + S_R^2 / (n_R + reg_lambda)``; the node's own term is the same for all
    candidates and left out.

    Parameters
    ----------
    grid : GradientGrid
        Steps of the sums of g and of the counts.
    reg_lambda : float
    mechanism : ExponentialMechanism
        For one level: its nodes share no record.
    holder : RowHolder
        Whose answers are exact.
    rng : BitSource
    """

    grid: GradientGrid
    reg_lambda: float
    mechanism: ExponentialMechanism
    holder: RowHolder
    rng: BitSource

    def __post_init__(self) -> None:
        check_not_negative("reg_lambda", self.reg_lambda)

    def missing_left(self, n_nodes: int) -> Mask:
        """Draw the way of missing values, before the data are looked at."""
        return self.rng.words(n_nodes) >> np.uint64(63) == 0


@dataclass(frozen=True, kw_only=True)
class ExponentialRule(ScoredRule):
    """One split per node among the cuts and the categories of a public grid.

    No candidate is left out: which ones there are must not depend on the data. A column of categories has one candidate
    per category, which is parted from the others.

    Parameters
    ----------
    axes : HistogramAxes
        Of a public grid; all columns of numbers have as many cells.

    Notes
    -----
    Privacy: ``mechanism.epsilon`` per level, if its range covers the gain's change by one record. For ``|g| <= B`` and
    counts the change lies in ``(-3 B^2, B^2]``, for every ``reg_lambda >= 0``: a range of ``4 B^2``
    (`gain_range`). The way of missing values is drawn before the data are looked at, or that of the other categories.
    """

    axes: HistogramAxes

    @cached_property
    def _candidates(self) -> tuple[Nodes, Nodes]:
        return grid_candidates(self.axes)

    def start_tree(self) -> None:
        """Nothing is kept between trees."""

    def choose(self, nodes: Nodes, holder: RowHolder) -> Cuts:
        """Choose one split per node. The holder that is passed releases its answers, and is not asked."""
        histograms = np.empty((len(nodes), 2, self.axes.n_bins), dtype=np.int64)
        self.holder.write_histograms(nodes, histograms)
        missing_left = self.missing_left(len(nodes))
        gains = candidate_gains(histograms, missing_left, self.axes, self.grid, self.reg_lambda)
        columns, cuts = self._candidates
        chosen = self.mechanism.choose(gains, rng=self.rng)
        return Cuts(columns[chosen], cuts[chosen], missing_left & ~self.axes.is_categorical[columns[chosen]])


def gain_range(max_grad: float) -> float:
    """Range of the gain's change by one record, ``4 g^2``: it rises by at most g^2 and falls by at most 3 g^2."""
    return 4.0 * max_grad**2


def grid_candidates(axes: HistogramAxes) -> tuple[Nodes, Nodes]:
    """The column and the cut, or the category, of every candidate; columns of numbers come first."""
    counts = axes.sizes - 2 + axes.is_categorical
    order = np.argsort(axes.is_categorical, kind="stable")
    cuts = np.concatenate([np.arange(counts[column]) for column in order])
    return np.repeat(order, counts[order]).astype(np.int32), cuts.astype(np.int32)


def candidate_gains(
    histograms: Sums, missing_left: Mask, axes: HistogramAxes, grid: GradientGrid, reg_lambda: float
) -> Values:  # numpydoc: shapes below
    """Gain of every one of `grid_candidates`, shape ``(n_nodes, n_candidates)``.

    Parameters
    ----------
    histograms : ndarray of int64, shape (n_nodes, 2, axes.n_bins)
    missing_left : ndarray of bool, shape (n_nodes,)
        For cuts.
    axes : HistogramAxes
    grid : GradientGrid
    reg_lambda : float
    """
    is_number, parts = ~axes.is_categorical, []
    if is_number.any():
        of_numbers = histograms[:, :, np.repeat(is_number, axes.sizes)]
        gains = split_gains(of_numbers, missing_left, int(axes.sizes[is_number][0]), grid, reg_lambda)
        parts.append(gains.reshape(len(histograms), -1))
    for column in np.flatnonzero(axes.is_categorical):
        cells = histograms[:, :, axes.offsets[column] : axes.offsets[column + 1]]
        parts.append(category_gains(cells, grid, reg_lambda))
    return np.concatenate(parts, axis=1)


def category_gains(cells: Sums, grid: GradientGrid, reg_lambda: float) -> Values:
    """Gain of each category against all others and the missing, of one column's sums ``(n_nodes, 2, n_bins)``."""
    left = cells[..., :-1]
    right = cells.sum(axis=-1, keepdims=True) - left
    return _value(left, grid, reg_lambda) + _value(right, grid, reg_lambda)


def split_gains(
    histograms: Sums, missing_left: Mask, n_bins: int, grid: GradientGrid, reg_lambda: float
) -> Values:  # numpydoc: shapes below
    """Gain of every cut, shape ``(n_nodes, n_columns, n_bins - 2)``.

    Parameters
    ----------
    histograms : ndarray of int64, shape (n_nodes, 2, n_columns * n_bins)
        The last bin of every column holds its missing values.
    missing_left : ndarray of bool, shape (n_nodes,)
    n_bins : int
    grid : GradientGrid
    reg_lambda : float
    """
    by_column = histograms.reshape(len(histograms), 2, -1, n_bins)
    left = np.cumsum(by_column[..., : n_bins - 2], axis=-1)
    left = left + np.where(missing_left[:, None, None, None], by_column[..., -1:], 0)
    right = by_column.sum(axis=-1, keepdims=True) - left
    return _value(left, grid, reg_lambda) + _value(right, grid, reg_lambda)


def _value(sums: Sums, grid: GradientGrid, reg_lambda: float) -> Values:
    """``S^2 / (n + reg_lambda)`` of sums of shape ``(n_nodes, 2, ...)``; 0 of nothing."""
    grad, count = sums[:, 0] / grid.grad_scale, sums[:, 1] / grid.hess_scale
    weight = count + reg_lambda
    return np.where(weight > 0, grad * grad, 0.0) / np.where(weight > 0, weight, 1.0)
