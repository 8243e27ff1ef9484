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

from opboost.errors import AccountError
from opboost.horizontal.recommended.calibration import going_on, recommended_among_owners
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.recommended.plan import Stage
from opboost.horizontal.recommended.round_rows import RoundRows, TableRows
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.recommended.wire_stages import bound_trees
from opboost.horizontal.rows.client_rows import SummedClients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.stream import EarlierTraining
from opboost.privacy.additive import Skellam
from opboost.privacy.releases import SkellamRounds
from opboost.rng import seeded
from opboost.trees.complete import tree_of
from opboost.trees.tree import Tree
from tests.support.recommended_owners import GRID, ROOT, THIRDS, earlier_of, recipe, records_of, trained

pytestmark = pytest.mark.usefixtures("one_thread")


# Numbers of classes and about how many records there are: of few, four classes are counted first.
TASKS = [(0, 900), (2, 900), (4, 900), (4, 90)]


@pytest.mark.parametrize(("n_classes", "n_records"), TASKS)
def test_three_owners_grow_the_very_model_of_one(n_classes: int, n_records: int) -> None:
    of = recipe(n_classes, None, n_records=n_records)
    one, three = (trained(of, parts) for parts in ([slice(None)], THIRDS))
    assert [tree.values.tolist() for tree in one.trees] == [tree.values.tolist() for tree in three.trees]
    assert len(one.trees) == (4 + 80 * (n_records == 90)) * max(n_classes if n_classes > 2 else 1, 1)
    assert one.base_scores.tolist() == three.base_scores.tolist()
    noisy = trained(recipe(n_classes, n_records=n_records), THIRDS)
    assert [tree.values.tolist() for tree in noisy.trees] != [tree.values.tolist() for tree in one.trees]


class Followed(SummedClients):
    """Sums that keep the trees as workers do, on values."""

    def __init__(self, clients: list[Any], columns: PublicGrid) -> None:
        super().__init__(clients)
        self.columns, self.trees = columns, list[Tree]()

    def place(self, columns: PublicGrid) -> None:
        super().place(columns)
        self.columns = columns

    def finish_tree(self, tree: Tree) -> None:
        super().finish_tree(tree)
        self.trees.append(self.columns.in_values(tree))


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_workers_make_the_model_that_the_coordinator_has_without_first_rounds_and_bounds(
    n_classes: int, continues: bool
) -> None:
    grid = PublicGrid([(0.0, 1.0)] * 41, 16)
    task = dataclasses.replace(recipe(n_classes).task, grid=grid, names=tuple(f"x{i}" for i in range(41)), epsilon=20.0)
    of = recommended_among_owners(
        task, n_classes=n_classes, delta=1e-6, n_records=900, n_honest=2, sizes=GivenSizes(4, 2)
    )
    known, share = np.zeros(of.rounds.n_outputs), 1.0
    if continues:
        before = of._ensemble([0.25] * of.rounds.n_trees, ())
        of = going_on(of, EarlierTraining(run="spring", model=before, digest="", n_records=300))
        # Two classes begin at earlier scores, and several have a model of their own, of three quarters of the records.
        known, share = {0: (before.base_scores, 1.0), 2: (known, 1.0), 4: (before.base_scores / 4, 0.75)}[n_classes]
    n_bounds = len(bound_trees(of.stages))
    assert n_bounds == (0 if n_classes else 2)
    X = np.random.default_rng(0).random((900, 41))
    y = np.floor(n_classes * X[:, 7]) if n_classes else X[:, 7]
    rows = [of.records(X[part], y[part], coins=None) for part in THIRDS]
    holders = [
        of.answering(TableRows(X[part], one), rng=seeded(i))
        for i, (part, one) in enumerate(zip(THIRDS, rows, strict=True))
    ]
    followed = Followed(holders, grid)
    trained = of.train(followed, shape_bits=seeded(7), rng=seeded(8))
    told = of.model(followed.trees)
    assert len(followed.trees) == of.n_trees == of.rounds.n_trees + 4 * of.rounds.n_outputs + n_bounds
    assert len(told.trees) == of.n_model_trees == 4 * of.rounds.n_outputs
    for one, other in zip(told.trees, trained.trees, strict=True):
        np.testing.assert_array_equal(one.values, other.values)
        np.testing.assert_array_equal(one.columns, other.columns)
    assert told.base_scores.tolist() == trained.base_scores.tolist()
    # The scores that gradients were taken at are those of the model, in the last unit.
    n_first = of.rounds.n_trees
    start = of.rounds.start([float(tree.values[0]) for tree in followed.trees[:n_first]])
    unit = math.prod(float(followed.trees[n_first + number].values[0]) for number in bound_trees(of.stages))
    for part, one in zip(THIRDS, rows, strict=True):
        scores = np.stack([output.scores for output in one._joint.outputs], axis=1) * start.spread * unit + start.centre
        np.testing.assert_allclose(share * scores + known, told.scores(X[part]), atol=1e-9)
    assert 7 in np.concatenate([tree.columns for tree in told.trees])


def one_record_rows(of: RecommendedAmongOwners, record: tuple[float, ...], label: float) -> RoundRows:
    return of.records(np.array([record]), np.array([label]), coins=None)


def spent_on_trees(of: RecommendedAmongOwners, rows: RoundRows, stage: Stage, factor: float) -> float:
    """The same for the trees of a stage, which stay without splits; what has no noise may not be moved."""
    total, n_outputs = 0.0, of.rounds.n_outputs
    laws = [law for law in of._tree_shares(stage) if law]
    variances = np.array([law.share(1).variance * of.noise.n_honest for law in laws])
    if stage.kind == "bound":
        rows.start_tree(0)
        rows.finish_tree(tree_of([], np.array([factor]), GRID.axes))
        return 0.0
    for _ in range(stage.n_trees):
        for output in range(n_outputs):
            rows.start_tree(output)
            moved = rows.totals(ROOT).astype(float)
            assert not moved[:, len(laws) :].any()
            total += float((moved[:, : len(laws)] ** 2 / variances).sum())
        for _ in range(n_outputs):
            rows.finish_tree(tree_of([], np.zeros(1), GRID.axes))
    return total


def spent(of: RecommendedAmongOwners, rows: RoundRows, told: list[float], factor: float = 1.0) -> float:
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
                    rows.write_histograms(ROOT, answer)
            released = rounds.released(kind)
            moved = answer.reshape(-1).astype(float)
            assert not np.delete(moved, released).any()
            if len(released):
                total += float((moved**2).sum()) / rounds.skellam(kind).variance
        for _ in range(rounds.n_outputs):
            rows.finish_tree(tree_of([], np.array([next(values, 0.0)]), axes))
    return total + sum(spent_on_trees(of, rows, stage, factor) for stage in of.stages)


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
        spent(of, change(one_record_rows(of, record, label)), told, factor)
        for (record, label), told, factor in itertools.product(records, tells, [1.0, 0.5])
    ]
    return max(found)


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize(("n_classes", "n_records"), TASKS)
def test_no_record_moves_all_answers_by_more_than_the_account_has(
    n_classes: int, n_records: int, continues: bool
) -> None:
    of = recipe(n_classes, n_records=n_records)
    if continues:
        # A model that is as sure of itself as can be, for either label.
        of = going_on(of, earlier_of(n_classes))
        of = max(of, with_scores(of, 1e6), with_scores(of, -1e6), key=worst)
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

    def write_histograms(self, nodes: Any, out: Any) -> None:
        super().write_histograms(nodes, out)
        out *= 2


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_a_record_in_two_cells_would_be_found(n_classes: int) -> None:
    """The broken twin."""
    of = recipe(n_classes)

    def doubled(rows: RoundRows) -> RoundRows:
        return Doubled(rows._table, rows._labels, rows._rounds, rows._task)

    account = sum(release.mu**2 for release in of.noise.releases if isinstance(release, SkellamRounds))
    assert worst(of, doubled) > 1.05 * account


def test_a_record_that_is_counted_twice_would_be_found() -> None:
    """The broken twin: gradients in place of counts, of which a record moves two."""
    of = recipe(4, n_records=90)

    def of_gradients(rows: RoundRows) -> RoundRows:
        rounds = dataclasses.replace(of.rounds, plan=dataclasses.replace(of.plan, n_counted=0))
        return RoundRows(rows._table, rows._labels, rounds, rows._task)

    with pytest.raises(AssertionError):
        worst(of, of_gradients)


def with_scores(of: RecommendedAmongOwners, score: float) -> RecommendedAmongOwners:
    """The same on an earlier model with this score for everybody, and its negative for other classes."""
    assert of.earlier is not None
    scores = np.where(np.arange(of.rounds.n_outputs), -score, score)
    model = dataclasses.replace(of.earlier.model, trees=(), base_scores=scores)
    return dataclasses.replace(of, earlier=dataclasses.replace(of.earlier, model=model))


@pytest.mark.parametrize(("n_classes", "n_records"), TASKS)
def test_shares_of_the_noise_are_drawn_for_every_released_number_and_no_other(
    n_classes: int, n_records: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[tuple[float, int]] = []
    draw = Skellam.draw

    def noted(self: Skellam, count: int, **others: Any) -> Any:
        drawn.append((self.variance, count))
        return draw(self, count, **others)

    monkeypatch.setattr(Skellam, "draw", noted)
    of = recipe(n_classes, n_records=n_records)
    trained(of, [slice(None)])
    rounds, K = of.rounds, of.rounds.n_outputs
    expected = []
    for kind in rounds.kinds:
        if kind != "upper":
            noise = rounds.skellam(kind).variance / 2, len(rounds.released(kind))
            expected += [noise] * (K if kind == "score" else 1)
    counts = [count for _, count in drawn]
    n_counted = of.plan.n_counted * K
    assert counts == [count for _, count in expected] + [8] * n_counted + [4] * (2 * 4 * K)
    assert [variance for variance, _ in drawn[: len(expected)]] == pytest.approx([one for one, _ in expected])
    shares = [of._tree_shares(stage) for stage in of.stages for _ in range(stage.n_trees * K)]
    of_trees = [share.variance for pair in shares for share in pair if share]
    assert [variance for variance, _ in drawn[len(expected) :]] == of_trees


def test_a_holder_from_the_same_key_answers_the_same_and_other_rounds_have_other_noise() -> None:
    of = recipe(2)
    X, y = records_of(2, 20)

    def answers() -> list[list[int]]:
        holder, found = of.rows(X, y, rng=seeded(1)), []
        for kind in of.rounds.kinds:
            holder.start_tree(0)
            out = np.zeros((1, 2, GRID.axes.n_bins), np.int64)
            if kind == "score":
                found.append(holder.totals(ROOT).tolist())
            else:
                holder.write_histograms(ROOT, out)
                found.append(out.tolist())
            holder.finish_tree(tree_of([], np.zeros(1), GRID.axes))
        return found

    first = answers()
    assert first == answers()
    assert first[1] != first[2]
