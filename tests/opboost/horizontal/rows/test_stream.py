"""Records that arrive after a finished training among owners: what earlier ones have paid is found again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.horizontal.noise.distributed_noise import shared_leaf_noise
from opboost.horizontal.noise.leaf_noise import leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import WalkingHolder
from opboost.horizontal.rows.stream import Arrival, EarlierTraining
from opboost.horizontal.sgbdt.owners import SGBDTAmongOwners
from opboost.horizontal.sgbdt.training import SGBDTSettings
from opboost.rng import seeded
from opboost.trees.holder import SummedHolders
from opboost.trees.tree import Tree

GRID = PublicGrid([(0.0, 1.0)] * 2 + [(0.0, 2.0)], 8, categorical=(2,))
N_TREES = 12


def recipe(**changed: Any) -> SGBDTAmongOwners:
    settings: dict[str, Any] = {"has_filter": True, "n_honest": 0, "rate": 1.0, **changed}
    # A scale of labels that no float64 divides exactly.
    task = PublicTask(("a", "b", "c"), GRID, 0.05, 0.3, 4.0, True, False)
    clipping = leaf_clipping(0.25, 6.0, is_classification=False)
    budget: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-6, "n_trees": N_TREES, "has_filter": settings["has_filter"]}
    noise = (
        shared_leaf_noise(clipping, **budget, n_honest=settings["n_honest"])
        if settings["n_honest"]
        else leaf_noise(clipping, **budget, rate=settings["rate"], initial_share=0.0)
    )
    settings = SGBDTSettings(
        max_depth=3, learning_rate=0.7, reg_lambda=1.0, noise_lambda=1.0, max_leaf=2.0, later_rate=0.25
    )
    return SGBDTAmongOwners(task=task, settings=settings, noise=noise, n_trees=N_TREES, delta=1e-6)


def table(n: int, seed: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(seed)
    rows = np.column_stack([draw.random((n, 2)), draw.integers(0, 3, n)]).astype(float)
    return rows, 0.05 + 0.3 * np.clip(rows[:, 0] - rows[:, 1] + draw.normal(0, 0.1, n), -1, 1)


def records(of: SGBDTAmongOwners, *table: Any) -> WalkingHolder:
    held = of.records(*table, coins=seeded(5) if of.needs_coins else None)
    assert isinstance(held, WalkingHolder)
    return held


def trained(of: SGBDTAmongOwners, holder: Any, seed: int) -> tuple[Any, tuple[Tree, ...]]:
    """The model, and its trees on the scale of training as workers hear of them."""
    heard: list[Tree] = []

    class Hearing(SummedHolders):
        def finish_tree(self, tree: Tree) -> None:
            heard.append(of.task.grid.in_values(tree))
            super().finish_tree(tree)

    model = of.train(Hearing([holder]), shape_bits=seeded(seed), rng=seeded(seed + 1))
    return model, of.kept_trees(heard).trees


def spent(held: WalkingHolder) -> Any:
    return held._admit.accounts._spent  # type: ignore[union-attr]


def finished(of: SGBDTAmongOwners, model: Any, trees: tuple[Tree, ...], *arrivals: Arrival) -> EarlierTraining:
    return EarlierTraining(run="spring", model=model, digest="", trees=trees, arrivals=arrivals)


@pytest.mark.parametrize("settings", [{}, {"rate": 0.5}, {"n_honest": 2}], ids=["all", "sampled", "shares"])
def test_what_records_have_paid_and_their_scores_are_found_again_to_the_last_bit(settings: dict[str, Any]) -> None:
    of, first, second = recipe(**settings), table(90, 1), table(40, 2)
    live = records(of, *first)
    model, trees = trained(of, live, 3)
    assert spent(live).max() > 0
    both = tuple(np.concatenate(parts) for parts in zip(first, second, strict=True))
    going_on = of.going_on(finished(of, model, trees, Arrival(90, 0)))
    assert going_on.earlier is not None
    held = going_on.earlier.holder(
        *both, grid=GRID, has_filter=True, records=lambda rows, labels: records(of, rows, labels)
    )
    assert isinstance(held, SummedHolders)
    old, new = held._holders
    np.testing.assert_array_equal(spent(old), spent(live))
    np.testing.assert_array_equal(old.scores, live.scores)
    assert not spent(new).any()
    bins = records(of, *second)
    bins.catch_up([GRID.in_cells(tree) for tree in trees])
    np.testing.assert_array_equal(new.scores, bins.scores)

    # A third training finds the payments of both again.
    more, all_trees = trained(going_on, held, 6)
    assert len(more.trees) == len(all_trees) == 2 * N_TREES
    third = finished(of, more, all_trees, Arrival(90, 0), Arrival(130, N_TREES))
    again = third.holder(*both, grid=GRID, has_filter=True, records=lambda rows, labels: records(of, rows, labels))
    for one, other in zip(again._holders, held._holders, strict=False):  # type: ignore[attr-defined]
        np.testing.assert_array_equal(spent(one), spent(other))
        np.testing.assert_array_equal(one.scores, other.scores)


def test_no_record_spends_more_than_its_budget_in_all_trainings_together() -> None:
    """With a twin that forgets what was paid, where most records exceed it."""
    of, rows = recipe(), table(60, 1)
    rows = rows[0], np.where(np.arange(60) % 2, 0.35, -0.25)

    def contributed(*, pays: bool) -> Any:
        total, holder, trees, model = np.zeros(60), records(of, *rows), (), None
        for run in range(3):
            if model is not None:
                earlier = finished(of, model, trees, Arrival(60, 0))
                holder = records(of, *rows)
                if pays:
                    held = earlier.holder(*rows, grid=GRID, has_filter=True, records=lambda *some: records(of, *some))
                    holder = held._holders[0]  # type: ignore[attr-defined]
                else:
                    holder.catch_up([GRID.in_cells(tree) for tree in trees])
            counted = Counted(holder, of, total)
            going_on = of if model is None else of.going_on(earlier)
            model, trees = trained(going_on, counted, 10 * run)
        return total

    budget = of.noise.filter_for(1).budget  # type: ignore[union-attr]
    assert contributed(pays=True).max() <= budget * (1 + 1e-9)
    assert contributed(pays=False).max() > 1.5 * budget


class Counted(SummedHolders):
    """Adds up every record's squared contributions over the noise's variance, as its answers have them."""

    def __init__(self, holder: WalkingHolder, of: SGBDTAmongOwners, total: Any) -> None:
        super().__init__([holder])
        self._holder, self._noise, self._total = holder, of.noise, total

    def start_tree(self, output: int) -> None:
        super().start_tree(output)
        packed = self._holder._contributions
        hess = (packed + (1 << 34)) >> 35
        squared = self._noise.clipping.norms_squared(packed - (hess << 35), hess)
        self._total += squared / self._noise.grad_std**2


def test_without_a_filter_new_records_train_alone_in_smaller_steps() -> None:
    of, first, second = recipe(has_filter=False), table(90, 1), table(40, 2)
    model, trees = trained(of, records(of, *first), 3)
    going_on = of.going_on(finished(of, model, trees, Arrival(90, 0)))
    both = tuple(np.concatenate(parts) for parts in zip(first, second, strict=True))
    assert going_on.settings.learning_rate == pytest.approx(0.25 * of.settings.learning_rate)
    answers = []
    for rows, labels in (both, (both[0], np.where(np.arange(130) < 90, 0.0, both[1])), first):
        holder = going_on.rows(rows, labels, rng=seeded(9))
        holder.start_tree(0)
        answers.append(holder.totals(np.zeros(1, np.int32)))
    np.testing.assert_array_equal(answers[0], answers[1])
    assert answers[0][0, 1] > 0
    np.testing.assert_array_equal(answers[2], 0)


@pytest.mark.parametrize("n_honest", [0, 2])
def test_the_guarantee_of_both_is_that_of_one_but_for_rounds_of_noise_in_shares(n_honest: int) -> None:
    of = recipe(n_honest=n_honest)
    model, trees = trained(of, records(of, *table(50, 1)), 3)
    going_on = of.going_on(finished(of, model, trees, Arrival(50, 0)))
    before, after = of.guarantee(is_secure=True), going_on.guarantee(is_secure=True)
    assert before.epsilon <= after.epsilon <= before.epsilon * (1 + 1e-3)
    assert "together: provided that no new record is a copy of an earlier one" in after.protected
    if n_honest:
        assert {release.n_rounds for release in going_on.noise.releases} == {2 * N_TREES}


def test_trees_on_values_go_back_into_cells_and_other_cuts_are_refused() -> None:
    of = recipe()
    _, trees = trained(of, records(of, *table(50, 1)), 3)
    for tree in trees:
        again = GRID.in_values(GRID.in_cells(tree))
        np.testing.assert_array_equal(again.thresholds, tree.thresholds)
    cut = next(tree for tree in trees if tree.columns[0] < 2)
    moved = replace(cut, thresholds=cut.thresholds + 1e-9)
    with pytest.raises(DataError, match=r"divides column \d where the public grid has no cut"):
        GRID.in_cells(moved)
