"""The recommended recipe: what one record moves, what is drawn, what it costs, and what does not depend on records."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from opboost import DPBoostingClassifier, DPBoostingRegressor
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.recommended import training
from opboost.horizontal.recommended.first_releases import NumberRange, number_range
from opboost.horizontal.recommended.plan import TrainingPlan
from opboost.horizontal.rows.joint_rows import SOFTMAX_NORM
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.splits import noisy_cells
from opboost.horizontal.splits.noisy_cells import counts_sensitivity, noisy_counts
from opboost.privacy.accounting import by_gaussian
from opboost.privacy.additive import RoundedGaussian
from opboost.privacy.releases import gaussian
from opboost.rng import seeded
from opboost.trees.losses import Softmax

pytestmark = pytest.mark.usefixtures("one_thread")


DELTA = 1e-6


def table(n_rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.random((n_rows, 3))
    return X, 4 * X[:, 0] - 3 * X[:, 1] ** 2 + 0.3 * generator.standard_normal(n_rows)


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


@pytest.mark.parametrize(("n_classes", "n_rows"), [(0, 2000), (2, 2000), (4, 2000), (4, 300)])
def test_the_noise_that_is_drawn_is_that_of_the_account(
    n_classes: int, n_rows: int, draws: list[tuple[float, int]]
) -> None:
    """Every draw, its deviation and how many numbers there are; nothing else is drawn."""
    X, y = table(n_rows)
    common: dict[str, Any] = {"epsilon": 1.0, "delta": DELTA, "bounds": (0, 1), "n_estimators": 3, "max_depth": 2}
    plan = TrainingPlan.for_budget(1.0, DELTA, n_classes=n_classes, cells_l2=counts_sensitivity(3)).for_records(
        n_rows, 3
    )
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
    stages = plan.stages(norm if n_classes else 1.0, 3)
    assert [stage.kind for stage in stages] == ["counts"] * (n_rows == 300) + ["sums"]
    steps += [(stages[0].std, 2**22, 8 * n_classes)] * plan.n_counted
    assert [count for _, count in draws] == [count for *_, count in steps] + [
        4 * max(n_classes - (n_classes == 2), 1)
    ] * 6
    for (drawn, _), (std, scale, _) in zip(draws, steps, strict=False):
        assert drawn == pytest.approx(std * scale)
    if n_classes:
        std = stages[-1].std
        for number, (drawn, _) in enumerate(draws[-6:]):
            scale = scales[number % 2] * (ratio if number % 2 else 1.0)
            assert drawn / scale == pytest.approx(std, rel=1e-3)
    assert model.guarantee_.certified
    assert 0.9999 < model.guarantee_.epsilon <= 1.0


def test_a_screen_of_many_columns_is_paid_for_and_no_step_of_the_model(draws: list[tuple[float, int]]) -> None:
    """All noise that is drawn costs what the account has; a tree more would not be paid for."""
    X = np.random.default_rng(0).random((1500, 60))
    model = DPBoostingClassifier(epsilon=1.0, delta=DELTA, bounds=(0, 1), n_estimators=4, max_depth=2, random_state=0)
    model.fit(X, X[:, 0] > 0.5)
    assert len(model.model_.trees) == 4
    columns = {int(column) for tree in model.model_.trees for column in tree.columns} - {-1}
    assert 0 in columns
    assert len(columns) <= 4
    plan = TrainingPlan.for_budget(1.0, DELTA, n_classes=2, cells_l2=counts_sensitivity(60))
    plan = plan.for_records(model._n_records, 60)
    norm = leaf_clipping(0.7, 2.0, is_classification=True).sensitivity
    stds = [std / 2.0**22 for std, _ in draws[5::2]]
    screen, (sums,) = plan.screen(norm), plan.stages(norm, 4)
    assert stds == pytest.approx([sums.std] * 4)
    assert draws[4] == (pytest.approx(screen.std * screen.steps), 60)
    screened = screen.l2, draws[4][0] / screen.steps
    spent = [(1.0, plan.score_std), (plan.cells_l2, plan.cells_std), screened, *((norm, std) for std in stds)]
    assert by_gaussian([gaussian(*each) for each in spent], DELTA) == pytest.approx(model.guarantee_.epsilon)
    assert 0.9999 < model.guarantee_.epsilon <= 1.0
    assert by_gaussian([gaussian(*each) for each in (*spent, spent[-1])], DELTA) > 1.0


def test_counts_of_classes_come_before_boosting_and_tell_ten_digits_apart() -> None:
    X, y = load_digits(return_X_y=True)
    model = DPBoostingClassifier(epsilon=1.0, delta=1e-3, bounds=(0, 16), classes=range(10), random_state=0)
    assert model.fit(X[:1300], y[:1300]).score(X[1300:], y[1300:]) > 0.6
    few = DPBoostingClassifier(epsilon=1.0, delta=1e-3, bounds=(0, 16), classes=range(10), n_estimators=0)
    assert len(few.fit(X, y).model_.trees) == 0
    assert few.guarantee_.certified


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
            noisy_counts(grid, np.vstack([before, record]), noise=None, rng=seeded(0))
            - noisy_counts(grid, before, noise=None, rng=seeded(0))
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
    monkeypatch.setattr("opboost.horizontal.recommended.tree_sizes._TREES", dict.fromkeys((True, False), (25, 2, 600)))
    assert len(views(monkeypatch, lambda labels: 2.0, draws)) == 1


def test_sizes_from_the_true_count_would_tell_it(monkeypatch, draws):
    """The broken twin."""
    monkeypatch.setattr("opboost.horizontal.recommended.tree_sizes._TREES", dict.fromkeys((True, False), (25, 2, 600)))
    assert len(views(monkeypatch, lambda labels: float(labels.shape[1]), draws)) == 2


def test_few_numbers_leave_their_bounds_after_a_single_round(draws: list[tuple[float, int]]) -> None:
    """The same labels: 2.5 deviations of the noise tell nothing, 20 do."""
    labels = np.random.default_rng(0).normal(0.3, 0.1, 1000)
    found = [number_range(labels, (-4, 4), mu=0.1, std=std, rng=seeded(1)) for std in (400.0, 50.0)]
    assert found[0] == NumberRange(-4, 4, 0.3, found[0].balance)
    assert found[1].upper - found[1].lower <= 4
    assert draws == [(400.0 * 2**16, 16), (50.0 * 2**16, 16), (50.0 * 2**16, 16)]


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
