"""Skellam noise in shares: all releases together cost the budget and no more."""

from __future__ import annotations

import dataclasses

import pytest

from opboost.horizontal.noise.distributed_noise import epsilon_of_shares
from opboost.horizontal.recommended.calibration import recommended_among_owners
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.privacy.accounting import by_skellam
from tests.support.recommended_owners import DELTA, recipe

pytestmark = pytest.mark.usefixtures("one_thread")


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


def test_many_columns_are_screened_and_paid_for() -> None:
    grid = PublicGrid([(0.0, 1.0)] * 60, 16)
    task = dataclasses.replace(recipe(2).task, grid=grid, names=tuple(f"x{i}" for i in range(60)))
    of = recommended_among_owners(task, n_classes=2, delta=DELTA, n_records=20_000, n_honest=2, sizes=GivenSizes(4, 2))
    assert [release.n_rounds for release in of.noise.releases] == [1, 3, 1, 4]
    assert of.n_trees == of.tree_rules.n_trees == 5 + 4
    assert len(of.noise.releases[2].largest) == 60
    assert 0.999 * 2 < of.guarantee(is_secure=True).epsilon <= 2
