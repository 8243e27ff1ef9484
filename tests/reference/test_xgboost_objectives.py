"""Objectives of numbers, quantiles and survival times against XGBoost's `hist`, and XGBoost as the engine.

The tolerance is the wider one of `test_xgboost_options`, 1e-4 of the largest prediction where that exceeds 1: of many
of these losses the largest Hessian is many times the mean one, and so is the step of the grid.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.export.xgboost_model import from_xgboost, to_xgboost
from opboost.fitting.outputs import Engine
from opboost.metrics import metric_by_name
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Cox,
    Custom,
    Gamma,
    LambdaRank,
    Loss,
    Ordinal,
    PairwiseRank,
    PseudoHuber,
    Quantiles,
    SquaredError,
    Tweedie,
    loss_by_name,
)
from opboost.trees.tree import Ensemble
from opboost.vertical import train

xgboost = pytest.importorskip("xgboost")
pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES: list[Loss] = [
    Gamma(),
    Tweedie(),
    Tweedie(1.2),
    Quantiles((0.3,)),
    Quantiles((0.1, 0.5, 0.9)),
    AbsoluteError(),
    PseudoHuber(),
    PseudoHuber(0.4),
    Cox(),
    AcceleratedFailure(),
    AcceleratedFailure("logistic", 0.7),
    AcceleratedFailure("extreme", 1.3),
]
PARAMETERS: dict[str, Any] = {"n_estimators": 8, "max_depth": 3, "learning_rate": 0.3}


def _problem(loss: Loss) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    table = rng.integers(0, [7, 40, 200], (2000, 3)) * np.array([0.5, 0.3, 0.1]) - 5
    signal = 0.3 * table[:, 0] + 0.1 * table[:, 1] * (table[:, 2] > 3) + 0.5 * rng.normal(size=2000)
    table[rng.random(table.shape) < 0.1] = np.nan
    match loss:
        case Gamma() | Cox() | AcceleratedFailure():
            labels = np.exp(signal - signal.mean())
        case Tweedie():
            labels = rng.poisson(np.exp(signal - signal.mean())) * rng.gamma(2.0, size=2000)
        case _:
            labels = signal
    if loss.name.startswith("survival"):
        labels = labels * rng.choice([-1.0, 1.0], 2000, p=[0.3, 0.7])
    return table, labels, np.ones(2000) if isinstance(loss, Cox) else rng.uniform(0.5, 2, 2000)


def _ours(loss: Loss, engine: Engine = "native", **parameters: Any) -> Ensemble:
    table, labels, weights = _problem(loss)
    columns = [OwnColumn(f"f{i}", values) for i, values in enumerate(table.T)]
    settings = BoostingParameters(**PARAMETERS | parameters)
    return bind(train(columns, labels, weights, loss=loss, parameters=settings, engine=engine), {})


def _theirs(loss: Loss, model: Ensemble, **changes: Any) -> np.ndarray:
    """XGBoost's predictions from our first scores."""
    table, labels, weights = _problem(loss)
    margins = np.tile(model.base_scores, (len(table), 1))
    matrix = xgboost.DMatrix(
        table,
        **loss.labels_of_xgboost(labels),
        weight=weights,
        base_margin=margins if margins.shape[1] > 1 else margins[:, 0],
    )
    settings = {"objective": loss.name, **loss.settings, "tree_method": "hist", "nthread": 1, **PARAMETERS, **changes}
    return xgboost.train(settings, matrix, settings.pop("n_estimators")).predict(matrix)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_model_is_xgboosts_and_that_of_both_engines(loss: Loss) -> None:
    model = _ours(loss)
    table, _, _ = _problem(loss)
    found, expected = model.predict(table), _theirs(loss, model)
    tolerance = 1e-4 * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance)
    np.testing.assert_allclose(_ours(loss, "xgboost").predict(table), found, rtol=0, atol=tolerance)
    changed = _theirs(loss, model, learning_rate=0.33)
    assert np.abs(changed - expected).max() > 10 * tolerance


def test_ordered_classes_are_xgboosts_binary_models_of_each_step() -> None:
    table, signal, weights = _problem(SquaredError())
    labels = np.digitize(signal, np.quantile(signal, [0.3, 0.6, 0.8])).astype(float)
    columns = [OwnColumn(f"f{i}", values) for i, values in enumerate(table.T)]
    settings = BoostingParameters(**PARAMETERS)
    model = bind(train(columns, labels, weights, loss=Ordinal(4), parameters=settings), {})
    for k in range(3):
        base = np.full(len(labels), model.base_scores[k])
        matrix = xgboost.DMatrix(table, labels > k, weight=weights, base_margin=base)
        theirs = {"objective": "binary:logistic", "nthread": 1, "max_depth": 3, "eta": 0.3}
        expected = xgboost.train(theirs, matrix, 8).predict(matrix, output_margin=True)
        np.testing.assert_allclose(model.scores(table)[:, k], expected, rtol=0, atol=1e-4)
    shares = model.predict(table)
    assert shares.shape == (2000, 4)
    assert shares.min() >= 0
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)


@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_a_custom_objective_with_the_slopes_of_a_known_one_gives_its_model(engine: Engine) -> None:
    known = PseudoHuber(2.0)

    def slopes(labels: np.ndarray, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        root = np.sqrt(1 + ((scores - labels) / 2) ** 2)
        return (scores - labels) / root, root**-3

    table, _, _ = _problem(known)
    expected = _ours(known, base_score=0.1).predict(table)
    found = _ours(Custom(slopes), engine, base_score=0.1).predict(table)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4)


@pytest.mark.parametrize("loss", [*LOSSES, Ordinal(3)], ids=str)
def test_a_loss_is_made_of_its_name_and_settings(loss: Loss) -> None:
    assert loss_by_name(loss.name, getattr(loss, "n_classes", 0), **loss.settings) == loss


def _ranked(loss: LambdaRank, engine: Engine = "native") -> tuple[np.ndarray, ...]:
    """A table in any order, labels with groups, weights, and predictions of a model of them."""
    table, signal, _ = _problem(SquaredError())
    rng = np.random.default_rng(4)
    groups = rng.integers(0, 150, len(table))
    labels = np.column_stack([np.digitize(signal, np.quantile(signal, [0.5, 0.7, 0.9])), groups]).astype(float)
    weights = rng.uniform(0.5, 2, 150)[groups]
    columns = [OwnColumn(f"f{i}", values) for i, values in enumerate(table.T)]
    trained = train(columns, labels, weights, loss=loss, parameters=BoostingParameters(**PARAMETERS), engine=engine)
    return table, labels, weights, bind(trained, {}).predict(table)


@pytest.mark.parametrize("loss", [LambdaRank(), LambdaRank(3), PairwiseRank()], ids=str)
def test_rankings_and_their_metrics_are_xgboosts(loss: LambdaRank) -> None:
    table, labels, weights, found = _ranked(loss)
    order = np.argsort(labels[:, 1], kind="stable")
    _, first = np.unique(labels[order, 1], return_index=True)
    matrix = xgboost.DMatrix(
        table[order],
        labels[order, 0],
        qid=labels[order, 1].astype(int),
        weight=weights[order][first],
        base_margin=np.zeros(len(table)),
    )
    settings = {
        "objective": loss.name,
        **loss.settings,
        "nthread": 1,
        "eval_metric": ["ndcg@4", "ndcg@99"],
        **PARAMETERS,
    }
    booster = xgboost.train(settings, matrix, settings.pop("n_estimators"))
    np.testing.assert_allclose(found[order], booster.predict(matrix), rtol=0, atol=1e-4)
    np.testing.assert_allclose(_ranked(loss, "xgboost")[3], found, rtol=0, atol=1e-4)
    back = from_xgboost(booster)
    assert type(back.loss) is type(loss)
    np.testing.assert_allclose(to_xgboost(back).inplace_predict(table[order]), booster.predict(matrix), atol=1e-6)
    matrix.set_weight(np.ones(len(first)))
    told = dict(part.split(":") for part in booster.eval(matrix).split()[1:])
    for name in ("ndcg@4", "ndcg@99"):
        assert metric_by_name(name, loss).of(labels, found) == pytest.approx(float(told[f"eval-{name}"]), abs=1e-6)
