"""Tests of the screen of many columns: which ones are left, and how many trees it takes."""

from __future__ import annotations

import time

import numpy as np
import pytest

from opboost.horizontal.splits.column_screen import ColumnScreen

N_LEAVES = 4


def screened(
    n_columns: int, useful: dict[int, float], *, mean: float = 0.0, energy: float = 0.0, seed: int = 0
) -> tuple[ColumnScreen, list[int]]:
    """A screen of columns of which some have sums that differ by leaf, under noise of deviation 1; and its trees."""
    rng, asked = np.random.default_rng(seed), []
    screen = ColumnScreen(n_columns, 2 * n_columns, std=1.0, hess_std=0.5, energy=energy)
    chance = rng.standard_normal((n_columns, N_LEAVES)) * np.sqrt(energy / N_LEAVES)
    for column in screen.columns():
        hess = 25 + 0.5 * rng.standard_normal(N_LEAVES)
        grad = mean * 25 + chance[column] + useful.get(column, 0.0) * np.array([1, -1, 1, -1])
        screen.learn(column, (grad + rng.standard_normal(N_LEAVES))[None], hess[None])
        asked.append(column)
    return screen, asked


@pytest.mark.parametrize("n_columns", [41, 100, 333])
def test_columns_on_which_labels_depend_are_left_and_looked_at_again(n_columns: int) -> None:
    useful = {5: 4.0, 17: 4.0, 40: 8.0}
    screen, asked = screened(n_columns, useful)
    assert len(asked) == 2 * n_columns
    assert asked[:n_columns] == list(range(n_columns))
    assert screen.kept[0] == 40
    assert set(useful) <= set(screen.kept.tolist())
    assert len(screen.kept) <= 6
    assert min(asked.count(column) for column in useful) >= 4
    assert np.argmax(screen.merits()) == 40
    # Twin: where no column tells anything, those are left that came out best, and two at least.
    assert len(screened(n_columns, {})[0].kept) <= 5


def test_a_round_costs_what_its_columns_do() -> None:
    """Of so many columns the last 1,600 rounds have two each; a look back at all trees takes minutes."""
    begin = time.process_time()
    screen = ColumnScreen(20_000, 30_000, std=1.0, hess_std=0.5, energy=0.0)
    noise = np.random.default_rng(0).standard_normal((30_000, 1, N_LEAVES))
    for column, sums in zip(screen.columns(), noise, strict=True):
        screen.learn(column, sums, np.full((1, N_LEAVES), 25.0))
    assert len(screen.kept) < 10
    assert time.process_time() - begin < 30


def test_all_columns_that_stand_out_are_left() -> None:
    assert set(range(60)) <= set(screened(100, dict.fromkeys(range(60), 6.0))[0].kept.tolist())


def test_the_mean_of_all_gradients_is_no_merit() -> None:
    """Scores that are too low on the whole move every leaf of every column alike."""
    screen, _ = screened(100, {5: 8.0}, mean=0.4)
    assert screen.kept[0] == 5
    merits = np.delete(screen.merits(), 5)
    assert abs(merits.mean()) < 1.0
    # Twin: squares that are not about the mean.
    assert 100 * merits.std() < N_LEAVES * (0.4 * 25) ** 2


def test_chance_among_many_records_is_no_merit() -> None:
    """Sums of random signs have squares, whatever the noise; the twin passes them for merit."""
    assert len(screened(100, {}, energy=1000.0)[0].kept) <= 10
    chance = np.random.default_rng(0).standard_normal((100, N_LEAVES)) * np.sqrt(1000 / N_LEAVES)
    twin = ColumnScreen(100, 200, std=1.0, hess_std=0.5, energy=0.0)
    for column in twin.columns():
        twin.learn(column, chance[column][None], np.full((1, N_LEAVES), 25.0))
    assert len(twin.kept) > 80


def test_without_noise_and_without_chance_every_difference_is_merit() -> None:
    screen = ColumnScreen(50, 60, std=0.0, hess_std=0.0, energy=0.0)
    for column in screen.columns():
        screen.learn(column, np.array([[1.0, -1.0]]) * (column == 9), np.ones((1, 2)))
    assert 9 in screen.kept
    assert np.flatnonzero(screen.merits()).tolist() == [9]
