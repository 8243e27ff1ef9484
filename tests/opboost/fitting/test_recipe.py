"""How trees on noised columns are grown: parameters that suit noise, brief trials, and scores in bins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import opboost.fitting.recipe
from opboost.fitting.recipe import (
    FEW_FOLDS,
    FOLDS,
    LEFT_OPEN,
    MANY_ROWS,
    NOISE_DEFAULTS,
    OWN_DEFAULTS,
    Recipe,
    no_versions,
    raw_scores,
    table_scores,
    with_noise_defaults,
    with_own_defaults,
)
from opboost.trees.binning import BinnedTable, bin_values
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import Constraints
from opboost.trees.losses import Logistic, Loss, Ordinal, Softmax, SquaredError

pytestmark = pytest.mark.usefixtures("one_thread")

OWN = BoostingParameters(n_estimators=7, max_depth=9, learning_rate=0.5, subsample=0.9)


def recipe(loss: Loss, **parameters: Any) -> Recipe:
    return Recipe(BoostingParameters(**parameters), loss, Constraints.none(2), 0)


@pytest.mark.parametrize(
    ("left_open", "changed"),
    [
        ((), ()),
        (("max_depth",), ("max_depth",)),
        (("n_estimators", "learning_rate"), ("n_estimators", "learning_rate")),
        (tuple(OWN_DEFAULTS), tuple(OWN_DEFAULTS)),
    ],
)
def test_what_is_left_open_is_calmed(left_open: tuple[str, ...], changed: tuple[str, ...]) -> None:
    assert with_own_defaults(OWN, left_open) == replace(OWN, **{name: OWN_DEFAULTS[name] for name in changed})


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"n_estimators": 80}, {"learning_rate": 0.125}),
        ({"n_estimators": 1000}, {"learning_rate": 0.01}),
        ({"n_estimators": 20}, {"learning_rate": 0.3}),
        ({"n_estimators": 0}, {"learning_rate": 0.3}),
        ({"learning_rate": 0.05}, {"n_estimators": 200}),
        ({"learning_rate": 0.003}, {"n_estimators": 3334}),
        ({"learning_rate": 0.3}, {"n_estimators": 100}),
    ],
)
def test_rounds_and_their_rate_go_together_where_one_of_them_is_given(
    given: dict[str, Any], found: dict[str, Any]
) -> None:
    parameters = BoostingParameters(**given)
    for set_ in (with_own_defaults, lambda *settings: with_noise_defaults(*settings, SquaredError(), 1)):
        changed = set_(parameters, {"n_estimators", "learning_rate"} - set(given))
        assert changed == replace(parameters, learning_rate=changed.learning_rate, n_estimators=changed.n_estimators)
        assert {name: getattr(changed, name) for name in found} == pytest.approx(found)


@pytest.mark.parametrize(
    ("loss", "reg_lambda"), [(SquaredError(), 50.0), (Logistic(), 12.5), (Softmax(3), 12.5), (Ordinal(4), 12.5)]
)
def test_trees_on_noised_columns_of_few_rows_are_patient_and_those_of_many_calm(loss: Loss, reg_lambda: float) -> None:
    expected = replace(OWN, **NOISE_DEFAULTS, reg_lambda=reg_lambda)
    assert with_noise_defaults(OWN, LEFT_OPEN, loss, MANY_ROWS) == expected
    assert with_noise_defaults(OWN, LEFT_OPEN, loss, MANY_ROWS + 1) == with_own_defaults(OWN, LEFT_OPEN)
    assert with_noise_defaults(OWN, (), loss, MANY_ROWS) == OWN
    assert with_noise_defaults(OWN, {"reg_lambda"}, loss, 1) == replace(OWN, reg_lambda=reg_lambda)


def test_trees_on_the_own_columns_have_parameters_of_their_own() -> None:
    own = BoostingParameters(n_estimators=200, learning_rate=0.05, max_depth=4)
    both = replace(recipe(SquaredError(), n_estimators=500, learning_rate=0.02, max_depth=5), own=own)
    assert both.on_own().parameters == own
    assert both.on_own(8).parameters == replace(own, max_depth=8)
    brief = both.brief(100)
    assert (brief.parameters.n_estimators, brief.parameters.learning_rate) == (100, pytest.approx(0.1))
    assert (brief.on_own().parameters.n_estimators, brief.on_own().parameters.learning_rate) == (100, 0.1)
    assert recipe(SquaredError()).on_own().parameters == BoostingParameters()


@pytest.mark.parametrize(
    ("given", "brief"),
    [
        ({"n_estimators": 20, "learning_rate": 0.1, "max_depth": 3}, (20, 0.1, 3)),
        ({"n_estimators": 200, "learning_rate": 0.03, "max_depth": 6}, (60, 0.1, 4)),
        ({"n_estimators": 600, "learning_rate": 0.1, "max_depth": 0, "max_leaves": 9}, (60, 0.15, 4)),
        ({"n_estimators": 100, "learning_rate": 0.4, "max_depth": 2}, (60, 0.4, 2)),
    ],
)
def test_trials_are_brief_flat_and_learn_as_much_faster(given: dict[str, Any], brief: tuple[int, float, int]) -> None:
    found = recipe(SquaredError(), **given).brief(60).parameters
    assert (found.n_estimators, found.learning_rate, found.max_depth) == pytest.approx(brief)
    assert found.max_leaves == 0


@pytest.mark.parametrize(
    ("loss", "n_classes", "width"), [(SquaredError(), 0, 1), (Logistic(), 2, 1), (Softmax(3), 3, 3), (Ordinal(4), 4, 4)]
)
def test_labels_are_compared_as_numbers_or_class_by_class(loss: Loss, n_classes: int, width: int) -> None:
    labels = np.array([0.0, 1.0, 1.0, 0.0])
    assert recipe(loss).n_classes == n_classes
    assert recipe(loss).targets(labels).shape == (4, width)
    assert recipe(loss).targets(labels)[:, -1 if width == 1 else 1].tolist() == labels.tolist()


def test_scores_of_trees_are_base_scores_and_what_each_tree_adds() -> None:
    draw = np.random.default_rng(0)
    table = BinnedTable.of([bin_values(column, max_bin=16) for column in draw.random((2, 300))])
    grown: list[int] = []
    of = replace(recipe(Softmax(3), n_estimators=4, max_depth=2), watch=lambda: grown.append(1))
    trees, base_scores = of.grow(table, draw.integers(0, 3, 300).astype(float), np.ones(300))
    assert (len(trees), len(grown)) == (12, 4)
    nothing, start = no_versions(300), np.zeros(3)
    (whole,) = raw_scores(table, trees, base_scores, nothing)
    (first,), (rest,) = (raw_scores(table, some, start, nothing) for some in (trees[:6], trees[6:]))
    np.testing.assert_allclose(whole, base_scores[:, None] + first + rest, atol=1e-5)
    assert whole.std(axis=1).min() > 0


@pytest.mark.parametrize("n_folds", [FOLDS, FEW_FOLDS])
def test_margins_are_those_of_trees_that_have_not_seen_the_row(n_folds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another label of a row leaves its own margin as it is, and moves others; trees grown on all rows are the twin."""
    monkeypatch.setattr(opboost.fitting.recipe, "MANY_ROWS", 300 if n_folds == FOLDS else 299)
    draw = np.random.default_rng(0)
    table = BinnedTable.of([bin_values(column, max_bin=16) for column in draw.random((2, 300))])
    labels, weights, of = draw.random(300), np.ones(300), recipe(SquaredError(), n_estimators=10, max_depth=3)
    before, (grown, _) = of.margins(table, labels, weights)[0], of.grow(table, labels, weights)
    for row in (0, 7, 299):
        others = labels.copy()
        others[row] += 5
        after, (again, _) = of.margins(table, others, weights)[0], of.grow(table, others, weights)
        assert after[row] == before[row]
        assert (after != before).any()
        assert table_scores(table, again, np.zeros(1))[0, row] > table_scores(table, grown, np.zeros(1))[0, row]
    assert np.corrcoef(before, table_scores(table, grown, np.zeros(1))[0])[0, 1] < 0.9
