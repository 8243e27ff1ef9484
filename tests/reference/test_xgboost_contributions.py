"""Contributions and interactions against XGBoost's own, which it computes in single precision."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.export.xgboost_model import from_xgboost
from opboost.trees.tree import Ensemble

xgboost = pytest.importorskip("xgboost")

TOLERANCE = 1e-5


def _problem(objective: str, **settings: Any) -> tuple[Ensemble, Any, np.ndarray, Any]:
    rng = np.random.default_rng(0)
    rows = rng.integers(0, [7, 40, 200, 3, 12], (1500, 5)) * np.array([0.5, 3, 1, 1, 1])
    labels = rows[:, 0] + (rows[:, 4] > 5) * rows[:, 3] + 0.01 * rows[:, 2] + rng.normal(size=1500)
    rows[rng.random(rows.shape) < 0.1] = np.nan
    if objective != "reg:squarederror":
        labels = np.digitize(labels, np.quantile(labels, [0.3, 0.6] if "multi" in objective else [0.6]))
    kinds = ["q", "q", "q", "c", "c"]
    matrix = xgboost.DMatrix(rows, labels, feature_types=kinds, enable_categorical=True, nthread=1)
    classes = {"num_class": 3} if "multi" in objective else {}
    booster = xgboost.train(
        {"objective": objective, "tree_method": "hist", "nthread": 1, "max_depth": 5, **classes, **settings}, matrix, 8
    )
    few = xgboost.DMatrix(rows[:100], feature_types=kinds, enable_categorical=True, nthread=1)
    return from_xgboost(booster), booster, rows[:100], few


@pytest.mark.parametrize(
    "settings", [{}, {"grow_policy": "lossguide", "max_leaves": 40, "max_depth": 0}], ids=["levels", "leaves"]
)
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic", "multi:softprob"])
def test_contributions_and_interactions_are_xgboosts(objective: str, settings: dict[str, Any]) -> None:
    model, booster, rows, matrix = _problem(objective, **settings)
    for in_pairs, theirs in ((False, "pred_contribs"), (True, "pred_interactions")):
        found = model.contributions(rows, in_pairs=in_pairs)
        expected = booster.predict(matrix, **{theirs: True})
        np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=0, atol=TOLERANCE)


def test_contributions_of_other_trees_are_told_apart() -> None:
    _, booster, _, matrix = _problem("reg:squarederror")
    model, _, rows, _ = _problem("reg:squarederror", reg_lambda=1.01)
    expected = booster.predict(matrix, pred_contribs=True)
    assert np.abs(model.contributions(rows)[:, 0] - expected).max() > 10 * TOLERANCE
