"""An owner's answers: the questions of each round and no others, and what a record moves in a screen."""

from __future__ import annotations

import dataclasses
import itertools
from contextlib import suppress

import numpy as np
import pytest

from opboost.errors import AccountError
from opboost.horizontal.recommended.calibration import recommended_among_owners
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.recommended.round_answers import FirstAnswers
from opboost.horizontal.recommended.round_rows import TableRows
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import seeded
from opboost.trees.complete import tree_of
from opboost.trees.holder import RowHolder, SummedHolders
from tests.support.recommended_owners import DELTA, GRID, ROOT, THIRDS, begun, recipe

pytestmark = pytest.mark.usefixtures("one_thread")

N_COLUMNS = 41


def test_questions_that_a_round_does_not_have_are_refused() -> None:
    out = np.zeros((1, 2, GRID.axes.n_bins), np.int64)
    of = recipe(2)
    with pytest.raises(AccountError, match="does not have; nothing was released"):
        begun(of).write_histograms(ROOT, out)
    with pytest.raises(AccountError, match="does not have"):
        begun(of, 2).totals(ROOT)
    for n_trees in (1, 2):
        twice = begun(of, n_trees)
        ask = twice.totals if n_trees == 1 else lambda nodes, twice=twice: twice.write_histograms(nodes, out)
        ask(ROOT)
        with pytest.raises(AccountError, match="does not have"):
            ask(ROOT)
    with pytest.raises(AccountError, match="single leaf"):
        begun(of).divide(None)
    with pytest.raises(AccountError, match="histograms are not in the account"):
        begun(of, of.rounds.n_trees + 1).write_histograms(ROOT, out)
    assert not out.any() or np.count_nonzero(out) <= 32
    with pytest.raises(AccountError, match="before this one"):
        begun(of, of.n_trees + 1)


def screened(n_classes: int) -> RecommendedAmongOwners:
    """A recipe for columns that are so many that they are screened; the last one is of categories."""
    grid = PublicGrid([(0.0, 1.0)] * 40 + [(0.0, 4.0)], 16, categorical=(40,))
    names = tuple(f"x{number}" for number in range(N_COLUMNS))
    task = dataclasses.replace(recipe(n_classes).task, grid=grid, names=names, epsilon=20.0)
    return recommended_among_owners(
        task, n_classes=n_classes, delta=DELTA, n_records=900, n_honest=2, sizes=GivenSizes(4, 2)
    )


def at_screen(
    of: RecommendedAmongOwners, X: np.ndarray, y: np.ndarray, told: list[float], exact: RowHolder | None = None
) -> FirstAnswers:
    """Answers without noise, in the round of the screen, after a coordinator told what it settled."""
    rounds, values = of.rounds, iter(told)
    exact = exact or of.records(X, y, coins=None)
    holder = FirstAnswers(exact, rounds=rounds, noises=[None] * len(rounds.kinds), rng=seeded(0))
    for kind in rounds.kinds:
        for output in range(rounds.n_outputs):
            holder.start_tree(output)
        if kind != "columns":
            for _ in range(rounds.n_outputs):
                holder.finish_tree(tree_of([], np.array([next(values, 0.0)]), rounds.grid.axes))
    return holder


def answer(of: RecommendedAmongOwners, X: np.ndarray, y: np.ndarray, told: list[float]) -> np.ndarray:
    axes = of.rounds.grid.axes
    out = np.ones((1, 2, axes.n_bins), np.int64)
    at_screen(of, X, y, told).write_histograms(ROOT, out)
    assert not np.delete(out.reshape(-1), of.rounds.released("columns")).any()
    found: np.ndarray = out[0, 0, axes.offsets[:-1]]
    return found


def tells(n_classes: int) -> list[list[float]]:
    """What coordinators may tell before the screen: scores, or range, unit, score, cells and balance."""
    if n_classes:
        n_outputs = n_classes if n_classes > 2 else 1
        return [[score] * n_outputs for score in (0.0, -16.0)] + [[16.0] + [-16.0] * (n_outputs - 1)]
    ranges = [(-1.0, 1.0, 1.0), (0.125, 0.25, 1 / 32)]
    return [[*each, 0.0, 0.0, 0.0, 0.0, balance] for each in ranges for balance in (-1.0, 0.0, 1.0)]


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_no_record_moves_a_number_of_the_screen_by_more_than_the_account_has(n_classes: int) -> None:
    """Every record of a table, added to the others, whatever a coordinator tells; some move it by nearly as much."""
    of, draw = screened(n_classes), np.random.default_rng(0)
    bound, most = of.rounds._screen.bound * of.rounds.steps("columns"), 0.0
    X = draw.random((6, N_COLUMNS))
    X[:, 40] = draw.integers(0, 5, 6)
    X[0, 3], X[1, 40] = np.nan, np.nan
    y = np.floor(n_classes * draw.random(6)) if n_classes else 10 * draw.random(6) - 5
    for told, row in itertools.product(tells(n_classes), range(6)):
        others = np.arange(6) != row
        moved = answer(of, X, y, told) - answer(of, X[others], y[others], told)
        most = max(most, float(np.abs(moved).max()))
        alone = answer(of, X[[row]], y[[row]], told)
        most = max(most, float(alone.max()))
    assert 0.9 * bound < most <= bound


def answer_in_moved_cells(
    of: RecommendedAmongOwners, X: np.ndarray, y: np.ndarray, *, is_verified: bool
) -> tuple[np.ndarray, int]:
    """The screen's numbers where a coordinator has the cells moved before every output, and how often it may."""
    axes, n_moved = of.rounds.grid.axes, 0
    exact = TableRows(X, of.records(X, y, coins=None))
    holder = dataclasses.replace(of, noise=dataclasses.replace(of.noise, n_honest=0)).answering(exact, rng=seeded(0))
    for kind in of.rounds.kinds:
        for output in range(of.rounds.n_outputs):
            ends = (0.05, 0.45) if output % 2 else (0.55, 0.95)
            moved = dataclasses.replace(of.rounds.grid, given=(np.linspace(*ends, 15),) * N_COLUMNS)
            with suppress(AccountError):
                (holder if is_verified else exact).place(moved)
                n_moved += kind == "columns"
            holder.start_tree(output)
        if kind == "columns":
            break
        for output in range(of.rounds.n_outputs):
            holder.finish_tree(tree_of([], np.array([-16.0 if output else 16.0]), axes))
    out = np.zeros((1, 2, axes.n_bins), np.int64)
    holder.write_histograms(ROOT, out)
    return out[0, 0, axes.offsets[:-1]], n_moved


@pytest.mark.parametrize("is_verified", [True, False])
def test_all_outputs_of_a_screen_are_added_up_in_the_same_cells(is_verified: bool) -> None:
    """In cells of its own for every output, a record's gradients add up: the broken twin, by the root of 2 too much."""
    of = screened(4)
    bound = of.rounds._screen.bound * of.rounds.steps("columns")
    record = np.append(np.full(40, 0.5), 1.0)[None]
    numbers, n_moved = answer_in_moved_cells(of, record, np.ones(1), is_verified=is_verified)
    assert numbers[:40].max() == pytest.approx(bound * (1 if is_verified else 2**0.5), rel=1e-3)
    assert (numbers <= bound).all() == is_verified
    assert n_moved == (1 if is_verified else 4)


@pytest.mark.parametrize("n_classes", [0, 4])
def test_partitions_of_an_owner_have_the_numbers_of_one_table(n_classes: int) -> None:
    """Sums of what each partition has by itself would be larger: the broken twin."""
    of, draw = screened(n_classes), np.random.default_rng(0)
    X = draw.random((90, N_COLUMNS))
    X[:, 40] = draw.integers(0, 5, 90)
    y = np.floor(n_classes * X[:, 7]) if n_classes else X[:, 7]
    told = [0.0] * 4 if n_classes else [-1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.3]
    parts = [of.records(X[part], y[part], coins=None) for part in THIRDS]
    out = np.zeros((1, 2, of.rounds.grid.axes.n_bins), np.int64)
    at_screen(of, X, y, told, exact=SummedHolders(parts)).write_histograms(ROOT, out)
    whole = answer(of, X, y, told)
    assert out[0, 0, of.rounds.grid.axes.offsets[:-1]].tolist() == whole.tolist()
    assert sum(answer(of, X[part], y[part], told).sum() for part in THIRDS) > 1.1 * whole.sum()


def test_a_screen_is_asked_once_and_a_balance_not_at_all() -> None:
    of = screened(0)
    X, y = np.ones((3, N_COLUMNS)), np.zeros(3)
    out = np.zeros((1, 2, of.rounds.grid.axes.n_bins), np.int64)
    told = tells(0)[0]
    with pytest.raises(AccountError, match="does not have"):
        at_screen(of, X, y, told).totals(ROOT)
    holder = at_screen(of, X, y, told)
    holder.write_histograms(ROOT, out)
    with pytest.raises(AccountError, match="does not have"):
        holder.write_histograms(ROOT, out)
    with pytest.raises(AccountError, match=r"told for a screen is not in \[-1, 1\]"):
        at_screen(of, X, y, [*told[:-1], 1.5])
    exact = of.records(X, y, coins=None)
    asked = FirstAnswers(exact, rounds=of.rounds, noises=[None] * len(of.rounds.kinds), rng=seeded(0))
    values = iter(told)
    for kind in of.rounds.kinds:
        asked.start_tree(0)
        if kind == "balance":
            for ask in (lambda: asked.write_histograms(ROOT, out), lambda: asked.totals(ROOT)):
                with pytest.raises(AccountError, match="does not have"):
                    ask()
            return
        asked.finish_tree(tree_of([], np.array([next(values)]), of.rounds.grid.axes))
