"""Private splits: the exact law of the choice between neighbouring tables, and gains against an obvious twin."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest

from opboost import rng
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping, RecordHolder, squared_gradients
from opboost.horizontal.splits.exponential_splits import ExponentialRule, gain_range, split_gains
from opboost.privacy.published import dpboost_gain_sensitivity
from opboost.privacy.selection import ExponentialMechanism

CLIPPING = Clipping(max_grad=1.0, max_hess=1.0)
COLUMNS = PublicGrid([(0, 1), (0, 1)], 4)


def histogram(rows: np.ndarray, labels: np.ndarray, columns: PublicGrid = COLUMNS) -> np.ndarray:
    holder = RecordHolder(
        columns.place(rows),
        labels,
        gradients=squared_gradients,
        clipping=CLIPPING,
        initial_score=0.0,
        admit=lambda grad, hess: np.ones(len(grad), np.bool_),
    )
    holder.start_tree(0)
    out = np.zeros((1, 2, columns.axes.n_bins), np.int64)
    holder.write_histograms(np.zeros(1, np.int32), out)
    return out


def law(histogram: np.ndarray, mechanism: ExponentialMechanism, lam: float, missing_left: bool) -> np.ndarray:
    gains = split_gains(histogram, np.array([missing_left]), 5, CLIPPING.grid, lam)
    return mechanism.log_probabilities(gains.reshape(1, -1))[0]


@cache
def neighbours() -> list[tuple[np.ndarray, list[np.ndarray]]]:
    """Tables where a large group of one sign meets a new record of the other, and small random ones: each without and
    with one of several new records."""
    generator = np.random.default_rng(3)
    tables = [(generator.random((n, 2)), generator.uniform(-1, 1, n)) for n in (0, 1, 2, 5) for _ in range(10)]
    for n in (2, 30, 300):
        rows = np.tile([0.9, 0.9], (n, 1))
        rows[: n // 2, 1] = 0.1
        tables.append((rows, np.ones(n)))
    found = []
    for rows, labels in tables:
        news = (([0.9, 0.9], -1.0), ([0.1, 0.9], -1.0), ([0.9, 0.1], 1.0), ([np.nan, 0.9], -1.0))
        after = [histogram(np.vstack([rows, [new]]), np.append(labels, label)) for new, label in news]
        found.append((histogram(rows, labels), after))
    return found


def worst_loss(mechanism: ExponentialMechanism, lam: float) -> float:
    """Over neighbouring tables."""
    worst = 0.0
    for without, further in neighbours():
        for missing_left in (False, True):
            before = law(without, mechanism, lam, missing_left)
            for table in further:
                worst = max(worst, float(np.abs(before - law(table, mechanism, lam, missing_left)).max()))
    return worst


@pytest.mark.parametrize("lam", [0.0, 0.1, 5.0])
def test_one_record_changes_the_probability_of_no_split_by_more_than_epsilon(lam):
    mechanism = ExponentialMechanism(epsilon=1.0, utility_range=gain_range(1.0))
    assert 0.4 < worst_loss(mechanism, lam) <= 1.0


def test_with_the_sensitivity_of_the_slides_one_does():
    mechanism = ExponentialMechanism(epsilon=1.0, utility_range=2 * dpboost_gain_sensitivity(0.1, 1.0))
    assert worst_loss(mechanism, 0.1) > 1.1


def test_gains_are_those_of_the_real_split_of_the_rows():
    generator = np.random.default_rng(0)
    rows, labels = generator.random((40, 2)), np.round(generator.uniform(-1, 1, 40) * 64) / 64
    rows[generator.random((40, 2)) < 0.2] = np.nan
    for missing_left in (False, True):
        gains = split_gains(histogram(rows, labels), np.array([missing_left]), 5, CLIPPING.grid, 0.5)[0]
        for column in range(2):
            for cut in range(3):
                x = rows[:, column]
                left = np.where(np.isnan(x), missing_left, x <= COLUMNS.cuts[column][cut])
                parts = [labels[left], labels[~left]]
                expected = sum(part.sum() ** 2 / (len(part) + 0.5) for part in parts)
                assert gains[column, cut] == pytest.approx(expected)


def test_every_cut_of_the_grid_is_a_candidate_whatever_the_data():
    empty = split_gains(histogram(np.empty((0, 2)), np.empty(0)), np.array([True]), 5, CLIPPING.grid, 0.0)
    assert empty.shape == (1, 2, 3)
    assert (empty == 0).all()
    mechanism = ExponentialMechanism(epsilon=2.0, utility_range=gain_range(1.0))
    full = law(histogram(np.full((50, 2), 0.1), np.ones(50)), mechanism, 0.0, True)
    assert np.isfinite(full).all()


def test_without_noise_the_best_cut_is_taken():
    rows = np.random.default_rng(1).random((200, 2))
    labels = np.where(rows[:, 1] > 0.5, 1.0, -1.0)
    holder = RecordHolder(
        COLUMNS.place(rows),
        labels,
        gradients=squared_gradients,
        clipping=CLIPPING,
        initial_score=0.0,
        admit=lambda grad, hess: np.ones(len(grad), np.bool_),
    )
    holder.start_tree(0)
    mechanism = ExponentialMechanism(epsilon=math.inf, utility_range=gain_range(1.0))
    rule = ExponentialRule(
        axes=COLUMNS.axes, grid=CLIPPING.grid, reg_lambda=1.0, mechanism=mechanism, holder=holder, rng=rng.seeded(0)
    )
    chosen = rule.choose(np.zeros(1, np.int32), holder)
    assert (int(chosen.columns[0]), int(chosen.cuts[0])) == (1, 1)
