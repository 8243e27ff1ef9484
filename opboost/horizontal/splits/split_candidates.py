"""Split candidates: Q per column, between public bounds (Maddock et al., CCS 2022, section 4.5).

Uniform and logarithmic candidates cost nothing. Quantiles of the data are not private. The Iterative Hessian methods
move the candidates to where noisy sums of Hessians say that there is something to be told apart:

- as printed: merge neighbouring bins until their mass exceeds that of an even bin, and fill up with points in between;
- equal mass: the noisy sums, taken for a density, are cut into bins of equal mass. A column of which almost all lies in
  one bin is resolved by a factor of Q per round, where the printed rule halves a gap at most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.errors import ParameterError
from opboost.horizontal.rows.public_grid import PublicGrid

# Public bounds of every column.
ColumnBounds = Sequence[tuple[float, float]]


def uniform_candidates(bounds: ColumnBounds, n_candidates: int) -> PublicGrid:
    """Uniform candidates ``a + q (b - a) / Q`` for q = 0 .. Q - 1; the first one separates the lower bound itself."""
    shares = np.arange(n_candidates) / n_candidates
    return _grid(bounds, [lower + (upper - lower) * shares for lower, upper in bounds])


def log_candidates(bounds: ColumnBounds, n_candidates: int, *, mirrored: Mask | None = None) -> PublicGrid:
    """Logarithmic candidates, even in ``log(1 + x - a)``, for columns skewed towards the lower bound.

    Parameters
    ----------
    bounds : sequence of (lower, upper)
    n_candidates : int
    mirrored : ndarray of bool, shape (n_columns,), optional
        Columns that crowd near the upper bound: ``s -> a + b - s``. Public knowledge, as all candidates are.
    """
    shares = np.arange(n_candidates) / n_candidates
    cuts = []
    for column, (lower, upper) in enumerate(bounds):
        column_cuts = lower + np.expm1(shares * np.log1p(upper - lower))
        if mirrored is not None and mirrored[column]:
            column_cuts = np.sort(lower + upper - column_cuts)
        cuts.append(column_cuts)
    return _grid(bounds, cuts)


def quantile_candidates(bounds: ColumnBounds, n_candidates: int, rows: Values) -> PublicGrid:
    """Quantiles of the data at q / Q, shape of `rows` ``(n_rows, n_columns)``: not private, for comparison only."""
    shares = np.arange(n_candidates) / n_candidates
    clipped = [np.clip(rows[:, column], *bound) for column, bound in enumerate(bounds)]
    cuts = [
        np.quantile(values[~np.isnan(values)], shares) if (~np.isnan(values)).any() else bound[0] + shares
        for values, bound in zip(clipped, bounds, strict=True)
    ]
    return _grid(bounds, cuts)


def merged_candidates(cuts: Values, weights: Values, mean_total: float) -> Values:
    """Published refinement rule for one column; keeps the number of candidates.

    Parameters
    ----------
    cuts : ndarray of float64, shape (n_candidates,)
        Ascending.
    weights : ndarray of float64, shape (n_candidates + 1,)
        Noisy sums of Hessians of the bins.
    mean_total : float
        Noisy sum over all bins, as a mean over the columns. A bin is full when its mass exceeds this over Q.
    """
    threshold, mass = mean_total / len(cuts), 0.0
    kept = []
    for cut, weight in zip(cuts[:-1], np.maximum(weights, 0.0), strict=False):
        mass += weight
        if mass > threshold:
            kept.append(cut)
            mass = 0.0
    return _filled(np.unique([*kept, cuts[-1]]), cuts)


def _filled(kept: Values, before: Values) -> Values:
    """Equally spaced points in the gaps between the candidates, the widest gaps first where points are few."""
    n = len(before)
    if kept[0] > before[0] and len(kept) == 1:
        kept = np.array([before[0], kept[0]])
    n_missing, gaps = n - len(kept), np.diff(kept)
    if n_missing == 0 or len(gaps) == 0:
        return np.resize(kept, n) if len(kept) == 1 else kept
    per_gap = np.full(len(gaps), n_missing // len(gaps))
    per_gap[np.argsort(-gaps, kind="stable")[: n_missing % len(gaps)]] += 1
    pieces = [
        low + width * np.arange(inside + 1) / (inside + 1)
        for low, width, inside in zip(kept[:-1], gaps, per_gap, strict=True)
    ]
    return np.concatenate([*pieces, kept[-1:]])


@dataclass(frozen=True, slots=True)
class MassEstimate:
    """Piecewise constant density of a column's Hessians.

    Attributes
    ----------
    edges : ndarray of float64, shape (n_pieces + 1,)
        Ascending, from the lower bound to the upper one.
    masses : ndarray of float64, shape (n_pieces,)
        At least 0.
    """

    edges: Values
    masses: Values

    @classmethod
    def of_nothing(cls, lower: float, upper: float) -> MassEstimate:
        """Uniform density, before anything is known."""
        return cls(np.array([lower, upper]), np.ones(1))

    def learnt(self, cuts: Values, weights: Values) -> MassEstimate:
        """Update the density with observed bin masses; inside a bin its shape is kept.

        Parameters
        ----------
        cuts : ndarray of float64, shape (n_candidates,)
        weights : ndarray of float64, shape (n_candidates + 1,)
            Noisy sums of the bins. Those below 0 count as 0.
        """
        if not (weights > 0).any():
            return self
        edges = np.union1d(self.edges, np.clip(cuts, self.edges[0], self.edges[-1]))
        reached = np.interp(edges, self.edges, np.concatenate([[0.0], np.cumsum(self.masses)]))
        masses, widths = np.diff(reached), np.diff(edges)
        # A bin (cuts[i - 1], cuts[i]] holds the pieces that end in it.
        bins = np.searchsorted(cuts, edges[1:], side="left")
        mass_of_bin = np.bincount(bins, masses, len(weights))
        width_of_bin = np.bincount(bins, widths, len(weights))
        shape = (
            np.where(mass_of_bin[bins] > 0, masses, widths)
            / np.where(mass_of_bin > 0, mass_of_bin, np.maximum(width_of_bin, 1e-300))[bins]
        )
        return MassEstimate(edges, np.maximum(weights, 0.0)[bins] * shape)

    def quantiles(self, n_candidates: int) -> Values:
        """Cuts between bins of equal mass, shape ``(n_candidates,)``; the first is the lower bound."""
        total = self.masses.sum()
        if not total > 0:
            return self.edges[0] + (self.edges[-1] - self.edges[0]) * np.arange(n_candidates) / n_candidates
        reached = np.concatenate([[0.0], np.cumsum(self.masses)])
        wanted = total * np.arange(1, n_candidates) / n_candidates
        return np.concatenate([self.edges[:1], np.interp(wanted, reached, self.edges)])


class Refinement:
    """Iterative Hessian refinement of split candidates.

    Parameters
    ----------
    columns : PublicGrid
        The candidates to begin with.
    equal_mass : bool
        Equal mass, or as printed.

    Attributes
    ----------
    columns : PublicGrid
        The current ones.
    """

    def __init__(self, columns: PublicGrid, *, equal_mass: bool) -> None:
        self.columns = columns
        self._masses = [MassEstimate.of_nothing(*bound) for bound in columns.bounds] if equal_mass else None

    def learn(self, which: NDArray[np.int64], weights: Values) -> PublicGrid:
        """New candidates for some columns, from their noisy sums of Hessians, shape ``(n_which, n_bins)``.

        Notes
        -----
        Privacy: post-processing of what was released.
        """
        cuts = list(self.columns.cuts)
        mean_total = float(weights.sum(axis=1).mean())
        for column, of_bins in zip(which.tolist(), weights, strict=True):
            if self._masses is None:
                cuts[column] = merged_candidates(cuts[column], of_bins, mean_total)
            else:
                self._masses[column] = self._masses[column].learnt(cuts[column], of_bins)
                cuts[column] = self._masses[column].quantiles(len(cuts[column]))
        self.columns = _grid(self.columns.bounds, cuts)
        return self.columns


def _grid(bounds: ColumnBounds, cuts: list[Values]) -> PublicGrid:
    if len(cuts[0]) < 1:
        raise ParameterError("at least one split candidate per column is needed")
    return PublicGrid(bounds, len(cuts[0]) + 1, given=tuple(cuts))
