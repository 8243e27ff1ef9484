"""What owners of a chain agreed on: its promise, which trees fit it, and records that are used once over processes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost import InPrivateClassifier
from opboost.errors import AccountError, DataError
from opboost.horizontal.inprivate.owners import InPrivateAmongOwners
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.inprivate.training import Owner
from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.rng import seeded
from opboost.trees.tree import Tree

DRAW = np.random.default_rng(4)
X = DRAW.random((240, 3))
Y = (X[:, 0] > 0.5).astype(float)


def recipe(*, n_rounds: int = 3, epsilon: float = 2.0) -> InPrivateAmongOwners:
    task = PublicTask(("a", "b", "c"), PublicGrid([(0, 1)] * 3, 16), 0.0, 1.0, epsilon, True, True)
    settings = InPrivateSettings(n_rounds=n_rounds, max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=2.0)
    return InPrivateAmongOwners(task=task, settings=settings)


def owner(of: InPrivateAmongOwners, *, coins: int = 1, bits: int = 2) -> Owner:
    return of.owner(X, Y, coins=seeded(coins), rng=seeded(bits))


def test_a_record_of_a_tree_before_an_interruption_is_in_none_after_it() -> None:
    of = recipe()
    whole = owner(of)
    used = [whole._deal.next_part().tolist() for _ in range(3)]
    tree = owner(of).take_turn(of.epsilon)
    again = owner(of, bits=3)
    again.take_back(tree)
    assert [again._deal.next_part().tolist() for _ in range(2)] == used[1:]
    with pytest.raises(AccountError):
        again._deal.next_part()
    # With coins of its own a second process would use records of the first tree again.
    other = owner(of, coins=9, bits=3)
    other.take_back(tree)
    assert set(other._deal.next_part().tolist()) & set(used[0])


def test_a_tree_that_is_taken_back_counts_as_if_it_had_just_been_grown() -> None:
    of = recipe()
    first, second = owner(of), owner(of)
    tree = first.take_turn(of.epsilon)
    second.take_back(tree)
    assert np.array_equal(first._holders.scores, second._holders.scores)


def test_the_promise_is_the_estimator_s() -> None:
    model = InPrivateClassifier(epsilon=2.0, bounds=(0, 1), n_rounds=3, max_depth=2, random_state=0).fit(X, Y)
    promise = recipe().guarantee(is_secure=True)
    assert promise.epsilon == model.guarantee_.epsilon <= 2.0
    assert promise.certified
    assert not recipe().guarantee(is_secure=False).certified
    exact = recipe(epsilon=float("inf"))
    assert exact.guarantee(is_secure=True).notion == "none"
    assert exact.releases == ()


def stump(**changes: Any) -> Tree:
    arrays = {
        "columns": np.array([0, -1, -1], np.int32),
        "thresholds": np.array([14.0, 0, 0]),
        "missing_left": np.zeros(3, np.bool_),
        "lefts": np.array([1, 0, 0], np.int32),
        "rights": np.array([2, 0, 0], np.int32),
        "values": np.array([0, 0.5, -0.5]),
        "gains": np.zeros(3),
        "covers": np.zeros(3),
    }
    return Tree(**{**arrays, **changes})


def test_trees_of_owners_fit_and_so_does_every_tree_at_the_edge_of_what_was_agreed() -> None:
    of = recipe()
    assert of.checked(stump()).left_categories == {}
    one = owner(of)
    for _ in range(3):
        of.checked(one.take_turn(of.epsilon))


def test_splits_of_categories_are_told_by_the_columns_that_were_agreed_on() -> None:
    of = recipe()
    of = replace(
        of, task=replace(of.task, grid=replace(of.task.grid, bounds=[(0, 1), (0, 1), (0, 3)], categorical=(2,)))
    )
    one = stump(columns=np.array([2, -1, -1], np.int32), thresholds=np.array([3.0, 0, 0]))
    assert of.checked(one).left_categories == {0: (3,)}
    for refused in ({"thresholds": np.array([4.0, 0, 0])}, {"missing_left": np.array([True, False, False])}):
        with pytest.raises(DataError, match="does not fit"):
            of.checked(replace(one, **refused))
    rows = np.column_stack([X[:, :2], np.floor(4 * X[:, 2])])
    mine, other = (of.owner(rows, Y, coins=seeded(1), rng=seeded(2)) for _ in range(2))
    for _ in range(3):
        tree = mine.take_turn(of.epsilon)
        other.receive(of.checked(replace(tree, left_categories={})))
    np.testing.assert_array_equal(mine._holders.scores, other._holders.scores)


@pytest.mark.parametrize(
    "changes",
    [
        {"columns": np.array([3, -1, -1], np.int32)},
        {"thresholds": np.array([15.0, 0, 0])},
        {"thresholds": np.array([-1.0, 0, 0])},
        {"thresholds": np.array([0.5, 0, 0])},
        {"values": np.array([0, 0.51, 0])},
    ],
)
def test_a_tree_that_no_owner_could_have_made_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match="does not fit"):
        recipe().checked(stump(**changes))


def test_a_tree_that_is_too_deep_is_refused() -> None:
    of = recipe()
    flat = replace(of, settings=replace(of.settings, max_depth=0))
    with pytest.raises(DataError, match="does not fit"):
        flat.checked(stump())
