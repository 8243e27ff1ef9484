"""Cells that follow noisy counts: what one record moves, how much noise there is, and what it is good for."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from opboost import SGBDTRegressor
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.sgbdt import training as sgbdt
from opboost.horizontal.splits import noisy_cells
from opboost.horizontal.splits.noisy_cells import cell_shares, counts_sensitivity, placed_cells
from opboost.rng import seeded

GRID = PublicGrid([(0.0, 1.0), (-2.0, 2.0)], 8)


def counts(rows: np.ndarray) -> np.ndarray:
    table = GRID.place(rows)
    return np.concatenate([np.bincount(cells, minlength=9)[:8] for cells in table.bins])


def test_one_record_moves_the_counts_by_their_sensitivity_and_not_by_more():
    """All kinds of records, out of bounds and missing ones too; by less than the root of two columns would be wrong."""
    values = [-9.0, 0.0, 0.3, 1.0, 9.0, math.nan]
    before = np.array([[0.3, -1.0], [0.9, 0.1]])
    moved = [
        math.dist(counts(np.vstack([before, record])), counts(before)) for record in itertools.product(values, values)
    ]
    of_all_rounds = math.sqrt(noisy_cells.N_ROUNDS) * max(moved)
    assert of_all_rounds == pytest.approx(counts_sensitivity(2))
    assert not of_all_rounds <= counts_sensitivity(1)


def test_the_noise_is_that_of_the_account(monkeypatch):
    """What is really drawn, in records, against the deviation that the releases were made for."""
    seen: list[np.ndarray] = []
    shares = noisy_cells.cell_shares
    monkeypatch.setattr(noisy_cells, "cell_shares", lambda noisy, *rest: (seen.append(noisy), shares(noisy, *rest))[1])
    rows = np.random.default_rng(0).random((300, 40))
    model = SGBDTRegressor(
        epsilon=1.0, delta=1e-6, bounds=(0, 1), label_bounds=(0, 1), n_estimators=2, max_cells=64, random_state=0
    ).fit(rows, rows[:, 0])
    n_cells = noisy_cells.N_COUNTED
    exact = np.stack([np.histogram(column, n_cells, (0, 1))[0] for column in rows.T])
    training: sgbdt.SGBDT = model._trainings[0]
    std = training._noise.cells_std * math.sqrt(40 * noisy_cells.N_ROUNDS)
    assert len(seen) == 40 * noisy_cells.N_ROUNDS
    # 640 draws of the first round: a deviation is known to 2.8 %.
    assert np.std(np.stack(seen[:40]) - exact) == pytest.approx(std, rel=0.14)
    assert np.std(np.stack(seen[:40]) - exact) != pytest.approx(std / math.sqrt(3), rel=0.14)


def test_without_noise_cells_are_about_equal_and_with_nothing_but_noise_even():
    rows = np.random.default_rng(1).beta(2, 20, (20_000, 2))
    exact = placed_cells(GRID, rows, std=0.0, rng=seeded(0))
    filled = [np.bincount(cells, minlength=8)[:8] / len(rows) for cells in exact.place(rows).bins]
    assert filled[0].max() < 0.25
    assert np.bincount(GRID.place(rows).bins[0])[:8].max() / len(rows) > 0.6
    noisy = placed_cells(GRID, rows, std=1e7, rng=seeded(0))
    for cuts, even in zip(noisy.cuts, GRID.cuts, strict=True):
        assert (np.diff(cuts) > 0).all()
        assert np.isfinite(cuts).all()
        assert cuts[0] >= even[0] - (even[1] - even[0])
        assert cuts[-1] <= even[-1] + (even[1] - even[0])


@pytest.mark.parametrize("std", [0.0, 1.0, 100.0, 1e6])
def test_shares_are_not_negative_and_sum_to_one(std):
    noisy = np.random.default_rng(2).normal(100.0, 1 + std, 16)
    shares = cell_shares(noisy, 1600.0, std)
    assert (shares >= 0).all()
    assert shares.sum() == pytest.approx(1.0)
    if std == 1e6:
        np.testing.assert_allclose(shares, 1 / 16, atol=0.01)


@pytest.mark.parametrize("largest", [1e3, 2.0**53, 1e300])
def test_no_count_that_a_worker_may_claim_ends_the_run(largest):
    shares = cell_shares(np.array([largest, 0.0, -largest, 1.0]), 1.0, 1.0)
    assert np.isfinite(shares).all()
    assert (shares >= 0).all()


def test_no_rows_leave_ascending_cuts():
    empty = placed_cells(GRID, np.full((3, 2), math.nan), std=0.0, rng=seeded(0))
    assert all((np.diff(cuts) > 0).all() for cuts in empty.cuts)
