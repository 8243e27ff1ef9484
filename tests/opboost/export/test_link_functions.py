"""Link functions: each turns raw scores into the loss's own predictions, and a loss without one is not exported."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from opboost import OpBoostRegressor, SGBDTClassifier, SGBDTRegressor
from opboost.errors import ParameterError
from opboost.export.link_functions import LinkFunction, exportable, link_function
from opboost.trees.losses import Custom, Objective, Ordinal, loss_by_name

SCORES = np.random.default_rng(1).normal(0, 1, (6, 3))
LINKS = {
    "identity": lambda scores: scores[:, 0],
    "sigmoid": lambda scores: 1 / (1 + np.exp(-scores[:, 0])),
    "softmax": lambda scores: np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True),
    "exponential": lambda scores: np.exp(scores[:, 0]),
}


@pytest.mark.parametrize("name", [one for one in get_args(Objective) if one != "ordinal:logistic"])
def test_a_link_function_gives_the_predictions(name: Objective) -> None:
    loss = loss_by_name(name, 3 if name == "multi:softprob" else 0)
    scores = SCORES[:, : loss.n_outputs]
    np.testing.assert_allclose(loss.predictions(scores), LINKS[link_function(loss)](scores), rtol=1e-12)
    assert set(LINKS) == set(get_args(LinkFunction))


@pytest.mark.parametrize("loss", [Ordinal(3), Custom()], ids=lambda one: one.name)
def test_a_loss_that_others_do_not_know_is_refused(loss: Ordinal | Custom) -> None:
    with pytest.raises(ParameterError, match="No model was exported"):
        link_function(loss)


def test_a_fitted_estimator_is_exported_as_its_trees_and_nothing_else_is() -> None:
    X, y = np.arange(60.0)[:, None], np.arange(60.0)
    model = OpBoostRegressor(n_estimators=2).fit(X, y)
    trees = model.model_.ensemble
    assert exportable(model) is exportable(model.model_) is exportable(trees) is trees
    for other in (OpBoostRegressor(), {"trees": []}):
        with pytest.raises(
            ParameterError, match=r"is an Ensemble, a JointModel or a fitted estimator; got .* No model"
        ):
            exportable(other)
    several = SGBDTClassifier(n_estimators=2, classes=[0, 1, 2]).fit(X, y % 3)
    with pytest.raises(ParameterError, match=r"a model for each of 3 classes: export each of its `models_`"):
        exportable(several)
    assert exportable(several.models_[1]) is several.models_[1]


def test_predictions_that_are_kept_within_bounds_are_no_sums_of_trees() -> None:
    """Exported, these estimators predicted beyond their label's bounds."""
    X, y = np.linspace(-1, 1, 60)[:, None], np.linspace(-9, 9, 60)
    model = SGBDTRegressor(n_estimators=2, bounds=(-1, 1), label_bounds=(-4, 4)).fit(X, y)
    assert model.prediction_bounds_ == (-4, 4)
    with pytest.raises(
        ParameterError, match=r"SGBDTRegressor are kept between -4 and 4, .* export its `model_`.* No model"
    ):
        exportable(model)
    kept = np.clip(exportable(model.model_).predict(X), *model.prediction_bounds_)
    np.testing.assert_allclose(kept, model.predict(X))
