"""Remarks of the recommended estimators: wide bounds and small budgets are named from what was released."""

from __future__ import annotations

import numpy as np
import pytest

from opboost import DPBoostingClassifier, DPBoostingRegressor

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
