"""What constraints promise of a whole model, and how they are written by column name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.columns import OwnColumn
from opboost.errors import ParameterError
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints, Constraints
from opboost.trees.losses import Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Tree
from opboost.vertical import train

SEEDS = st.integers(0, 2**32 - 1)

pytestmark = pytest.mark.usefixtures("one_thread")


def _trained(loss: Loss, constraints: ColumnConstraints, seed: int, **parameters: Any) -> tuple[Ensemble, np.ndarray]:
    """Four columns of few values, the last one with gaps, and labels that follow none of them in one direction."""
    rng = np.random.default_rng(seed)
    table = rng.integers(0, [4, 9, 30, 6], (300, 4)) * 1.0
    signal = np.sin(table[:, 0]) + np.cos(table[:, 1]) * table[:, 3] / 3 + rng.normal(size=300)
    table[rng.random(300) < 0.2, 3] = np.nan
    match loss:
        case SquaredError():
            labels = signal
        case Poisson():
            labels = rng.poisson(np.exp(signal / 2)).astype(np.float64)
        case _:
            labels = np.digitize(signal, [-0.5, 0.5][: max(1, loss.n_outputs - 1)]).astype(np.float64)
    columns = [OwnColumn(f"c{i}", values) for i, values in enumerate(table.T)]
    settings_ = BoostingParameters(**{"n_estimators": 8, "max_depth": 5, "min_child_weight": 0.1} | parameters)
    trained = train(columns, labels, np.ones(300), loss=loss, parameters=settings_, constraints=constraints)
    return bind(trained, {}), table


@settings(max_examples=60, deadline=None)
@given(
    st.sampled_from([SquaredError(), Logistic(), Softmax(3), Poisson()]),
    st.tuples(*[st.sampled_from([-1, 0, 1])] * 3),
    st.sampled_from([{}, {"max_leaves": 8, "max_depth": 0}, {"max_delta_step": 0.2}, {"reg_lambda": 0.0}]),
    SEEDS,
)
def test_scores_rise_or_fall_with_a_monotone_column_whatever_the_others_hold(
    loss: Loss, directions: tuple[int, ...], parameters: dict[str, Any], seed: int
) -> None:
    """A column moves from the lowest to the highest value while all others stay where they are, missing ones too."""
    constraints = ColumnConstraints({f"c{i}": direction for i, direction in enumerate(directions)})
    ensemble, table = _trained(loss, constraints, seed, **parameters)
    for column, direction in enumerate(directions):
        rows = np.repeat(table[:40], 30, axis=0)
        rows[:, column] = np.tile(np.arange(30.0), 40)
        steps = np.diff(ensemble.scores(rows).reshape(40, 30, -1), axis=1)
        assert (direction * steps >= -1e-12).all()


def test_without_the_constraint_scores_rise_and_fall() -> None:
    ensemble, table = _trained(SquaredError(), ColumnConstraints(), 0)
    rows = np.repeat(table[:40], 30, axis=0)
    rows[:, 1] = np.tile(np.arange(30.0), 40)
    steps = np.diff(ensemble.scores(rows).reshape(40, 30), axis=1)
    assert (steps > 0.01).any()
    assert (steps < -0.01).any()


def _paths(tree: Tree, node: int = 0, path: frozenset[int] = frozenset()) -> list[frozenset[int]]:
    """The columns on the way to each leaf."""
    if tree.is_leaf[node]:
        return [path]
    path = path | {int(tree.columns[node])}
    return _paths(tree, int(tree.lefts[node]), path) + _paths(tree, int(tree.rights[node]), path)


GROUPS = st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(GROUPS, st.sampled_from([{}, {"max_leaves": 8, "max_depth": 0}, {"colsample_bytree": 0.6}]), SEEDS)
def test_columns_meet_on_a_way_only_within_a_group(
    groups: list[list[int]], parameters: dict[str, Any], seed: int
) -> None:
    constraints = ColumnConstraints(interactions=[[f"c{i}" for i in group] for group in groups])
    ensemble, _ = _trained(SquaredError(), constraints, seed, **parameters)
    for path in {path for tree in ensemble.trees for path in _paths(tree)}:
        assert len(path) <= 1 or any(path <= set(group) for group in groups)


def test_overlapping_groups_let_a_way_use_either_and_never_both() -> None:
    constraints = ColumnConstraints(interactions=[["c0", "c1"], ["c1", "c3"]])
    ensemble, _ = _trained(SquaredError(), constraints, 0, n_estimators=30)
    paths = {path for tree in ensemble.trees for path in _paths(tree)}
    assert {frozenset({0, 1}), frozenset({1, 3})} <= paths
    assert not [path for path in paths if {0, 3} <= path]


def test_without_groups_all_columns_meet() -> None:
    ensemble, _ = _trained(SquaredError(), ColumnConstraints(), 0, n_estimators=30)
    assert max(len(path) for tree in ensemble.trees for path in _paths(tree)) >= 3


@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Poisson()], ids=lambda loss: loss.name)
def test_no_leaf_exceeds_the_largest_step_times_the_learning_rate(loss: Loss) -> None:
    ensemble, _ = _trained(loss, ColumnConstraints(), 0, max_delta_step=0.25, learning_rate=0.5, n_estimators=3)
    largest = max(np.abs(tree.values).max() for tree in ensemble.trees)
    assert largest == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("constraints", "words"),
    [
        (ColumnConstraints({"age": 1}), "do not exist: age"),
        (ColumnConstraints(interactions=[["c0"], ["zip", "age"]]), "do not exist: age, zip"),
        (ColumnConstraints({"c0": 2}), "monotone constraint of 'c0' must be -1, 0 or 1; got 2"),
        (ColumnConstraints({"c0": "up"}), "monotone constraint of 'c0' must be -1, 0 or 1; got 'up'"),  # type: ignore[dict-item]
        (ColumnConstraints({"c1": -1}), "'c1' holds categories, which have no order to be monotone in"),
    ],
    ids=["unknown column", "unknown member", "steep", "a word", "categories"],
)
def test_constraints_that_make_no_sense_are_refused_by_name(constraints: ColumnConstraints, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        constraints.on(["c0", "c1"], are_categorical=[False, True], max_delta_step=0.0)


def test_a_direction_of_zero_is_no_constraint_also_for_categories() -> None:
    found = ColumnConstraints({"c0": 0, "c1": 0}).on(["c0", "c1"], are_categorical=[False, True], max_delta_step=0.0)
    assert not found.is_bounded
    assert not found.change_below
    assert found.groups.shape == Constraints.none(2).groups.shape == (0, 2)


def test_names_are_turned_into_positions() -> None:
    found = ColumnConstraints({"b": -1, "a": 1}, [["c", "a"], ["b"]]).on(
        ["a", "b", "c"], are_categorical=[False] * 3, max_delta_step=0.5
    )
    assert found.monotone.tolist() == [1, -1, 0]
    assert found.groups.tolist() == [[True, False, True], [False, True, False]]
    assert found.max_delta_step == 0.5


@pytest.mark.parametrize("constraints", [ColumnConstraints({"c0": 1}), ColumnConstraints(interactions=[["c0", "age"]])])
def test_a_name_that_two_columns_have_is_refused_for_it_says_not_which(constraints: ColumnConstraints) -> None:
    with pytest.raises(ParameterError, match="c0"):
        constraints.on(["age", "c0", "c0"], are_categorical=[False] * 3, max_delta_step=0.0)


def test_two_columns_of_one_name_that_no_constraint_mentions_are_no_fault() -> None:
    found = ColumnConstraints({"age": 1}).on(["age", "c0", "c0"], are_categorical=[False] * 3, max_delta_step=0.0)
    assert found.monotone.tolist() == [1, 0, 0]
