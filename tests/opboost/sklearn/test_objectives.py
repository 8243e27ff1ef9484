"""Objectives and metrics of the caller's choice, with columns of both parties."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost import OpBoostClassifier, OpBoostRegressor, load_model
from opboost.errors import ParameterError
from opboost.trees.losses import Custom, Quantiles
from opboost.trees.model_file import save_model
from opboost.trees.validation import Metric

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL: dict[str, Any] = {
    "n_estimators": 40,
    "max_depth": 3,
    "bounds": {0: (-4, 4)},
    "epsilon": np.inf,
    "engine": "native",
}


def _rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(600, 3)).clip(-4, 4)
    return rows, rows[:, 0] + rng.normal(size=600) * (1 + (rows[:, 1] > 0))


@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_several_quantiles_are_predicted_at_once_and_cover_their_shares(engine: Any, tmp_path: Path) -> None:
    rows, labels = _rows()
    model = OpBoostRegressor(objective=Quantiles((0.1, 0.5, 0.9)), **SMALL | {"engine": engine}).fit(rows, labels)
    found = model.predict(rows)
    assert found.shape == (600, 3)
    np.testing.assert_allclose((labels[:, None] <= found).mean(axis=0), [0.1, 0.5, 0.9], atol=0.03)
    save_model(model.model_.ensemble, tmp_path / "model.json")
    assert load_model(tmp_path / "model.json").loss == Quantiles((0.1, 0.5, 0.9))


def test_classes_in_order_may_be_boosted_as_such() -> None:
    rows, numbers = _rows()
    labels = np.array(["low", "mid", "top"])[np.digitize(numbers, [-0.5, 0.5])]
    model = OpBoostClassifier(objective="ordinal:logistic", **SMALL).fit(rows, labels)
    assert model.predict_proba(rows).shape == (600, 3)
    assert model.score(rows, labels) > 0.6
    with pytest.raises(ParameterError, match="2 classes need the objective binary:logistic"):
        model.fit(rows, numbers > 0)


@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_an_objective_and_a_metric_can_be_python_functions(engine: Any, tmp_path: Path) -> None:
    rows, labels = _rows()
    within = Metric("within", lambda y, p: float(np.mean(np.abs(y - p) < 1)), is_higher_better=True)
    custom = Custom(lambda y, s: (s - y, np.ones(len(y))))
    settings = SMALL | {"engine": engine, "base_score": 0.0, "n_estimators": 10}
    model = OpBoostRegressor(objective=custom, eval_metric=["rmse", within], **settings)
    held_out = [(rows[400:], labels[400:])]
    model.fit(rows[:400], labels[:400], eval_set=held_out)
    squared = OpBoostRegressor(**settings).fit(rows[:400], labels[:400], eval_set=held_out)
    np.testing.assert_allclose(model.predict(rows), squared.predict(rows), rtol=0, atol=1e-4)
    last = float(np.mean(np.abs(labels[400:] - model.predict(rows[400:])) < 1))
    assert model.evals_result_["within"][-1] == pytest.approx(last)
    assert 0 <= model.best_iteration_ < 10
    save_model(model.model_.ensemble, tmp_path / "model.json")
    read = load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(read.predict(np.zeros((1, len(read.features)))).shape, (1,))


@pytest.mark.parametrize("slopes", [lambda y, s: (s, s[:1]), lambda y, s: (s - y, -np.ones(len(y)))])
def test_derivatives_that_cannot_be_used_are_refused(slopes: Any) -> None:
    rows, labels = _rows()
    with pytest.raises(ValueError, match="a custom objective must give finite derivatives"):
        OpBoostRegressor(objective=Custom(slopes), **SMALL).fit(rows, labels)
