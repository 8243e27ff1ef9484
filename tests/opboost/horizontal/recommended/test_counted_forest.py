"""Random trees with noisy counts of classes: what one record moves, what is drawn, what it costs, what it is worth."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from opboost import DPBoostingClassifier, DPBoostingRegressor
from opboost.errors import ParameterError
from opboost.horizontal.recommended import counted_forest, counted_trees
from opboost.horizontal.recommended.counted_forest import cells_epsilon, forest_sizes, train_forest
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.privacy.accounting import by_pure
from opboost.privacy.additive import DiscreteLaplace
from opboost.rng import seeded
from opboost.trees.losses import Logistic, Softmax

pytestmark = pytest.mark.usefixtures("one_thread")

GRID = PublicGrid([(0.0, 1.0), (-1.0, 1.0)], 16)


@pytest.fixture
def draws(monkeypatch: pytest.MonkeyPatch) -> list[tuple[float, int]]:
    """Scales of all noise that is drawn, in steps, and how many numbers."""
    found: list[tuple[float, int]] = []
    draw = DiscreteLaplace.draw

    def noted(self: DiscreteLaplace, count: int, **others: Any) -> Any:
        found.append((self.scale, count))
        return draw(self, count, **others)

    monkeypatch.setattr(DiscreteLaplace, "draw", noted)
    return found


def one_hot(labels: np.ndarray, n_classes: int) -> np.ndarray:
    return (labels == np.arange(n_classes)[:, None]).astype(float)


def counts_of(rows: np.ndarray, labels: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """Every tree's counts before their noise; cuts do not depend on the records."""
    found = []

    def noted(counts: np.ndarray, *others: Any) -> np.ndarray:
        found.append(counts)
        return counts

    with monkeypatch.context() as patch:
        patch.setattr(counted_trees, "evidence_of", noted)
        patch.setattr(counted_forest, "cells_epsilon", lambda *_: 0.0)
        train_forest(GRID, rows, one_hot(labels, 3), epsilon=math.inf, sizes=GivenSizes(3, 4), rng=seeded(1))
    return found


@pytest.mark.parametrize("record", list(itertools.product((-9.0, 0.3, math.nan), (0.1, 7.0, math.nan))))
@pytest.mark.parametrize("label", [0, 2])
def test_one_record_adds_one_to_one_count_of_a_tree(
    record: tuple[float, float], label: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(0)
    rows, labels = draw.uniform(-1, 1, (30, 2)), draw.integers(0, 3, 30)
    before = counts_of(rows, labels, monkeypatch)
    after = counts_of(np.vstack([rows, record]), np.append(labels, label), monkeypatch)
    for old, new in zip(before, after, strict=True):
        assert old.sum() == 30
        assert sorted((new - old).ravel())[-2:] == [0, 1]
        assert np.abs(new - old).sum() == 1


@pytest.mark.parametrize(("n_classes", "n_rows"), [(2, 40_000), (5, 300)])
def test_the_noise_that_is_drawn_is_that_of_the_account(
    n_classes: int, n_rows: int, draws: list[tuple[float, int]]
) -> None:
    """Every draw; a record is in one of the counts of each, but of cells in one per column and round."""
    X = np.random.default_rng(0).random((n_rows, 3))
    y = (n_classes * X[:, 0]).astype(int)
    model = DPBoostingClassifier(
        epsilon=1.0, delta=0.0, bounds=(0, 1), classes=range(n_classes), n_estimators=4, max_depth=2
    ).fit(X, y)
    has_cells = n_rows > 10_000
    assert [count for _, count in draws] == [n_classes] + [48] * 3 * has_cells + [4 * n_classes] * 4
    first, *of_trees = [
        Fraction(steps) / Fraction(scale) for (scale, _), steps in zip(draws, steps_of(draws), strict=True)
    ]
    assert float(first) == pytest.approx(0.05 if n_classes == 2 else 0.1)
    if has_cells:
        assert float(sum(of_trees[:3])) == pytest.approx(0.1)
    spent = first + sum(of_trees)
    assert 0.99999 < spent <= 1
    assert model.guarantee_.certified
    assert float(spent) <= model.guarantee_.epsilon <= 1.0
    assert model.guarantee_.delta == 0
    assert model.guarantee_.account == "pure composition"


def steps_of(draws: list[tuple[float, int]]) -> list[int]:
    """What one record moves, in steps: of a class's count, of the cells of three columns, of a tree's counts."""
    of_tree = int(counted_forest._counting(0.2).grid.grad_scale)
    return [2**8] + [3 * 2**16 if count == 48 else of_tree for _, count in draws[1:]]


def views(monkeypatch: pytest.MonkeyPatch, counts: Any, draws: list[tuple[float, int]]) -> set[str]:
    """What is public of a training on all tables of one and two records, if their noisy counts are `counts`."""
    found = set()
    monkeypatch.setattr(counted_forest, "_class_counts", lambda labels, *_: counts(labels))
    records = list(itertools.product((0.2, 7.0, math.nan), (0, 1, 2)))
    for some in [[each] for each in records] + list(itertools.combinations(records, 2)):
        draws.clear()
        X, y = np.array([[x] for x, _ in some]), np.array([label for _, label in some])
        model = DPBoostingClassifier(epsilon=100.0, delta=0.0, bounds=(0, 1), classes=(0, 1, 2), random_state=0)
        tree = model.fit(X, y).model_.trees[0]
        found.add(repr((draws, len(model.model_.trees), tree.depth, model.guarantee_)))
    return found


def test_sizes_noise_and_promise_follow_the_released_counts_alone(monkeypatch, draws):
    monkeypatch.setattr(counted_forest, "_TREES", (2, 40))
    assert len(views(monkeypatch, lambda labels: np.array([1.0, 0.5, 0.2]), draws)) == 1


def test_sizes_from_the_true_counts_would_tell_them(monkeypatch, draws):
    """The broken twin."""
    monkeypatch.setattr(counted_forest, "_TREES", (2, 40))
    assert len(views(monkeypatch, lambda labels: labels.sum(axis=1), draws)) == 2


def promises(n_trees: int, counts: list[float], monkeypatch: pytest.MonkeyPatch) -> float:
    """The promise of a fit, if these are the noisy counts of the classes."""
    monkeypatch.setattr(counted_forest, "_class_counts", lambda *_: np.array(counts))
    model = DPBoostingClassifier(epsilon=1.0, delta=0.0, bounds=(0, 1), n_estimators=n_trees, max_depth=1)
    return float(model.fit([[0.2], [0.7]], [0, 1]).guarantee_.epsilon)


NOISY_COUNTS = [[0.0, 0.0], [400.0, 20.0], [5000.0, 1e6]]


@pytest.mark.parametrize(("n_trees", "promised"), [(0, 0.05), (1, 1.0), (3, 1.0)])
def test_the_promise_does_not_follow_from_noisy_counts(n_trees, promised, monkeypatch):
    for counts in NOISY_COUNTS:
        assert promises(n_trees, counts, monkeypatch) == pytest.approx(promised)


def test_cells_that_are_counted_for_no_tree_would_make_the_promise_follow_from_noisy_counts(monkeypatch):
    """The broken twin: some noisy counts lead to a release that others do not, and no tree makes up for it."""
    spent = [0.05 + cells_epsilon(GRID, sum(counts), 1.0) for counts in NOISY_COUNTS]
    assert len(set(spent)) == 2


def test_sizes_grow_with_records_and_budget() -> None:
    assert forest_sizes(0.0, 1.0, 2) == (5, 3)
    assert forest_sizes(1347.0, 1.0, 10) == (12, 7)
    assert forest_sizes(16_000.0, 0.5, 26) == (18, 11)
    assert forest_sizes(1e9, math.inf, 2) == (40, 12)


def test_cells_are_counted_where_noise_leaves_something_of_them() -> None:
    assert cells_epsilon(GRID, 40_000, 1.0) == pytest.approx(0.1)
    assert cells_epsilon(GRID, 100, 1.0) == 0.0
    assert cells_epsilon(GRID, 100, math.inf) > 0
    assert cells_epsilon(PublicGrid([(0, 3)], 16, categorical=(0,)), 40_000, 1.0) == 0.0


def test_ten_digits_are_told_apart_without_a_delta() -> None:
    X, y = load_digits(return_X_y=True)
    model = DPBoostingClassifier(epsilon=4.0, delta=0.0, bounds=(0, 16), classes=range(10), random_state=0)
    assert model.fit(X[:1300], y[:1300]).score(X[1300:], y[1300:]) > 0.75
    assert model.model_.loss == Softmax(10)
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)


@pytest.mark.parametrize("bounds", [(0, 1), (0, 1000)])
def test_two_classes_have_one_output_and_wide_bounds_cost_little(bounds: tuple[float, float]) -> None:
    draw = np.random.default_rng(0)
    X = draw.random((20_000, 3))
    y = X[:, 0] - X[:, 1] ** 2 + 0.1 * draw.standard_normal(20_000) > 0.2
    model = DPBoostingClassifier(epsilon=1.0, delta=0.0, bounds=bounds, random_state=0).fit(X[:10_000], y[:10_000])
    assert model.model_.loss == Logistic()
    assert roc_auc_score(y[10_000:], model.predict_proba(X[10_000:])[:, 1]) > 0.93


def test_without_noise_nothing_is_promised(draws: list[tuple[float, int]]) -> None:
    X = np.random.default_rng(0).random((500, 2))
    model = DPBoostingClassifier(epsilon=math.inf, delta=0.0, bounds=(0, 1)).fit(X, X[:, 0] > 0.5)
    assert draws == []
    assert (model.guarantee_.epsilon, model.guarantee_.account) == (math.inf, "no noise")
    labels = one_hot(X[:, 0] > 0.5, 2)
    assert train_forest(GRID, X, labels, epsilon=math.inf, sizes=GivenSizes(2, 2), rng=seeded(0)).releases == ()


def test_releases_are_no_more_than_the_budget_however_small_or_large_it_is() -> None:
    X = np.random.default_rng(0).random((500, 2))
    for epsilon in (1e-7, 1e-3, 0.1, 1.0, 30.0, 700.0):
        for n_trees in (0, 1, 7, 1000):
            done = train_forest(
                GRID, X, one_hot(X[:, 0] > 0.5, 2), epsilon=epsilon, sizes=GivenSizes(n_trees, 1), rng=seeded(0)
            )
            assert by_pure(done.releases) <= epsilon


@pytest.mark.parametrize("delta", [-0.1, 1.0, math.nan, None, "0"])
def test_a_delta_that_is_none_is_refused(delta: Any) -> None:
    X = np.random.default_rng(0).random((50, 2))
    with pytest.raises(ParameterError, match="delta must lie strictly between 0 and 1"):
        DPBoostingClassifier(epsilon=1.0, delta=delta, bounds=(0, 1)).fit(X, X[:, 0] > 0.5)


def test_numbers_without_a_delta_are_for_another_estimator() -> None:
    X = np.random.default_rng(0).random((50, 2))
    with pytest.raises(ParameterError, match="DPBoostRegressor is purely private"):
        DPBoostingRegressor(epsilon=1.0, delta=0.0, bounds=(0, 1), label_bounds=(0, 1)).fit(X, X[:, 0])
