"""Leaves fitted anew: on the labels that trees were grown on, they are the trees' own, to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.columns import OwnColumn, RankColumn
from opboost.errors import ParameterError
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Poisson, Quantiles, Softmax, SquaredError
from opboost.vertical import TrainedTrees, train

N = 500
pytestmark = pytest.mark.usefixtures("one_thread")


def columns() -> list[Any]:
    draw = np.random.default_rng(1)
    gappy = np.where(draw.random(N) < 0.2, np.nan, draw.normal(size=N))
    ranks = draw.integers(0, 21, N).astype(np.uint32)
    return [
        OwnColumn("gappy", gappy),
        OwnColumn("town", draw.integers(0, 9, N).astype(float), is_categorical=True),
        RankColumn("b", 0, "b0", ranks, 20),
    ]


def labels_of(loss: Any, found: list[Any]) -> np.ndarray:
    signal = np.nan_to_num(found[0].values, nan=1.0) + found[1].values / 4 + found[2].ranks / 10
    signal += np.random.default_rng(2).normal(size=N)
    if isinstance(loss, Logistic):
        return (signal > 2).astype(float)
    return np.clip(signal.round(), 0, 2) if isinstance(loss, Softmax | Poisson) else signal


def values(trained: TrainedTrees) -> list[list[float]]:
    return [tree.values.tolist() for tree in trained.trees]


@pytest.mark.parametrize("loss", [Logistic(), SquaredError(), Softmax(3), Poisson(), Quantiles((0.2, 0.8))])
@pytest.mark.parametrize(
    "settings",
    [{}, {"subsample": 0.6, "colsample_bynode": 0.7}, {"max_depth": 0, "max_leaves": 9}, {"max_delta_step": 0.1}],
    ids=str,
)
def test_leaves_fitted_to_the_same_labels_are_the_same(loss: Any, settings: dict[str, Any]) -> None:
    found = columns()
    labels = labels_of(loss, found)
    parameters = BoostingParameters(**{"n_estimators": 6, "max_depth": 4, "reg_alpha": 0.1} | settings)
    call: dict[str, Any] = {"loss": loss, "parameters": parameters, "seed": 5}
    grown = train(found, labels, np.ones(N), **call)
    fitted = train(found, labels, np.ones(N), **call, leaf_labels=labels)
    assert values(grown) == values(fitted)
    assert any(len(tree) > 1 for tree in values(grown))


def test_other_labels_change_leaves_and_base_score_and_nothing_else() -> None:
    found = columns()
    labels = labels_of(SquaredError(), found)
    other = labels[::-1].copy()
    call: dict[str, Any] = {"loss": SquaredError(), "parameters": BoostingParameters(n_estimators=5), "seed": 5}
    grown, fitted = (train(found, labels, np.ones(N), **call, leaf_labels=leaf) for leaf in (None, other + 3))
    assert values(grown) != values(fitted)
    assert fitted.base_scores[0] == pytest.approx((other + 3).mean())
    for one, two in zip(grown.trees, fitted.trees, strict=True):
        assert one.columns.tolist() == two.columns.tolist()
        assert one.thresholds.tolist() == two.thresholds.tolist()
        assert one.missing_left.tolist() == two.missing_left.tolist()


def test_monotone_constraints_and_xgboost_are_refused() -> None:
    found, call = columns()[:1], {"loss": SquaredError(), "parameters": BoostingParameters(n_estimators=2)}
    labels = np.arange(N) * 1.0
    for settings in ({"constraints": ColumnConstraints({"gappy": 1})}, {"engine": "xgboost"}):
        with pytest.raises(ParameterError, match="leaves cannot be fitted anew"):
            train(found, labels, np.ones(N), **call, leaf_labels=labels, **settings)  # type: ignore[arg-type]
