"""Grid of cells: where trees may cut a passive party's columns, agreed before training and a function of the release.

The owner answers about a record with the number of its cell in every column, and with one more number for a missing
cell. Questions are fixed before trees are grown, so nothing that the owner reads depends on labels. However many
questions are asked, the answers reveal no more of a value than its cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Ranks, Values
from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import deconvolved_counts
from opboost.errors import ParameterError
from opboost.privacy.domain import IntegerDomain
from opboost.ranking import Ranking, RankTable
from opboost.routing import SplitTests
from opboost.trees.binning import choose_cuts
from opboost.trees.tree import MOST_GRID_CELLS

# Cells unless an owner says otherwise: more won nothing on seven tables (`docs/privacy/answers.md`).
DEFAULT_CELLS = 16


def grid_cuts(
    counts: NDArray[np.int64], table: RankTable, domain: IntegerDomain, *, n_cells: int, release: ColumnRelease | None
) -> NDArray[np.int64]:
    """Ranks behind which to cut a released column, so that at most `n_cells` cells of about equal weight arise.

    As many codes lie in a record's cell on average as in one of `n_cells` even cells, or more.

    Parameters
    ----------
    counts : ndarray of int64, shape (n_ranks + 1,)
        How often each rank was released, and a missing cell.
    table : RankTable
    domain : IntegerDomain
        Of the codes.
    n_cells : int
    release : ColumnRelease or None
        The noise that the column went through. Weights are then those of the *exact* codes, by their deconvolved
        distribution, in place of counts of released ones.

    Raises
    ------
    ParameterError
        If that is no number of cells.

    Notes
    -----
    Privacy: a function of the release.
    """
    if not 2 <= n_cells <= MOST_GRID_CELLS:
        raise ParameterError(f"a grid has 2 to {MOST_GRID_CELLS} cells per column; got {n_cells}. Nothing was sent")
    weights = counts[:-1]
    if release is not None and len(weights) > n_cells:
        shares = deconvolved_counts(release, counts)
        weights = np.round(shares * (2.0**40 / shares.sum())).astype(np.int64)
    # A value that alone has more than a cell's share has one cell, and leaves the others to the rest.
    capped = weights
    while len(capped) > n_cells and capped.max() > (share := -(-int(capped.sum()) // n_cells)):
        capped = np.minimum(capped, share)
    return _wide_enough(choose_cuts(capped, max_bin=n_cells), weights, table, domain, domain.size / n_cells)


def _wide_enough(
    cuts: NDArray[np.int64], weights: NDArray[np.int64], table: RankTable, domain: IntegerDomain, least: float
) -> NDArray[np.int64]:
    """Remove cuts until a record's cell has at least `least` codes on average."""
    while len(cuts):
        ends = np.floor([table.threshold(rank) for rank in cuts.tolist()]) + 1
        widths = np.diff([domain.lo, *ends, domain.hi + 1])
        shares = np.add.reduceat(weights, [0, *(cuts + 1)]) / weights.sum()
        lacking = least - shares @ widths
        if lacking <= 0:
            break
        gains = shares[:-1] * widths[1:] + shares[1:] * widths[:-1]
        is_enough = gains >= lacking
        cuts = np.delete(cuts, np.argmin(np.where(is_enough, gains, np.inf)) if is_enough.any() else np.argmax(gains))
    return cuts


def within(table: RankTable, thresholds: Values) -> tuple[NDArray[np.int64], Values]:
    """Ranks behind which thresholds cut a column, and these thresholds; duplicates and cuts at an end are left out."""
    ranks = np.searchsorted(table.codes, thresholds, side="right") - 1
    cuts, first = np.unique(ranks, return_index=True)
    divides = (cuts >= 0) & (cuts < table.n_ranks - 1)
    return cuts[divides], thresholds[first[divides]]


def cell_tests(columns: Sequence[Ranking], thresholds: Sequence[Values]) -> SplitTests:
    """The split tests behind cell numbers, as the columns' owner: the number of a cell is how many of them fail.

    The last test of each column only asks whether there is a value. A missing cell fails all tests.
    """
    sources: list[tuple[str, int | None]] = []
    for column, column_thresholds in zip(columns, thresholds, strict=True):
        sources += [(column.source, column.category)] * (len(column_thresholds) + 1)
    cuts = np.concatenate([np.append(column_thresholds, np.inf) for column_thresholds in thresholds])
    return SplitTests(tuple(sources), cuts, np.zeros(len(sources), np.bool_), by_cells=True)


def cells_of(ranks: Ranks, n_ranks: int, cuts: NDArray[np.int64]) -> Values:
    """Numbers of the cells that ranks lie in; NaN for rank `n_ranks`, which is missing."""
    return np.where(ranks == n_ranks, np.nan, np.searchsorted(cuts, ranks))
