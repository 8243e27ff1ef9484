"""Split candidates from noisy counts: cells of about equal counts, for a small share of the budget.

Between round bounds most records of a column may lie in a few even cells, and random cuts elsewhere part nobody from
anybody: such a tree asks the same question again. So the records of every even cell are counted once, with noise, and
the cuts are placed anew so that the cells in between hold about as many records each.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import BitSource

# Fixed-point steps of a count.
_STEPS = 2.0**16

# How far a cell's share is expected to be from an even one, in even shares, squared: columns between round bounds have
# cells with none and cells with several times their share.
_EXPECTED_SPREAD = 3.0


def equal_cells(grid: PublicGrid, rows: Values, *, std: float, rng: BitSource) -> PublicGrid:
    """Cuts that leave about as many records in every cell; categories keep theirs.

    Parameters
    ----------
    grid : PublicGrid
        Even cells.
    rows : ndarray of float64, shape (n_rows, n_columns)
        Missing cells are not counted.
    std : float
        Deviation of the noise on each count; 0 for none.
    rng : BitSource

    Notes
    -----
    Privacy: one release of `counts_sensitivity` under Gaussian noise of deviation `std`; the rest is post-processing.
    """
    table, n_cells = grid.place(rows), grid.n_cells
    numbers = [column for column in range(len(grid.bounds)) if column not in grid.categorical]
    if not numbers:
        return grid
    counts = np.stack([np.bincount(table.bins[column], minlength=n_cells + 1)[:n_cells] for column in numbers])
    noise = gaussian_noise(std, _STEPS)
    noisy = counts.astype(np.float64)
    if noise is not None:
        noisy += (noise.draw(counts.size, rng=rng) / _STEPS).reshape(counts.shape)
    n_records = max(float(noisy.sum(axis=1).mean()), 1.0)
    cuts = list(grid.cuts)
    for column, of_cells in zip(numbers, noisy, strict=True):
        lower, upper = grid.bounds[column]
        shares = cell_shares(of_cells, n_records, std)
        reached = np.concatenate([[0.0], np.cumsum(shares)])
        edges = lower + (upper - lower) * np.arange(n_cells + 1) / n_cells
        cuts[column] = np.interp(reached[-1] * np.arange(1, n_cells) / n_cells, reached, edges)
    return replace(grid, given=tuple(cuts))


def counts_sensitivity(n_columns: int) -> float:
    """L2 sensitivity of the counts of all columns: a record is in at most one cell of each."""
    return math.sqrt(n_columns)


def cell_shares(noisy: Values, n_records: float, std: float) -> Values:
    """Shares of the cells of one column, at least 0 with a sum of 1, from noisy counts.

    Counts are drawn towards even ones by how much of their spread is noise (the best linear estimate), and then moved
    to the nearest counts that are not negative and have the right sum, which also removes most of what is noise alone.
    """
    even = n_records / len(noisy)
    weight = 1.0 if std == 0 else 1.0 / (1.0 + std**2 / (_EXPECTED_SPREAD * even**2))
    counts = even + weight * (noisy - even)
    falling = np.sort(counts)[::-1]
    excess = (np.cumsum(falling) - n_records) / np.arange(1, len(counts) + 1)
    level = excess[np.flatnonzero(falling > excess)[-1]]
    return np.maximum(counts - level, 0.0) / n_records
