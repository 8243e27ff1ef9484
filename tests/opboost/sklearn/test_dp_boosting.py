"""The recommended estimators: what released counts tell of bounds and budget, and records that arrive later."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.metrics import log_loss

from opboost import DPBoostingClassifier, DPBoostingRegressor
from opboost.errors import OpBoostError
from opboost.metrics import rmse

DRAW = np.random.default_rng(0)
X = DRAW.random((4000, 2))
Y = X[:, 0] + 0.1 * DRAW.standard_normal(4000)


def test_bounds_that_are_far_too_wide_are_named() -> None:
    model = DPBoostingRegressor(epsilon=1.0, delta=1e-4, bounds=([0, 0], [1, 1000]), label_bounds=(-20, 20))
    model.set_params(random_state=0).fit(X, Y)
    columns, labels = model.remarks_
    assert "'x1'" in columns
    assert "label_bounds" in labels
    model.set_params(bounds=(0, 1), label_bounds=(-0.2, 1.2)).fit(X, Y)
    assert model.remarks_ == ()


@pytest.mark.parametrize(("n_rows", "n_remarks"), [(4000, 0), (100, 1)])
def test_a_budget_that_is_too_small_is_named(n_rows: int, n_remarks: int) -> None:
    model = DPBoostingClassifier(epsilon=0.5, delta=1e-4, bounds=(0, 1), random_state=0)
    model.fit(X[:n_rows], Y[:n_rows] > 0.5)
    assert len(model.remarks_) == n_remarks
    assert all("the budget is small" in one for one in model.remarks_)


KINDS: dict[str, tuple[Any, Any]] = {
    "numbers": (DPBoostingRegressor(label_bounds=(-1, 2)), Y),
    "two": (DPBoostingClassifier(), (Y > 0.5).astype(int)),
    "three": (DPBoostingClassifier(classes=range(3)), np.digitize(Y, [0.3, 0.6])),
    "forest": (DPBoostingClassifier(delta=0.0), (Y > 0.5).astype(int)),
}


def error(model: Any, y: Any) -> float:
    """Of records that arrive at the end."""
    if isinstance(model, DPBoostingRegressor):
        return rmse(y[2000:], model.predict(X[2000:]))
    return log_loss(y[2000:], model.predict_proba(X[2000:]))


@pytest.mark.parametrize("kind", KINDS)
def test_records_that_arrive_later_make_the_model_better(kind: str) -> None:
    estimator, y = KINDS[kind]
    model = clone(estimator).set_params(epsilon=2.0, bounds=(0, 1), random_state=0)
    model.partial_fit(X[:300], y[:300])
    first, before, promise = model.model_, error(model, y), model.guarantee_
    model.partial_fit(X[300:2000], y[300:2000])
    assert error(model, y) < before - 0.004
    assert model.guarantee_.epsilon == pytest.approx(promise.epsilon)
    again = clone(model).partial_fit(X[:300], y[:300])
    assert [tree.values.tolist() for tree in again.model_.trees] == [tree.values.tolist() for tree in first.trees]


def test_few_new_records_count_little_and_noise_is_never_drawn_twice() -> None:
    model = DPBoostingClassifier(epsilon=2.0, delta=1e-4, bounds=(0, 1), random_state=0).fit(X, Y > 0.5)
    n_trees = len(model.model_.trees)
    model.partial_fit(X[:40], Y[:40] > 0.5)
    first, later = model.model_.trees[:n_trees], model.model_.trees[n_trees:]
    assert max(abs(tree.values).max() for tree in later) < 0.05 * max(abs(tree.values).max() for tree in first)
    before = len(model.model_.trees)
    model.partial_fit(X[:40], Y[:40] > 0.5)
    for one, other in zip(later, model.model_.trees[before:], strict=False):
        assert one.values.tolist() != other.values.tolist()


def test_a_guarantee_for_several_trainings_is_the_weakest_of_them() -> None:
    model = DPBoostingClassifier(epsilon=2.0, delta=1e-4, bounds=(0, 1)).fit(X[:500], Y[:500] > 0.5)
    assert model.guarantee_.certified
    model.set_params(epsilon=1.0, delta=1e-6).partial_fit(X[500:1000], Y[500:1000] > 0.5)
    assert model.guarantee_.epsilon == pytest.approx(2.0, rel=1e-6)
    assert model.guarantee_.delta == 1e-4
    model.set_params(bounds="from_data").partial_fit(X[1000:1500], Y[1000:1500] > 0.5)
    assert not model.guarantee_.certified
    model.set_params(bounds=(0, 1), epsilon=math.inf).partial_fit(X[1500:2000], Y[1500:2000] > 0.5)
    assert model.guarantee_.notion == "none"


@pytest.mark.parametrize("settings", [{}, {"epsilon": 50.0, "bounds": "from_data"}], ids=["no budget", "from data"])
def test_labels_of_few_later_records_do_not_bound_those_of_earlier_ones(settings: dict[str, Any]) -> None:
    """Where no bounds of labels are given, every training takes its own from its records."""
    model = DPBoostingRegressor(**settings, delta=1e-4, random_state=0).partial_fit(X[:3000], Y[:3000])
    before = rmse(Y[3000:], model.predict(X[3000:]))
    near = np.flatnonzero(abs(Y[:3000] - 0.5) < 0.01)[:20]
    model.partial_fit(X[near], Y[near])
    assert rmse(Y[3000:], model.predict(X[3000:])) < before + 0.01
    model.partial_fit(X[:1], [3.0])
    assert model._task.centre + model._task.spread >= 3.0


def test_what_cannot_go_on_is_refused_and_leaves_the_model_as_it_was() -> None:
    model = DPBoostingClassifier(epsilon=2.0, delta=1e-4, bounds=(0, 1), random_state=0).fit(X, Y > 0.5)
    before = model.model_, model.guarantee_
    with pytest.raises(OpBoostError, match="other classes than those that are known"):
        model.partial_fit(X, Y > 0.5, classes=[0, 2])
    with pytest.raises(OpBoostError, match="beyond the classes"):
        model.partial_fit(X, np.full(len(X), 7))
    assert (model.model_, model.guarantee_) == before
