"""Losses of several labels; models of them are compared in `tests/reference/test_xgboost_starts.py`."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.metrics import default_metric, evaluate, main_metric, metric_by_name
from opboost.trees.losses import Logistic, Loss, Poisson, Several, Softmax, SquaredError, Tweedie, loss_by_name


@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Tweedie(1.3)], ids=lambda loss: loss.name)
def test_a_loss_of_several_labels_is_found_by_its_name_and_settings(loss: Loss) -> None:
    several = Several(loss, 3)
    assert loss_by_name(several.name, 0, **several.settings) == several
    assert several.singles == (loss,) * 3


def test_scores_become_predictions_label_by_label() -> None:
    scores = np.array([[0.0, 1.0], [-1.0, 2.0]])
    np.testing.assert_allclose(Several(Poisson(), 2).predictions(scores), np.exp(scores))
    assert Several(Poisson(), 2).initial_scores(np.array([[1.0, 2.0], [3.0, 6.0]]), np.ones(2)) == pytest.approx(
        np.log([2, 4])
    )


def test_metrics_are_means_over_the_labels() -> None:
    loss, rng = Several(SquaredError(), 2), np.random.default_rng(0)
    labels, predicted = rng.normal(size=(2, 50, 2))
    name = default_metric(loss)
    found = metric_by_name(name, loss).of(labels, predicted)
    alone = [metric_by_name(name, loss.loss).of(labels[:, k], predicted[:, k]) for k in range(2)]
    assert found == pytest.approx(np.mean(alone))
    assert evaluate(loss, labels, predicted)["r2"] == pytest.approx(main_metric(loss).of(labels, predicted))


def test_only_objectives_of_one_score_have_several_labels() -> None:
    for loss, n_labels in ((Softmax(3), 2), (SquaredError(), 1), (SquaredError(), 10**6)):
        with pytest.raises(ParameterError, match="labels go with an objective of one score"):
            Several(loss, n_labels)
