"""Shapes per column: they add up to the score, and can be looked at."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from opboost import FederatedGBDTClassifier, FederatedGBDTRegressor
from opboost.errors import ParameterError
from opboost.sklearn.shape_functions import Shapes, shapes_of

pytestmark = pytest.mark.usefixtures("one_thread")


def table():
    generator = np.random.default_rng(0)
    X = pd.DataFrame({"age": generator.uniform(0, 9, 400), "size": generator.random(400), "dull": np.zeros(400)})
    X.iloc[::11, 0] = np.nan
    return X, np.nan_to_num(X["age"].to_numpy()) + X["size"].to_numpy()


def fitted(kind=FederatedGBDTRegressor, **settings):
    X, y = table()
    if kind is FederatedGBDTClassifier:
        y = y > 5
    return kind.dp_ebm_newton(n_estimators=30, random_state=0, **settings).fit(X, y)


@pytest.mark.parametrize("split_method", ["tr", "hist", "pr"])
@pytest.mark.parametrize("kind", [FederatedGBDTClassifier, FederatedGBDTRegressor])
def test_intercept_and_shapes_add_up_to_the_score(kind, split_method):
    model = fitted(kind, split_method=split_method)
    rows = np.vstack([table()[0].to_numpy(), [[np.nan] * 3, [1e9] * 3, [-1e9] * 3, [4.5, 0.5, 0.0]]])
    shapes = model.explain()
    total = shapes.intercept + sum(shape(rows[:, k]) for k, shape in enumerate(shapes.columns.values()))
    np.testing.assert_allclose(total, model.model_.scores(rows)[:, 0], atol=1e-9)
    assert list(shapes.columns) == ["age", "size", "dull"]
    for shape in shapes.columns.values():
        assert len(shape.values) == len(shape.edges) + 1
        assert (np.diff(shape.edges) > 0).all()


def test_a_shape_rises_where_the_label_does():
    shape = fitted().explain().columns["age"]
    assert shape(np.array([8.0])) > shape(np.array([5.0])) > shape(np.array([2.0]))


def test_trees_of_several_columns_have_no_shapes():
    X, y = table()
    model = FederatedGBDTRegressor(n_estimators=10, random_state=0).fit(X, y)
    with pytest.raises(ParameterError, match="one column per tree"):
        model.explain()


def test_every_class_has_shapes_of_its_own():
    X, y = table()
    model = FederatedGBDTClassifier.dp_ebm_newton(n_estimators=9, random_state=0).fit(X, np.digitize(y, [3, 6]))
    with pytest.raises(ParameterError, match="every class has shapes of its own"):
        model.explain()
    assert len(shapes_of(model.models_[2]).columns) == 3


def test_shapes_can_be_plotted(tmp_path):
    pytest.importorskip("matplotlib")
    shapes = fitted().explain()
    shapes.plot().savefig(tmp_path / "shapes.png")
    assert (tmp_path / "shapes.png").stat().st_size > 5000
    assert len(shapes.plot(["age"]).axes) == 1
    formula = Shapes(0.0, {r"$\frac$": shapes.columns["age"]})
    formula.plot().savefig(tmp_path / "formula.svg")
    with pytest.raises(ParameterError, match="no column weight; there are age, size, dull"):
        shapes.plot(["weight"])
