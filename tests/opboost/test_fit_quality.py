"""Curves of how a model fits, against the ensemble's own predictions and counts by hand."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.columns import OwnColumn, RankColumn
from opboost.fit_quality import MOST_POINTS, fit_quality, training_quality
from opboost.metrics import auc, log_loss, metric_by_name
from opboost.split_tests import bind, feature_matrix, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic, Several, Softmax, SquaredError
from opboost.trees.validation import ValidationPlan
from opboost.vertical import train

N = 200


@pytest.fixture(scope="module")
def table():
    draw = np.random.default_rng(3)
    own = draw.normal(size=N)
    own[:20] = np.nan
    ranks = draw.integers(0, 9, N).astype(np.uint32)  # rank 8 is missing
    labels = (np.nan_to_num(own) + ranks / 4 + draw.normal(size=N) > 1).astype(float)
    return [OwnColumn("age", own), RankColumn("shop", 0, "c0", ranks, 8)], labels


def trained_on(table, loss, **options):
    columns, labels = table
    trained = train(columns, labels, np.ones(N), loss=loss, parameters=BoostingParameters(n_estimators=7), **options)
    tests = list_tests(trained)
    return trained, tests, bind(trained, tests)


def predictions_of(table, tests, ensemble, **margins):
    """By way of the owner's answers, as new records are scored."""
    (own, ranked), _ = table
    wanted = tests["shop"]
    is_missing = ranked.ranks[:, None] == ranked.n_ranks
    answers = np.where(is_missing, wanted.missing_left, ranked.ranks[:, None] <= wanted.ranks)
    return ensemble.predict(feature_matrix(ensemble, {"age": own.values, **margins}, {"shop": answers}, N))


def test_the_fit_on_training_rows_is_that_of_the_bound_model(table) -> None:
    trained, tests, ensemble = trained_on(table, Logistic())
    found = training_quality(trained, ensemble, table[1], None)
    predicted = predictions_of(table, tests, ensemble)
    assert found is not None
    assert (found.basis, found.n_rows, found.metric) == ("training rows", N, "logloss")
    assert found.metrics["auc"] == auc(table[1], predicted)
    assert [rounds for rounds, _ in found.curve] == list(range(8))
    assert found.curve[-1][1] == pytest.approx(log_loss(table[1], predicted), rel=1e-12)
    assert found.curve[0][1] == pytest.approx(log_loss(table[1], np.full(N, table[1].mean())), rel=1e-9)
    assert sum(n for _, _, n in found.calibration) == N
    assert found.calibration[-1][0] > found.calibration[0][0]
    assert (found.roc[-1], len(found.roc), found.residuals) == ((1.0, 1.0), MOST_POINTS, ())


def test_rows_that_were_held_out_are_looked_at_alone(table) -> None:
    is_held_out = np.arange(N) % 4 == 0
    trained, tests, ensemble = trained_on(
        table, Logistic(), validation=ValidationPlan(is_held_out, (metric_by_name("logloss", Logistic()),))
    )
    found = training_quality(trained, ensemble, table[1], is_held_out)
    predicted = predictions_of(table, tests, ensemble)
    assert found is not None
    assert (found.basis, found.n_rows) == ("validation rows", N // 4)
    assert found.metrics["auc"] == auc(table[1][is_held_out], predicted[is_held_out])


def test_a_margin_counts_once_however_many_rounds_there_are(table) -> None:
    labels, margin = table[1], OwnColumn("start", np.linspace(-1, 2, N))
    trained, tests, ensemble = trained_on(table, Logistic(), margins=(margin,))
    found = training_quality(trained, ensemble, labels, None)
    assert found is not None
    assert found.curve[0][1] == pytest.approx(log_loss(labels, 1 / (1 + np.exp(-margin.values))), rel=1e-9)
    predicted = predictions_of(table, tests, ensemble, start=margin.values)
    assert found.metrics["auc"] == auc(labels, predicted)
    assert found.curve[-1][1] == pytest.approx(log_loss(labels, predicted), rel=1e-12)


def test_numbers_have_residuals_and_no_roc(table) -> None:
    trained, tests, ensemble = trained_on(table, SquaredError())
    found = training_quality(trained, ensemble, table[1], None)
    assert found is not None
    assert (found.metric, found.roc, found.calibration) == ("rmse", (), ())
    assert sum(n for _, _, n in found.residuals) == N
    residuals = table[1] - predictions_of(table, tests, ensemble)
    assert found.residuals[0][0] == pytest.approx(residuals.min())
    assert found.curve[-1][1] == pytest.approx(found.metrics["rmse"], rel=1e-12)


def test_the_roc_curve_lies_over_the_area_that_the_metric_says() -> None:
    draw = np.random.default_rng(0)
    labels = (draw.random(5000) < 0.4).astype(float)
    scores = np.clip(0.3 * labels + draw.random(5000) * 0.7, 0, 1)
    found = fit_quality(Logistic(), labels, scores, basis="b", metric="auc")
    assert found is not None
    x, y = np.array(found.roc).T
    assert np.trapezoid(y, x) == pytest.approx(auc(labels, scores), abs=5e-3)


def test_a_single_class_of_labels_tells_nothing() -> None:
    assert fit_quality(Logistic(), np.ones(5), np.full(5, 0.5), basis="b", metric="auc") is None


def test_nor_do_several_labels_of_which_one_has_a_single_value_however_their_means_are_rounded() -> None:
    loss, equal = Several(SquaredError(), 2), np.full((10, 2), 0.1)
    assert equal.mean(axis=0)[0] != equal[:, 0].mean()
    different = np.column_stack([np.arange(10.0), equal[:, 0]])
    for labels in (equal, different):
        assert fit_quality(loss, labels, labels, basis="b", metric="rmse") is None


def test_several_classes_have_metrics_alone() -> None:
    predicted = np.eye(3)[[0, 1, 2, 2]]
    found = fit_quality(Softmax(3), np.array([0.0, 1, 2, 1]), predicted, basis="b", metric="mlogloss")
    assert found is not None
    assert found.metrics["accuracy"] == 0.75
    assert (found.roc, found.calibration, found.residuals) == ((), (), ())
