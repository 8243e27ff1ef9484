"""Cells of a column: their cuts, what a cell leaves of the codes, and cuts that were kept."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.cell_grid import cell_tests, grid_cuts, within
from opboost.privacy.domain import IntegerDomain
from opboost.ranking import RankTable
from opboost.trees.binning import choose_cuts
from tests.support.codes_column import CodesColumn


def codes_left(codes: np.ndarray, table: RankTable, cuts: np.ndarray) -> float:
    """By counting: how many codes are answered alike, averaged over records."""
    cell = np.searchsorted([table.threshold(rank) for rank in cuts.tolist()], np.arange(1, 1001))
    return float(np.bincount(cell)[cell[codes - 1]].mean())


def test_a_grid_of_no_or_too_many_cells_is_refused() -> None:
    for n_cells in (1, 256):
        with pytest.raises(ValueError, match=r"2 to 255 cells per column; got \d+\. Nothing was sent"):
            grid_cuts(
                np.ones(10, np.int64), RankTable(np.arange(9)), IntegerDomain(0, 8), n_cells=n_cells, release=None
            )


@pytest.mark.parametrize("n_zeros", [200, 500, 50_000])
def test_a_records_cell_has_as_many_codes_on_average_as_an_even_cell(n_zeros: int) -> None:
    """Whatever is asked over all runs, so many codes are left; the twin are cuts of equal counts, value by value."""
    draw, domain = np.random.default_rng(6), IntegerDomain(1, 1000)
    codes = np.concatenate([np.ones(n_zeros, np.int64), np.clip(draw.geometric(0.01, 2000), 1, 1000)])
    table = RankTable(np.unique(codes))
    counts = np.append(np.unique(codes, return_counts=True)[1], 0)
    cuts = grid_cuts(counts, table, domain, n_cells=16, release=None)
    assert len(cuts) > 3
    assert codes_left(codes, table, cuts) >= 1000 / 16
    assert codes_left(codes, table, choose_cuts(counts[:-1], max_bin=16)) < 1000 / 16


def test_kept_cuts_that_no_longer_divide_a_column_are_left_out() -> None:
    table = RankTable(np.array([10, 20, 30]))
    cuts, thresholds = within(table, np.array([5.0, 12.0, 17.0, 25.0, 30.0, 99.0]))
    assert (cuts.tolist(), thresholds.tolist()) == ([0, 1], [12.0, 25.0])
    assert cell_tests([CodesColumn(np.array([10, 20, 30]))], [thresholds]).n_bits == 2
