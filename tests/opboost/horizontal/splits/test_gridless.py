"""Splits among all thresholds: gains of real splits, the loss between neighbours, and trees that hold no value."""

from __future__ import annotations

import math

import numpy as np
import pytest

from opboost import DPBoostRegressor, InPrivateRegressor
from opboost.errors import ParameterError
from opboost.horizontal.inprivate.settings import InPrivateSettings
from opboost.horizontal.inprivate.training import Owner, run_chain
from opboost.horizontal.rows.record_holder import Clipping, RecordHolder, squared_gradients
from opboost.horizontal.splits.exponential_splits import gain_range
from opboost.horizontal.splits.gridless import GridlessColumns, GridlessRule
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import seeded

pytestmark = pytest.mark.usefixtures("one_thread")

CLIPPING = Clipping(max_grad=1.0, max_hess=1.0)
COLUMNS = GridlessColumns([(0.0, 1.0), (-1.0, 1.0)], n_bits=4)


def rule_on(rows: np.ndarray, labels: np.ndarray) -> GridlessRule:
    """A rule at the root."""
    placed = COLUMNS.place(rows)
    holder = RecordHolder(
        placed.table,
        labels,
        gradients=squared_gradients,
        clipping=CLIPPING,
        initial_score=0.0,
        admit=lambda grad, hess: np.ones(len(labels), np.bool_),
    )
    holder.start_tree(0)
    mechanism = ExponentialMechanism(epsilon=1.0, utility_range=gain_range(1.0))
    return GridlessRule(
        placed=placed, grid=CLIPPING.grid, reg_lambda=0.5, mechanism=mechanism, holder=holder, rng=seeded(0)
    )


def gains_of_points(rule: GridlessRule, missing_left: bool = True) -> np.ndarray:
    """The gain of every point of every column, from the buckets."""
    return np.stack([np.repeat(each.utilities, each.widths) for each in rule.buckets(0, np.array([missing_left]))])


def table(n_rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = generator.uniform([0.0, -1.0], 1.0, (n_rows, 2))
    rows[generator.random((n_rows, 2)) < 0.1] = math.nan
    rows[0] = 7.0, -3.0  # out of bounds
    return rows, np.where(generator.random(n_rows) < 0.5, 1.0, -1.0)


@pytest.mark.parametrize("missing_left", [True, False])
def test_gains_are_those_of_the_real_splits_at_every_threshold(missing_left):
    rows, labels = table(40, 1)
    found = gains_of_points(rule_on(rows, labels), missing_left)
    for column, scale in enumerate(COLUMNS.scales):
        for point, threshold in enumerate(scale.thresholds(np.arange(16))):
            values = rows[:, column]
            left = np.where(np.isnan(values), missing_left, values <= threshold)
            expected = sum(labels[side].sum() ** 2 / (side.sum() + 0.5) for side in (left, ~left))
            assert found[column, point] == pytest.approx(expected)


def worst_loss(utility_range: float) -> float:
    worst = 0.0
    for seed in range(60):
        rows, labels = table(2 + seed % 9, seed)
        mechanism = ExponentialMechanism(epsilon=1.0, utility_range=utility_range)
        laws = [
            mechanism.log_probabilities(gains_of_points(rule_on(rows[:n], labels[:n])).reshape(1, -1))
            for n in (len(rows), len(rows) - 1)
        ]
        worst = max(worst, float(np.abs(laws[0] - laws[1]).max()))
    return worst


def test_one_record_changes_the_probability_of_no_threshold_by_more_than_epsilon():
    assert 0.1 < worst_loss(gain_range(1.0)) <= 1.0


def test_with_a_range_that_forgets_how_far_gains_fall_one_does():
    assert worst_loss(1.0) > 1.0


def test_every_point_is_a_candidate_whatever_the_data():
    for rows in (table(5, 0)[0], np.full((4, 2), math.nan), np.full((3, 2), 0.5)):
        rule = rule_on(rows, np.ones(len(rows)))
        assert [int(each.widths.sum()) for each in rule.buckets(0, np.array([True]))] == [16, 16]


def test_trees_hold_thresholds_of_the_public_scale_and_training_scores_are_those_of_the_model():
    rows, labels = table(120, 3)
    settings = {"bounds": (-1, 1), "label_bounds": (-1, 1), "n_estimators": 4, "scheme": "seq", "random_state": 0}
    model = DPBoostRegressor(**settings, epsilon=8.0, candidates="gridless").fit(rows, labels)
    steps = {float(-1 + k * 2.0**-14) for k in range(1 << 15)}
    chosen = [float(t) for tree in model.model_.trees for t in tree.thresholds[~tree.is_leaf]]
    assert set(chosen) <= steps
    assert not set(chosen) & set(rows[~np.isnan(rows)].tolist())
    assert model.guarantee_.epsilon <= 8.0
    # Without noise, plain greedy boosting on all rows lowers the error that trees in values have.
    exact = DPBoostRegressor(**settings, epsilon=math.inf, candidates="gridless", reg_lambda=0.1)
    near = exact.set_params(max_depth=4, n_estimators=30, max_grad=1.0).fit(rows, labels).predict(rows)
    assert np.mean((near - labels) ** 2) < 0.5 * np.var(labels)


def test_owners_pass_on_thresholds_and_place_their_own_rows_by_them():
    """What an owner learns of a tree is its points: scores after the chain are those of the published model."""
    rows, labels = table(60, 4)
    whose = np.arange(60) % 3
    settings = InPrivateSettings(n_rounds=2, max_depth=2, learning_rate=0.5, reg_lambda=1.0, noise_lambda=2.0)
    owners = [
        Owner(rows[whose == i], labels[whose == i], COLUMNS, settings, gradients=squared_gradients, rng=seeded(i))
        for i in range(3)
    ]
    trees = run_chain(owners, n_rounds=2, epsilon=3.0)
    for i, owner in enumerate(owners):
        scores = np.zeros((whose == i).sum())
        for tree in (COLUMNS.in_values(tree) for tree in trees):
            nodes = np.zeros(len(scores), np.int64)
            for _ in range(2):
                values = rows[whose == i][np.arange(len(scores)), tree.columns[nodes]]
                left = np.where(np.isnan(values), tree.missing_left[nodes], values <= tree.thresholds[nodes])
                nodes = np.where(left, tree.lefts[nodes], tree.rights[nodes])
            scores += tree.values[nodes]
        np.testing.assert_allclose(owner._holders.scores, scores)
    model = InPrivateRegressor(epsilon=3.0, bounds=(-1, 1), label_bounds=(-1, 1), candidates="gridless")
    assert model.fit(rows, labels).guarantee_.certified


def test_what_cannot_be_is_refused():
    with pytest.raises(ParameterError, match="1 to 15 bits"):
        GridlessColumns([(0.0, 1.0)], n_bits=16)
    with pytest.raises(ParameterError, match="grid or gridless"):
        DPBoostRegressor(epsilon=1.0, bounds=(0, 1), label_bounds=(0, 1), candidates="all").fit(*table(9, 0))
