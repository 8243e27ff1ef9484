"""Contributions of columns, whoever holds them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import ColumnSchema, IntegerDomain, OpBoostClassifier, OpBoostRegressor, SGBDTClassifier, SGBDTRegressor
from opboost.preprocess import encode

pytestmark = pytest.mark.usefixtures("one_thread")

BOUNDS = {"age": (18.0, 90.0), "visits": (0.0, 11.0)}
SMALL: dict[str, Any] = {"n_estimators": 5, "max_depth": 4, "domain_size": 100}


def _frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    columns = {
        "age": rng.integers(18, 91, 200),
        "income": rng.normal(3000, 800, 200),
        "visits": rng.integers(0, 12, 200),
    }
    return pd.DataFrame(columns).astype(float)


def _mapped(frame: pd.DataFrame) -> pd.DataFrame:
    """The passive columns as codes of the mapped domain."""
    domain = IntegerDomain(1, 100)
    codes = {
        name: encode(frame[name], ColumnSchema(name=name, lower=low, upper=high), domain=domain).codes
        for name, (low, high) in BOUNDS.items()
    }
    return frame.assign(**codes)


@pytest.mark.parametrize("prediction", ["routed", "desensitized", "local"])
@pytest.mark.parametrize("n_classes", [0, 2, 3])
def test_contributions_without_noise_are_those_of_the_plain_model(n_classes: int, prediction: Any) -> None:
    frame = _frame()
    labels = (frame["age"] / 10 + frame["visits"] * (frame["income"] > 3000)).to_numpy()
    kind: Any = OpBoostClassifier if n_classes else OpBoostRegressor
    if n_classes:
        labels = np.digitize(labels, np.quantile(labels, np.arange(1, n_classes) / n_classes))
    joint = kind(epsilon=np.inf, bounds=BOUNDS, prediction=prediction, **SMALL).fit(frame, labels)
    mapped = _mapped(frame)
    plain = kind(**SMALL).fit(mapped, labels)
    for in_pairs, shape in ((False, (4,)), (True, (4, 4))):
        found = joint.contributions(frame, in_pairs=in_pairs)
        assert found.shape == ((200, 3, *shape) if n_classes == 3 else (200, *shape))
        np.testing.assert_allclose(found, plain.contributions(mapped, in_pairs=in_pairs), rtol=0, atol=1e-12)


def test_contributions_add_up_to_the_score() -> None:
    frame = _frame()
    model = OpBoostRegressor(epsilon=0.5, bounds=BOUNDS, random_state=0, **SMALL).fit(frame, frame["age"])
    np.testing.assert_allclose(model.contributions(frame).sum(axis=1), model.predict(frame), atol=1e-12)


def test_contributions_of_models_that_keep_no_counts_rest_on_given_rows() -> None:
    rows, rng = _frame().to_numpy(), np.random.default_rng(0)
    numbers = SGBDTRegressor(n_estimators=5, random_state=0).fit(rows, rows[:, 0])
    found = numbers.contributions(rows[:50], background=rows)
    scores = numbers.model_.scores(rows)[:, 0]
    np.testing.assert_allclose(found.sum(axis=1), scores[:50], atol=1e-9)
    np.testing.assert_allclose(found[:, -1], scores.mean(), atol=1e-9)
    assert np.abs(numbers.contributions(rows[:50])[:, -1] - scores.mean()).min() > 1e-6
    classes = SGBDTClassifier(n_estimators=5, random_state=0).fit(rows, rng.integers(0, 3, 200))
    assert classes.contributions(rows).shape == (200, 3, 4)
