"""The recommended recipe: what one record moves, what is drawn, what it costs, and what does not depend on records."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from opboost import DPBoostingClassifier, DPBoostingRegressor
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.recommended import training
from opboost.horizontal.recommended.first_releases import (
    NumberRange,
    first_score_of_numbers,
    first_scores_of_classes,
    number_range,
)
from opboost.horizontal.recommended.plan import TrainingPlan, tree_sizes
from opboost.horizontal.recommended.tree_training import logistic_of_one
from opboost.horizontal.rows.joint_rows import SOFTMAX_NORM, JointRows, softmax_gradients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.record_holder import Clipping
from opboost.horizontal.splits import noisy_cells
from opboost.horizontal.splits.noisy_cells import counts_sensitivity, noisy_counts
from opboost.privacy.accounting import by_gaussian, total_mu
from opboost.privacy.additive import RoundedGaussian
from opboost.privacy.releases import gaussian
from opboost.rng import seeded
from opboost.trees.losses import Softmax

pytestmark = pytest.mark.usefixtures("one_thread")

GRID = PublicGrid([(0.0, 1.0)] * 3, 8)
DELTA = 1e-6


def table(n_rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, 4 * X[:, 0] - 3 * X[:, 1] ** 2 + 0.3 * generator.standard_normal(n_rows)


@pytest.mark.parametrize("n_classes", [3, 4])
def test_the_gradients_of_all_classes_have_the_norm_of_the_account_together(n_classes: int) -> None:
    """All corners, edges and inner points of a grid of scores; the Hessians add nothing, and no less would do."""
    scores = np.array(list(itertools.product((-30.0, -1.0, 0.0, 0.7, 5.0, 30.0), repeat=n_classes))).T
    norms = []
    for own in range(n_classes):
        labels = np.zeros_like(scores)
        labels[own] = 1.0
        grad, hess = softmax_gradients(scores, labels)
        norms.append(np.sqrt((grad**2 + hess**2).sum(axis=0)))
    assert np.max(norms) <= SOFTMAX_NORM * (1 + 1e-15)
    assert np.max(norms) > 0.9999 * SOFTMAX_NORM


@pytest.mark.parametrize("n_outputs", [1, 3, 26])
def test_a_record_moves_the_sums_of_a_tree_by_the_sensitivity_at_most(n_outputs: int) -> None:
    """What a single record adds, as integers, over scores that make it as wrong as can be."""
    clipping = Clipping(max_grad=1.0, max_hess=0.25, ratio=1.0)
    found = []
    for score in (-40.0, -1.0, 0.0, 1.0, 40.0):
        labels = np.zeros((n_outputs, 1))
        labels[0] = 1.0
        gradients = softmax_gradients if n_outputs > 1 else logistic_of_one
        scores = np.full(n_outputs, -40.0)
        scores[-1] = score
        table = GRID.place(np.full((1, 3), 0.5))
        rows = JointRows(table, labels, gradients=gradients, clipping=clipping, initial_scores=scores)
        rows.start_tree(0)
        totals = rows.totals(np.array([0], np.int32)).astype(float)
        assert totals.shape == (n_outputs, 2)
        found.append(math.hypot(*(totals[:, 0] / clipping.grid.grad_scale), *(totals[:, 1] / clipping.grid.hess_scale)))
    bound = SOFTMAX_NORM if n_outputs > 1 else 1.0
    assert 0.99 * bound < max(found) <= bound
    assert not max(found) <= 0.7 * bound


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("has_numbers", "counted"), [(True, 3.0), (False, 3.0), (False, 0.0)])
def test_however_many_trees_there_are_the_budget_is_spent_and_not_exceeded(epsilon, has_numbers, counted):
    plan = TrainingPlan.for_budget(epsilon, DELTA, has_numbers=has_numbers, counted=counted)
    for n_trees in (1, 2, 30, 600):
        spent = by_gaussian(plan.releases(1.3, n_trees), DELTA)
        assert 0.9999 * epsilon < spent <= epsilon
        assert total_mu(plan.releases(1.3, n_trees)) <= plan.mu * (1 + 1e-9)
    assert plan.releases(1.3, 0) == plan.releases(1.3, 5)[:-1]
    one_more = (*plan.releases(1.3, 30), plan.releases(1.3, 30)[-1])
    assert by_gaussian(one_more, DELTA) > epsilon


def test_without_noise_there_are_no_releases() -> None:
    plan = TrainingPlan.for_budget(math.inf, DELTA, has_numbers=True, counted=1.0)
    assert plan.releases(1.0, 30) == ()
    assert plan.sums_std(1.0, 30) == plan.cells_std == plan.labels_std == plan.score_std == 0.0


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Deviations of all noise that is drawn, in steps, and how many numbers."""
    found: list[tuple[float, int]] = []
    draw = RoundedGaussian.draw

    def noted(self: RoundedGaussian, count: int, **others: Any) -> Any:
        found.append((self.std, count))
        return draw(self, count, **others)

    monkeypatch.setattr(RoundedGaussian, "draw", noted)
    return found


@pytest.mark.parametrize("n_classes", [0, 2, 4])
def test_the_noise_that_is_drawn_is_that_of_the_account(n_classes: int, draws: list[tuple[float, int]]) -> None:
    """Every draw, its deviation and how many numbers there are; nothing else is drawn."""
    X, y = table(400)
    common: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "bounds": (0, 1), "n_estimators": 3, "max_depth": 2}
    plan = TrainingPlan.for_budget(1.0, DELTA, has_numbers=n_classes == 0, counted=counts_sensitivity(3))
    steps = [(plan.score_std, 2**20, 2)]
    if n_classes:
        model = DPBoostingClassifier(classes=range(n_classes), **common).fit(X, (n_classes * X[:, 0]).astype(int))
        steps = [(plan.score_std, 2**16, n_classes)]
        bound = leaf_clipping(0.7, 2.0, is_classification=True).sensitivity
        assert bound == pytest.approx(math.hypot(0.7, 0.21 / 2), rel=1e-3)
        ratio, norm = (2.0, bound) if n_classes == 2 else (1.0, SOFTMAX_NORM)
        scales = (2.0**22, 2.0**19)
    else:
        model = DPBoostingRegressor(label_bounds=(-4, 5), **common).fit(X, y)
        steps = [(plan.labels_std, 2**16, 16)] * 2 + steps
    steps += [(plan.cells_std, 2**16, 48)] * 3
    assert [count for _, count in draws] == [count for *_, count in steps] + [
        4 * max(n_classes - (n_classes == 2), 1)
    ] * 6
    for (drawn, _), (std, scale, _) in zip(draws, steps, strict=False):
        assert drawn == pytest.approx(std * scale)
    if n_classes:
        std = plan.sums_std(norm, 3)
        for number, (drawn, _) in enumerate(draws[-6:]):
            scale = scales[number % 2] * (ratio if number % 2 else 1.0)
            assert drawn / scale == pytest.approx(std, rel=1e-3)
    assert model.guarantee_.certified
    assert 0.9999 < model.guarantee_.epsilon <= 1.0


def test_first_trees_of_many_columns_are_paid_for(draws: list[tuple[float, int]]) -> None:
    """All noise of trees that is drawn costs what the account has; a tree more would not be paid for."""
    X = np.random.default_rng(0).random((1500, 60))
    model = DPBoostingClassifier(epsilon=1.0, delta=DELTA, bounds=(0, 1), n_estimators=4, max_depth=2, random_state=0)
    model.fit(X, X[:, 0] > 0.5)
    assert len(model.model_.trees) == 64
    plan = TrainingPlan.for_budget(1.0, DELTA, has_numbers=False, counted=counts_sensitivity(60)).screening(
        60, 1e9, is_of_two=True
    )
    norm = leaf_clipping(0.7, 2.0, is_classification=True).sensitivity
    stds = [std / 2.0**22 for std, _ in draws[4::2]]
    assert stds == pytest.approx([plan.screen_std(norm)] * 60 + [plan.sums_std(norm, 4)] * 4)
    spent = [(1.0, plan.score_std), (plan.counted, plan.cells_std), *((norm, std) for std in stds)]
    assert by_gaussian([gaussian(*each) for each in spent], DELTA) == pytest.approx(model.guarantee_.epsilon)
    assert 0.9999 < model.guarantee_.epsilon <= 1.0
    assert by_gaussian([gaussian(*each) for each in (*spent, spent[-1])], DELTA) > 1.0


@pytest.mark.parametrize(("n_columns", "n_records"), [(3, 1e6), (40, 1e6), (41, 1e6), (200, 1e6), (200, 100.0)])
def test_first_trees_of_many_columns_and_all_others_spend_the_budget(n_columns: int, n_records: float) -> None:
    plan = TrainingPlan.for_budget(0.5, DELTA, has_numbers=False, counted=1.0).screening(
        n_columns, n_records, is_of_two=True
    )
    assert (plan.n_screened > 0) == (n_columns > 40 and n_records > 100)
    assert total_mu(plan.releases(1.3, 50)) == pytest.approx(plan.mu, rel=1e-6)


def test_columns_of_noise_cost_little() -> None:
    X, y = table(6000)
    wide = np.column_stack([X, np.random.default_rng(1).random((6000, 60))])
    alone, among = (
        DPBoostingClassifier(epsilon=1.0, delta=1e-4, bounds=(0, 1), random_state=0)
        .fit(rows[:5000], y[:5000] > 1)
        .predict_proba(rows[5000:])[:, 1]
        for rows in (X, wide)
    )
    assert roc_auc_score(y[5000:] > 1, among) > roc_auc_score(y[5000:] > 1, alone) - 0.04


def test_one_record_is_in_one_count_of_a_column_and_round() -> None:
    grid = PublicGrid([(0.0, 1.0), (-1.0, 1.0)], noisy_cells.N_COUNTED)
    before = np.array([[0.3, 0.1]])
    moved = [
        np.abs(
            noisy_counts(grid, np.vstack([before, record]), std=0.0, rng=seeded(0))
            - noisy_counts(grid, before, std=0.0, rng=seeded(0))
        ).sum(axis=1)
        for record in itertools.product((-9.0, 0.0, 0.4, 1.0, math.nan), repeat=2)
    ]
    assert np.max(moved) == 1
    assert counts_sensitivity(2) == pytest.approx(math.sqrt(2 * noisy_cells.N_ROUNDS))


def views(monkeypatch: pytest.MonkeyPatch, count: Any, draws: list[tuple[float, int]]) -> set[str]:
    """What is public of a training on all tables of one and two records, if their noisy number is `count`."""
    real = training.first_scores_of_classes

    def counted(labels: np.ndarray, **others: Any) -> Any:
        return real(labels, **others)[0], count(labels)

    monkeypatch.setattr(training, "first_scores_of_classes", counted)
    found = set()
    records = list(itertools.product((0.2, 7.0, math.nan), (0, 1, 2)))
    for some in [[each] for each in records] + list(itertools.combinations(records, 2)):
        draws.clear()
        X, y = np.array([[x] for x, _ in some]), np.array([label for _, label in some])
        model = DPBoostingClassifier(
            epsilon=1e4, delta=DELTA, bounds=(0, 1), classes=(0, 1, 2), n_estimators=None, random_state=0
        ).fit(X, y)
        found.add(repr((draws, len(model.model_.trees), model.model_.trees[0].depth, model.guarantee_)))
    return found


def test_sizes_noise_and_promise_follow_the_released_count_alone(monkeypatch, draws):
    monkeypatch.setattr("opboost.horizontal.recommended.plan._TREES", (2, 600))
    assert len(views(monkeypatch, lambda labels: 2.0, draws)) == 1


def test_sizes_from_the_true_count_would_tell_it(monkeypatch, draws):
    """The broken twin."""
    monkeypatch.setattr("opboost.horizontal.recommended.plan._TREES", (2, 600))
    assert len(views(monkeypatch, lambda labels: float(labels.shape[1]), draws)) == 2


def test_sizes_grow_with_what_stands_out_of_the_noise() -> None:
    found = [tree_sizes(n, 0.1, 1) for n in (1, 1e3, 1e4, 1e5, 1e9)]
    assert found == sorted(found)
    assert found[0] == (30, 2)
    assert found[-1] == (600, 6)
    assert tree_sizes(1e5, 0.1, 26) < tree_sizes(1e5, 0.1, 1)
    assert tree_sizes(5000, math.inf, 1) == (600, 6)


def test_first_scores_are_means_and_shares_with_their_count() -> None:
    labels = np.array([1.0, -1.0, 0.5, 0.5])
    scores, n_records = first_score_of_numbers(labels, std=0.0, rng=seeded(0))
    assert scores == pytest.approx([0.25], abs=1e-5)
    assert n_records == pytest.approx(4.0)
    classes = np.repeat(np.eye(3), [1, 2, 5], axis=1)
    scores, n_records = first_scores_of_classes(classes, std=0.0, rng=seeded(0))
    assert np.exp(scores) == pytest.approx([1 / 8, 2 / 8, 5 / 8])
    assert n_records == 8.0
    scores, _ = first_scores_of_classes(classes[:2], std=0.0, rng=seeded(0))
    assert scores == pytest.approx([math.log(2)])


@pytest.mark.parametrize("width", [1, 10, 100])
def test_the_range_of_most_numbers_is_found_between_bounds_that_are_far_too_wide(width: float) -> None:
    labels = np.random.default_rng(0).normal(0.3, 0.2, 5000)
    plan = TrainingPlan.for_budget(1.0, DELTA, has_numbers=True, counted=1.0)
    found = number_range(labels, (-width, width), mu=plan.mu, std=plan.labels_std, rng=seeded(1))
    assert found.lower < 0 < 0.6 < found.upper
    assert found.upper - found.lower <= max(2.0, width)


def test_few_numbers_leave_their_bounds_after_a_single_round(draws: list[tuple[float, int]]) -> None:
    """The same labels: 2.5 deviations of the noise tell nothing, 20 do."""
    labels = np.random.default_rng(0).normal(0.3, 0.1, 1000)
    found = [number_range(labels, (-4, 4), mu=0.1, std=std, rng=seeded(1)) for std in (400.0, 50.0)]
    assert found[0] == NumberRange(-4, 4, 0.3)
    assert found[1].upper - found[1].lower <= 4
    assert draws == [(400.0 * 2**16, 16), (50.0 * 2**16, 16), (50.0 * 2**16, 16)]


def test_no_numbers_and_no_records_leave_a_range() -> None:
    found = number_range(np.empty(0), (0.0, 2.0), mu=0.1, std=5.0, rng=seeded(0))
    assert 0.0 <= found.lower < found.upper <= 2.0
    assert found.deviation >= 0


def fitted_score(X: np.ndarray, y: np.ndarray, bounds: Any, label_bounds: Any, epsilon: float = 1.0) -> float:
    model = DPBoostingRegressor(
        epsilon=epsilon, delta=1 / len(y), bounds=bounds, label_bounds=label_bounds, random_state=0
    )
    half = len(y) // 2
    return float(model.fit(X[:half], y[:half]).score(X[half:], y[half:]))


def test_bounds_that_are_far_too_wide_cost_little() -> None:
    X, y = table(8000)
    exact = fitted_score(X, y, (0, 1), (-4, 5))
    assert exact > 0.8
    assert fitted_score(X, y, (0, 1000), (-4, 5)) > exact - 0.05
    assert fitted_score(X, y, (0, 1), (-45, 45)) > exact - 0.1


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_few_rows_are_no_worse_than_a_constant(epsilon: float) -> None:
    X, y = table(1000)
    assert fitted_score(X, y, (0, 1), (-4, 5), epsilon) > -0.02


def test_several_classes_share_structure_and_one_model() -> None:
    X, _ = table(6000)
    y = (5 * X[:, 0]).astype(int)
    model = DPBoostingClassifier(epsilon=1.0, delta=1e-4, bounds=(0, 1), classes=range(5), random_state=0)
    assert model.fit(X[:3000], y[:3000]).score(X[3000:], y[3000:]) > 0.7
    assert model.model_.loss == Softmax(5)
    first, second = model.model_.trees[:2]
    np.testing.assert_array_equal(first.thresholds, second.thresholds)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
