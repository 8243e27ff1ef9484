"""Uplift: metrics of two models on the same records, and the bootstrap interval of their difference."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.arrays import Values
from opboost.columns import OwnColumn
from opboost.metrics import auc, evaluate, main_metric
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import LambdaRank, Logistic, Loss, Poisson, Softmax, SquaredError
from opboost.trees.losses.ranking import ndcg, ndcg_of_groups
from opboost.trees.tree import Ensemble
from opboost.uplift import measure_uplift, use_of
from opboost.vertical import train

N = 400


def test_an_uplift_is_the_difference_of_the_usual_metrics_and_better_is_positive() -> None:
    draw = np.random.default_rng(0)
    truth = draw.random(N)
    everything = np.ones(N, np.bool_)
    labels = (draw.random(N) < truth).astype(float)
    found = measure_uplift(Logistic(), labels, draw.random(N), truth, is_scored=everything, seed=1)
    assert (found.metric, found.joint) == ("auc", auc(labels, truth))
    assert found.uplift is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.low < found.uplift < found.high < 0.6
    counts = draw.poisson(1 + 5 * truth).astype(float)
    # A likelihood is better if it is lower.
    lower = measure_uplift(Poisson(), counts, np.full(N, counts.mean()), 1 + 5 * truth, is_scored=everything, seed=1)
    assert lower.uplift == pytest.approx((lower.alone or 0) - (lower.joint or 0))
    assert lower.uplift > 0


@pytest.mark.parametrize("loss", [Logistic(), SquaredError(), Softmax(3), Poisson()], ids=lambda loss: loss.name)
def test_the_metric_is_the_first_of_the_usual_ones(loss: Loss) -> None:
    draw = np.random.default_rng(2)
    labels = draw.integers(0, 3 if isinstance(loss, Softmax) else 2, N).astype(float)
    predictions = draw.dirichlet(np.ones(3), N) if isinstance(loss, Softmax) else draw.random(N)
    name, value = next(iter(evaluate(loss, labels, predictions).items()))
    metric = main_metric(loss)
    assert (metric.name, metric.of(labels, predictions)) == (name, pytest.approx(value))


def test_records_without_a_joint_score_are_left_out_of_both_models() -> None:
    draw = np.random.default_rng(3)
    labels, alone = draw.integers(0, 2, N).astype(float), draw.random(N)
    is_scored = np.arange(N) < 100
    joint = np.where(is_scored, labels, np.nan)
    found = measure_uplift(Logistic(), labels, alone, joint, is_scored=is_scored, seed=0)
    assert (found.n_rows, found.n_held_out, found.joint) == (100, N, 1.0)
    assert found.alone == auc(labels[:100], alone[:100])
    nobody = measure_uplift(Logistic(), labels, alone, joint, is_scored=np.zeros(N, np.bool_), seed=0)
    assert (nobody.alone, nobody.joint, nobody.uplift) == (auc(labels, alone), None, None)
    same = measure_uplift(Logistic(), np.ones(N), alone, joint, is_scored=is_scored, seed=0)
    assert same.uplift is None
    assert "single value" in same.reason


def test_the_interval_covers_no_uplift_as_often_as_it_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opboost.uplift.N_RESAMPLES", 150)
    n_trials, n_outside = 200, 0
    for trial in range(n_trials):
        draw = np.random.default_rng(trial)
        labels = draw.integers(0, 2, 150).astype(float)
        scores = draw.random((2, 150))
        found = measure_uplift(Logistic(), labels, scores[0], scores[1], is_scored=np.ones(150, np.bool_), seed=trial)
        assert found.low is not None
        assert found.high is not None
        n_outside += not found.low <= 0 <= found.high
    # Of 200 intervals of 95 %, 10 miss; more than 21 with a chance under 1 in 1,000, and a tenth too narrow has 20.
    assert 1 <= n_outside <= 21


def stumps() -> tuple[Ensemble, Values, Values]:
    """Two stumps, on columns 0 and 1; the labels depend on column 0 alone."""
    draw = np.random.default_rng(4)
    matrix = draw.random((N, 2))
    labels = (draw.random(N) < 0.2 + 0.6 * (matrix[:, 0] > 0.5)).astype(float)
    parts = [OwnColumn(name, matrix[:, i]) for i, name in enumerate("ab")]
    parameters = BoostingParameters(n_estimators=5, max_depth=2)
    trained = train(parts, labels, np.ones(N), loss=Logistic(), parameters=parameters)
    return bind(trained, {}), matrix, labels


def test_a_column_that_matters_adds_and_one_that_does_not_adds_less() -> None:
    ensemble, matrix, labels = stumps()
    found = [use_of(ensemble, matrix, labels, [i], seed=0) for i in (0, 1)]
    assert found[0].low is not None
    assert found[0].low > 0.1
    assert (found[1].uplift or 0) < 0.1
    assert found[0].joint == found[1].joint == auc(labels, ensemble.predict(matrix))
    # The broken twin: what is exchanged for itself adds nothing.
    assert use_of(ensemble, matrix, labels, [], seed=0).uplift == 0
    assert use_of(ensemble, np.tile(matrix[:1], (N, 1)), labels, [0, 1], seed=0).uplift == 0


def test_the_interval_of_a_ranking_draws_whole_groups() -> None:
    rng = np.random.default_rng(7)
    labels = np.column_stack([rng.integers(0, 3, 400), np.repeat(np.arange(40), 10)]).astype(float)
    joint, alone, all_rows = labels[:, 0] + 0.5 * rng.normal(size=400), rng.normal(size=400), np.ones(400, np.bool_)
    found = measure_uplift(LambdaRank(), labels, alone, joint, is_scored=all_rows, seed=1)
    assert (found.metric, found.joint) == ("ndcg", pytest.approx(ndcg(labels, joint)))
    each = ndcg_of_groups(labels, joint) - ndcg_of_groups(labels, alone)
    assert found.uplift == pytest.approx(each.mean())
    assert found.high is not None
    assert found.low is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * each.std() / 40**0.5, rel=0.15)
