"""Columns drawn by what released sums told: everyone once, then in proportion, and evenly if nothing is known."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.horizontal.splits.learned_column_sampling import LearntColumns


def draws(n_columns: int, n_drawn: int, seed: int = 0) -> LearntColumns:
    generator = np.random.default_rng(seed)
    return LearntColumns(n_columns, n_drawn, lambda count: generator.random(count))


@pytest.mark.parametrize("n_drawn", [1, 2, 3])
def test_every_column_has_a_first_tree_before_one_has_a_second(n_drawn):
    columns = draws(6, n_drawn)
    seen: list[int] = []
    for _ in range(6 // n_drawn):
        seen += columns().tolist()
        columns.learn(np.array([100.0, -100.0]), 1.0)
    assert sorted(seen) == list(range(6))


def counted(merits: list[float], std: float) -> np.ndarray:
    columns = draws(len(merits), 1)
    for _ in merits:
        (column,) = columns()
        columns.learn(np.array([np.sqrt(merits[column] + 2 * std**2), 0.0]), std)
    counts = np.zeros(len(merits))
    for _ in range(6000):
        (column,) = columns()
        counts[column] += 1
        columns.learn(np.array([np.sqrt(merits[column] + 2 * std**2), 0.0]), std)
    return counts / counts.sum()


def test_columns_are_drawn_in_proportion_to_what_stands_out_of_the_noise():
    merits, std = [0.0, 10.0, 30.0], 1.0
    expected = (np.array(merits) + 2) / (sum(merits) + 6)
    np.testing.assert_allclose(counted(merits, std), expected, atol=0.03)
    # Twin: without what the noise alone adds to squares, a useless column would be drawn more often than this.
    assert abs(counted([m + 20 for m in merits], std)[0] - expected[0]) > 0.1


def test_scales_do_not_matter_and_no_noise_is_the_limit_of_little():
    np.testing.assert_array_equal(counted([0.0, 10.0, 30.0], 1.0), counted([0.0, 1000.0, 3000.0], 10.0))
    little, none = counted([1.0, 3.0], 1e-6), counted([1.0, 3.0], 0.0)
    np.testing.assert_allclose(little, none, atol=1e-3)
    np.testing.assert_allclose(counted([0.0, 0.0, 0.0], 0.0), 1 / 3, atol=0.03)


def test_of_the_columns_that_a_screen_leaves_each_is_drawn_by_its_merit():
    columns = draws(30, 1)
    columns.restrict(np.array([3, 7]), np.where(np.arange(30) == 7, 6.0, 0.0), 1.0)
    drawn = np.array([int(columns()[0]) for _ in range(2000)])
    assert set(drawn) == {3, 7}
    np.testing.assert_allclose((drawn == 7).mean(), (6 + 2) / (6 + 2 + 2), atol=0.03)
