"""The screen of many columns: what a record moves, and which columns are left."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import HistogramAxes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits.column_screen import cell_sums, columns_that_stand_out, dependences
from opboost.trees.binning import BinnedTable

GRID = PublicGrid([(0.0, 1.0), (0.0, 4.0), (0.0, 1.0), (0.0, 99.0)], 20, categorical=(1, 3))


def table(n_rows: int, seed: int = 0) -> BinnedTable:
    draw = np.random.default_rng(seed)
    rows = draw.random((n_rows, 4))
    rows[:, 1] = draw.integers(0, 5, n_rows)
    rows[:, 3] = draw.integers(0, 100, n_rows)
    rows[::7, 0] = np.nan
    return GRID.place(rows)


def brute_force(binned: BinnedTable, codes: np.ndarray) -> list[int]:
    """Each column's groups by a loop over records: 8 of 20 cells, 5 of 5 categories, 32 of 100, and what is missing."""
    found, n_groups = [], (8, 5, 8, 32)
    for column, bins in enumerate(binned.bins):
        sums: dict[int, np.ndarray] = {}
        for row, bin_ in enumerate(bins.tolist()):
            n_values, n = binned.axes.n_value_bins(column), n_groups[column]
            group = int((np.arange(n) * n_values // n <= bin_).sum()) if bin_ < n_values else -1
            sums[group] = sums.get(group, 0) + codes[:, row]
        found.append(int(np.floor(sum(np.sqrt((np.asarray(each, float) ** 2).sum()) for each in sums.values()))))
    return found


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_each_columns_number_adds_up_how_far_its_groups_are_from_nothing(n_outputs: int) -> None:
    binned, codes = table(200), np.random.default_rng(1).integers(-500, 500, (n_outputs, 200))
    found = dependences(np.stack([cell_sums(binned, each) for each in codes]), binned.axes)
    assert found.tolist() == brute_force(binned, codes)


def test_sums_of_cells_are_exact() -> None:
    binned, codes = table(50), np.random.default_rng(1).integers(-(2**40), 2**40, 50)
    expected = np.zeros(binned.axes.n_bins, np.int64)
    for column, bins in enumerate(binned.bins):
        np.add.at(expected, binned.axes.offsets[column] + bins.astype(np.int64), codes)
    assert cell_sums(binned, codes).tolist() == expected.tolist()


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_a_record_moves_every_number_by_no_more_than_the_norm_of_its_codes(n_outputs: int) -> None:
    """For every record of many tables; the twin, squares of the sums, moves by more."""
    largest, largest_square = 0.0, 0.0
    for seed in range(40):
        n_rows = 2 + 3 * seed
        binned, codes = table(n_rows, seed), np.random.default_rng(seed).integers(-40, 41, (n_outputs, n_rows))
        whole = np.stack([cell_sums(binned, each) for each in codes])
        for row in range(n_rows):
            kept = codes.copy()
            kept[:, row] = 0
            rest = np.stack([cell_sums(binned, each) for each in kept])
            norm = np.sqrt((codes[:, row] ** 2).sum())
            moved = np.abs(dependences(whole, binned.axes) - dependences(rest, binned.axes)).max()
            largest = max(largest, moved - norm)
            largest_square = max(largest_square, np.abs((whole**2).sum() - (rest**2).sum()) ** 0.5 - norm)
    assert largest <= (0 if n_outputs == 1 else 2)
    assert largest_square > 2


def noisy(n_columns: int, useful: dict[int, float], *, offset: float = 0.0) -> tuple[np.ndarray, HistogramAxes]:
    """Numbers under noise of deviation 1, of columns of which some stand out."""
    numbers = np.random.default_rng(0).standard_normal(n_columns) + offset
    for column, by in useful.items():
        numbers[column] += by
    return numbers, PublicGrid([(0, 1)] * n_columns, 16).axes


@pytest.mark.parametrize("n_columns", [41, 100, 333])
@pytest.mark.parametrize("offset", [0.0, 50.0])
def test_columns_that_stand_out_are_left_whatever_all_columns_have(n_columns: int, offset: float) -> None:
    useful = {5: 7.0, 17: 7.0, 40: 12.0}
    kept, merits = columns_that_stand_out(*noisy(n_columns, useful, offset=offset), std=1.0)
    assert set(useful) <= set(kept.tolist())
    assert len(kept) <= 6
    assert np.argmax(merits) == 40
    # Twin: where no column says anything, those are left that came out best, and two at least.
    assert 2 <= len(columns_that_stand_out(*noisy(n_columns, {}), std=1.0)[0]) <= 4


def test_columns_of_many_categories_hide_no_number_that_says_something() -> None:
    """Chance gives to a column by the root of its groups; the twin expects of numbers what categories have of it."""
    axes = PublicGrid([(0.0, 1.0)] * 5 + [(0.0, 999.0)] * 36, 16, categorical=range(5, 41)).axes
    numbers = np.random.default_rng(0).standard_normal(41) + 10 * np.repeat([9, 33], [5, 36]) ** 0.5
    numbers[3] += 7.0
    kept, _ = columns_that_stand_out(numbers, axes, std=1.0)
    assert 3 in kept
    assert len(kept) <= 4
    assert numbers[3] < np.quantile(numbers, 0.25)


def test_of_the_columns_that_are_left_few_say_nothing() -> None:
    """Among 100 columns, in 500 draws of the noise; the twin leaves all that are above what others have."""
    draw, n_false, n_kept, n_twin = np.random.default_rng(0), 0, 0, 0
    axes = PublicGrid([(0, 1)] * 100, 16).axes
    for _ in range(500):
        numbers = draw.standard_normal(100)
        numbers[:20] += 5.0
        kept, merits = columns_that_stand_out(numbers, axes, std=1.0)
        n_false, n_kept, n_twin = (
            n_false + int((kept >= 20).sum()),
            n_kept + len(kept),
            n_twin + int((merits > 0).sum()),
        )
    assert n_kept > 0.9 * 500 * 20
    assert n_false < 0.03 * n_kept
    assert n_twin > 2 * n_kept


def test_all_columns_that_stand_out_are_left() -> None:
    assert set(range(60)) <= set(columns_that_stand_out(*noisy(100, dict.fromkeys(range(60), 9.0)), std=1.0)[0])


def test_a_single_column_is_left() -> None:
    assert columns_that_stand_out(*noisy(1, {}), std=1.0)[0].tolist() == [0]
