"""The recommended recipe among owners: one model however rows are divided, what a record moves, what is refused."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.first_rounds import FirstRounds
from opboost.horizontal.recommended.owners import RecommendedAmongOwners, recommended_among_owners
from opboost.horizontal.recommended.round_rows import RoundRows
from opboost.horizontal.rows.client_rows import SummedClients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.privacy.accounting import by_skellam
from opboost.privacy.additive import Skellam
from opboost.privacy.releases import SkellamRounds
from opboost.rng import seeded
from opboost.trees.complete import tree_of
from tests.support.digests import digest

pytestmark = pytest.mark.usefixtures("one_thread")

GRID = PublicGrid([(0.0, 1.0), (0.0, 100.0), (0.0, 2.0)], 16, categorical=(2,))
ROOT = np.zeros(1, np.int32)
DELTA = 1e-6


def recipe(
    n_classes: int, n_honest: int | None = 2, bounds: tuple[float, float] = (-6.0, 4.0), **changes: Any
) -> RecommendedAmongOwners:
    bounds = (0.0, 1.0) if n_classes else bounds
    task = PublicTask(("a", "b", "c"), GRID, sum(bounds) / 2, (bounds[1] - bounds[0]) / 2, 2.0, True, n_classes > 0)
    settings = {"delta": DELTA, "n_records": 900, "sizes": (4, 2)}
    return recommended_among_owners(task, n_classes=n_classes, n_honest=n_honest, **{**settings, **changes})


def table(n_classes: int, n_rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = draw.random((n_rows, 3)) * [1.0, 10.0, 1.0]
    X[:, 2] = np.floor(3 * X[:, 2])
    X[::50, 0] = math.nan
    y = np.nan_to_num(X[:, 0]) + 0.3 * draw.standard_normal(n_rows)
    return X, np.clip(np.floor(n_classes * y), 0, n_classes - 1) if n_classes else y


def trained(of: RecommendedAmongOwners, parts: list[slice]) -> Any:
    X, y = table(of.rounds.n_classes)
    holders = [of.rows(X[part], y[part], rng=seeded(100 + i)) for i, part in enumerate(parts)]
    return of.train(SummedClients(holders), shape_bits=seeded(7), rng=seeded(8))


THIRDS = [slice(i, None, 3) for i in range(3)]


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_three_owners_grow_the_very_model_of_one(n_classes: int) -> None:
    of = recipe(n_classes, None)
    one, three = (trained(of, parts) for parts in ([slice(None)], THIRDS))
    assert [tree.values.tolist() for tree in one.trees] == [tree.values.tolist() for tree in three.trees]
    assert len(one.trees) == 4 * max(n_classes if n_classes > 2 else 1, 1)
    assert one.base_scores.tolist() == three.base_scores.tolist()
    noisy = trained(recipe(n_classes), THIRDS)
    assert [tree.values.tolist() for tree in noisy.trees] != [tree.values.tolist() for tree in one.trees]


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_first_rounds_learn_scores_range_and_cells(n_classes: int) -> None:
    """Without noise: shares or the mean as they are, and labels' range in the middle of bounds that are too wide."""
    of = recipe(n_classes, None)
    X, y = table(n_classes)
    task = dataclasses.replace(of.task, epsilon=math.inf)
    model = trained(
        recommended_among_owners(task, n_classes=n_classes, delta=DELTA, n_records=900, n_honest=None, sizes=(0, 2)),
        THIRDS,
    )
    predicted = model.predict(X)
    if n_classes > 2:
        assert predicted[0] == pytest.approx(np.bincount(y.astype(int)) / len(y))
    else:
        assert predicted[0] == pytest.approx(y.mean(), abs=2e-3)


def one_record_rows(of: RecommendedAmongOwners, record: tuple[float, ...], label: float) -> RoundRows:
    return of.records(np.array([record]), np.array([label]), coins=None)


def spent(of: RecommendedAmongOwners, rows: RoundRows, told: list[float]) -> float:
    """What a record moves in all questions, squared, in variances of the noise: mu^2 of the training."""
    total, rounds, axes = 0.0, of.rounds, GRID.axes
    values = iter(told)
    for kind in rounds.kinds:
        for output in range(rounds.n_outputs):
            rows.start_tree(output)
            if kind == "score":
                answer = rows.totals(ROOT)
            else:
                answer = np.zeros((1, 2, axes.n_bins), np.int64)
                if kind != "upper" and output == 0:
                    rows.add_histograms(ROOT, answer)
            released = rounds.released(kind)
            moved = answer.reshape(-1).astype(float)
            assert not np.delete(moved, released).any()
            if len(released):
                total += float((moved**2).sum()) / rounds.skellam(kind).variance
        for _ in range(rounds.n_outputs):
            rows.finish_tree(tree_of([], np.array([next(values, 0.0)]), axes))
    law = of._tree_shares(of.plan.sums_std(of.tree_task.sensitivity, of.sizes[0]))
    variances = np.array([each.share(1).variance * of.noise.n_honest for each in law])
    for _ in range(of.sizes[0]):
        for output in range(rounds.n_outputs):
            rows.start_tree(output)
            total += float((rows.totals(ROOT).astype(float) ** 2 / variances).sum())
        for _ in range(rounds.n_outputs):
            rows.finish_tree(tree_of([], np.zeros(1), axes))
    return total


def worst(of: RecommendedAmongOwners, change: Callable[[RoundRows], RoundRows] = lambda rows: rows) -> float:
    """The most that any record spends, over what coordinators may tell."""
    n_classes = of.rounds.n_classes
    records = itertools.product([(0.3, -5.0, 1.0), (math.nan, 50.0, math.nan), (9.0, 100.0, 0.0)], [0.0, 1.0])
    tells: list[list[float]]
    if n_classes:
        tells = [[score] * (n_classes if n_classes > 2 else 1) for score in (0.0, 16.0)]
        tells += [[-16.0, 16.0, *[-16.0] * (n_classes - 2)]] if n_classes > 2 else [[-16.0]]
    else:
        tells = [[-1.0, 1.0, 1.0, 0.0], [0.125, 0.25, 1 / 32, 32.0], [-1.0, 1.0, 1 / 32, -64.0]]
    found = [
        spent(of, change(one_record_rows(of, record, label)), told)
        for (record, label), told in itertools.product(records, tells)
    ]
    return max(found)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_no_record_moves_all_answers_by_more_than_the_account_has(n_classes: int) -> None:
    of = recipe(n_classes)
    account = sum(release.mu**2 for release in of.noise.releases if isinstance(release, SkellamRounds))
    assert 0.9 * account < worst(of) <= account * (1 + 1e-9)
    assert account == pytest.approx(of.plan.mu**2, rel=1e-6)


SPECIAL = (-64.0, -1.0, -0.125, -5e-324, 0.0, 5e-324, 1e-300, 0.125, 1.0, 64.0)


def test_no_range_that_a_coordinator_tells_has_a_record_move_more() -> None:
    """The broken twin takes any range: divided by half of the least number, which is 0, a label is no number."""
    of, most = recipe(0, bounds=(-1.0, 1.0)), 0.0
    for lower, upper in itertools.product(SPECIAL, SPECIAL):
        told = [lower, upper, 1.0, 0.0]
        with suppress(AccountError):
            of.rounds.check(told)
            most = max(most, spent(of, one_record_rows(of, (0.3, 5.0, 1.0), 0.0), told))
    budget = sum(one.mu**2 for one in of.noise.releases if isinstance(one, SkellamRounds))
    assert 0.5 * budget < most <= budget * (1 + 1e-9)
    rows = one_record_rows(of, (0.3, 5.0, 1.0), 0.0)
    for value in (0.0, 5e-324, 1.0):
        rows.start_tree(0)
        rows.finish_tree(tree_of([], np.array([value]), GRID.axes))
    rows.start_tree(0)
    with np.errstate(all="ignore"):
        assert abs(rows.totals(ROOT)).max() > 2**62


class Doubled(RoundRows):
    """A record is counted twice in cells of columns."""

    def add_histograms(self, nodes: Any, out: Any) -> None:
        super().add_histograms(nodes, out)
        super().add_histograms(nodes, out)


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_a_record_in_two_cells_would_be_found(n_classes: int) -> None:
    """The broken twin."""
    of = recipe(n_classes)

    def doubled(rows: RoundRows) -> RoundRows:
        return Doubled(rows._table, rows._labels, rows._rounds, rows._task)

    account = sum(release.mu**2 for release in of.noise.releases if isinstance(release, SkellamRounds))
    assert worst(of, doubled) > 1.05 * account


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_shares_of_the_noise_are_drawn_for_every_released_number_and_no_other(
    n_classes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, int]] = []
    draw = Skellam.draw

    def noted(self: Skellam, count: int, **others: Any) -> Any:
        drawn.append((self.variance, count))
        return draw(self, count, **others)

    monkeypatch.setattr(Skellam, "draw", noted)
    of = recipe(n_classes)
    trained(of, [slice(None)])
    rounds, K = of.rounds, of.rounds.n_outputs
    expected = []
    for kind in rounds.kinds:
        if kind != "upper":
            noise = rounds.skellam(kind).variance / 2, len(rounds.released(kind))
            expected += [noise] * (K if kind == "score" else 1)
    counts = [count for _, count in drawn]
    assert counts == [count for _, count in expected] + [4] * (2 * 4 * K)
    assert [variance for variance, _ in drawn[: len(expected)]] == pytest.approx([one for one, _ in expected])
    last = of.noise.releases[-1]
    assert isinstance(last, SkellamRounds)
    assert [2 * variance for variance, _ in drawn[len(expected) :]] == pytest.approx(last.variances[:2] * (4 * K))


@pytest.mark.parametrize("n_classes", [0, 2, 26])
@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0])
def test_the_noise_in_shares_costs_the_budget_and_no_more(n_classes: int, epsilon: float) -> None:
    task = dataclasses.replace(recipe(n_classes).task, epsilon=epsilon)
    of = recommended_among_owners(task, n_classes=n_classes, delta=DELTA, n_records=20_000, n_honest=2)
    promise = of.guarantee(is_secure=True)
    assert 0.999 * epsilon < promise.epsilon <= epsilon
    assert promise.certified
    assert [one.epsilon for one in promise.weaker] == [epsilon_of_shares(of.noise, 1, delta=DELTA)]
    central = recommended_among_owners(task, n_classes=n_classes, delta=DELTA, n_records=20_000, n_honest=None)
    assert of.noise.multiplier == pytest.approx(central.noise.multiplier, rel=0.02 if epsilon > 1 else 1e-3)
    assert "not against the coordinator" in str(central.guarantee(is_secure=True))
    one_more = (*of.noise.releases, dataclasses.replace(of.noise.releases[-1], n_rounds=1))
    assert by_skellam(one_more, DELTA) > epsilon


def test_many_columns_are_looked_at_first_and_paid_for() -> None:
    grid = PublicGrid([(0.0, 1.0)] * 60, 16)
    task = dataclasses.replace(recipe(2).task, grid=grid, names=tuple(f"x{i}" for i in range(60)))
    of = recommended_among_owners(task, n_classes=2, delta=DELTA, n_records=20_000, n_honest=2, sizes=(4, 2))
    assert [release.n_rounds for release in of.noise.releases] == [1, 3, 60, 4]
    assert of.n_trees == of.tree_rules.n_trees == 4 + 60 + 4
    assert of.tree_rules.max_depth == 3
    assert 0.999 * 2 < of.guarantee(is_secure=True).epsilon <= 2


def test_a_holder_from_the_same_key_answers_the_same_and_other_rounds_have_other_noise() -> None:
    of = recipe(2)
    X, y = table(2, 20)

    def answers() -> list[list[int]]:
        holder, found = of.rows(X, y, rng=seeded(1)), []
        for kind in of.rounds.kinds:
            holder.start_tree(0)
            out = np.zeros((1, 2, GRID.axes.n_bins), np.int64)
            if kind == "score":
                found.append(holder.totals(ROOT).tolist())
            else:
                holder.add_histograms(ROOT, out)
                found.append(out.tolist())
            holder.finish_tree(tree_of([], np.zeros(1), GRID.axes))
        return found

    first = answers()
    assert first == answers()
    assert first[1] != first[2]


def start(of: RecommendedAmongOwners, n_trees: int = 1) -> Any:
    holder = of.rows(*table(of.rounds.n_classes, 20), rng=seeded(0))
    for number in range(n_trees):
        holder.start_tree(number % of.rounds.n_outputs)
        if number < n_trees - 1:
            holder.finish_tree(tree_of([], np.zeros(1), GRID.axes))
    return holder


def test_questions_that_a_round_does_not_have_are_refused() -> None:
    out = np.zeros((1, 2, GRID.axes.n_bins), np.int64)
    of = recipe(2)
    with pytest.raises(AccountError, match="does not have; nothing was released"):
        start(of).add_histograms(ROOT, out)
    with pytest.raises(AccountError, match="does not have"):
        start(of, 2).totals(ROOT)
    for n_trees in (1, 2):
        twice = start(of, n_trees)
        ask = twice.totals if n_trees == 1 else lambda nodes, twice=twice: twice.add_histograms(nodes, out)
        ask(ROOT)
        with pytest.raises(AccountError, match="does not have"):
            ask(ROOT)
    with pytest.raises(AccountError, match="single leaf"):
        start(of).divide(None)
    with pytest.raises(AccountError, match="histograms are not in the account"):
        start(of, of.rounds.n_trees + 1).add_histograms(ROOT, out)
    assert not out.any() or np.count_nonzero(out) <= 32
    with pytest.raises(AccountError, match="before this one"):
        start(of, of.n_trees + 1)


def test_ranges_and_units_that_nothing_can_be_scaled_by_are_refused() -> None:
    rounds = recipe(0).rounds
    for told in ([0.5, 0.5], [0.5, 0.6], [-64.0, 64.0], [-1.0, 1.1], [0.0, 5e-324], [math.nan, 1.0]):
        with pytest.raises(AccountError, match="has no cell in the bounds"):
            rounds.check(told)
    for unit in (0.0, 2.0, math.nan):
        with pytest.raises(AccountError, match="bound of gradients"):
            rounds.check([-1.0, 1.0, unit])
    holder = start(recipe(0), 2)
    for wrong, words in ((-1.0, "has no cell"), (0.0, "bound of gradients")):
        before = digest(holder)
        with pytest.raises(AccountError, match=words):
            holder.finish_tree(tree_of([], np.array([wrong]), GRID.axes))
        assert digest(holder) == before
        holder.finish_tree(tree_of([], np.array([0.5]), GRID.axes))
        holder.start_tree(0)
    with pytest.raises(ParameterError, match="no finite scores"):
        recipe(0, bounds=(-1e307, 1e307))
    with pytest.raises(ParameterError, match="at least 16 cells"):
        FirstRounds(grid=PublicGrid([(0, 1)], 8), label_bounds=(0, 1), n_classes=2, plan=rounds.plan)


@pytest.mark.parametrize("n_classes", [0, 4])
def test_a_copy_of_the_records_answers_on_its_own(n_classes: int) -> None:
    """As tasks of a cluster do that run again."""
    of = recipe(n_classes)
    rows = of.records(*table(n_classes, 30), coins=None)
    told = iter([-1.0, 1.0, 1.0, 0.0] if not n_classes else [])
    for _ in range(of.rounds.n_trees):
        rows.start_tree(0)
        rows.finish_tree(tree_of([], np.array([next(told, 0.0)]), GRID.axes))
    rows.start_tree(0)
    twin = rows.copied()
    before = twin.totals(ROOT).tolist()
    rows.finish_tree(tree_of([], np.ones(1), GRID.axes))
    rows.start_tree(0)
    assert rows.totals(ROOT).tolist() != before
    assert twin.totals(ROOT).tolist() == before
    twin.finish_tree(tree_of([], np.ones(1), GRID.axes))
    twin.start_tree(0)
    assert twin.totals(ROOT).tolist() == rows.totals(ROOT).tolist()
