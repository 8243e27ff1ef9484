"""Rows that were accepted as a whole train in any selection: no choice of records ends a run by what is in them."""

from __future__ import annotations

import json
import os
import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opboost.columns import Column, OwnColumn, RankColumn
from opboost.errors import DataError, ParameterError
from opboost.fit_quality import fit_quality, training_quality
from opboost.metrics import _metrics, default_metric, evaluate, metric_by_name
from opboost.split_tests import bind, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import loss_by_name
from opboost.trees.model_file import load_model, save_model
from opboost.trees.validation import ValidationPlan
from opboost.trees.xgboost_numbers import check_single_precision
from opboost.uplift import measure_uplift
from opboost.vertical import Engine, check_own_rows, train

# Random tables per engine.
N_TABLES = int(os.environ.get("OPBOOST_TABLES", "150"))

# By objective, labels that are hard to tell apart, to square, or to divide by.
_NUMBERS = [0.0, 1.0, -1.0, 1e100, -1e100, 1e-200, 5e-324, 1 + 2e-16, 1e16, 1e38, 1e39, 1e30]
_COUNTS = [0.0, 1.0, 2.0, 0.5, 1e9, 1e9 * (1 - 1e-16), 1e-300]
_TIMES = [1.0, -1.0, 2.0, -3.0, 1e9, -1e9, 1e-9]
LABELS = {
    "binary:logistic": [0.0, 1.0],
    "reg:squarederror": _NUMBERS,
    "count:poisson": _COUNTS,
    "multi:softprob": [0.0, 1.0, 2.0],
    "reg:gamma": [1.0, 2.0, 0.5, 1e9, 1e-9, 1e-300],
    "reg:tweedie": _COUNTS,
    "reg:quantileerror": _NUMBERS,
    "reg:absoluteerror": _NUMBERS,
    "reg:pseudohubererror": _NUMBERS,
    "survival:cox": _TIMES,
    "survival:aft": _TIMES,
    "rank:ndcg": [0.0, 1.0, 2.0, 31.0],
}
# Objectives of one label that several labels may have.
SEVERAL = {"binary:logistic", "reg:squarederror", "count:poisson"}
VALUES = [0.0, 1.0, -1.0, np.nan, 1e308, -1e308, 5e-324, 1 + 2e-16, 1e38, 1e39]
ONES: dict[str, Any] = {"weights": np.ones(2), "parameters": BoostingParameters(max_bin=3)}
WEIGHTS = [*[1.0] * 12, 3.0, 1e-18, 1e18, 1e-100, 1e100]
MARGINS = [*[0.0] * 30, 1.0, -1.0, 50.0, -50.0, 800.0, -800.0, 1e18, -1e39, 1e308]


class Draw:
    """A random file of the active party, with settings and with ranks for some of its rows."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.name = str(self.rng.choice(list(LABELS)))
        n_labels = 2 if self.name == "rank:ndcg" or (self.name in SEVERAL and self.pick(0, 0, 1)) else 1
        settings = {"quantile_alpha": [0.5]} if self.name == "reg:quantileerror" else {}
        self.loss = loss_by_name(self.name, 3, n_labels=n_labels, **settings)
        n_rows = int(self.rng.integers(1, 13))
        self.labels = self.some(LABELS[self.name], n_rows)
        if n_labels > 1:
            # Groups where rows are ranked.
            more = self.some([7.0, 8.0, 9.0] if self.name == "rank:ndcg" else LABELS[self.name], n_rows)
            self.labels = np.column_stack([self.labels, more])
        self.weights = self.some(WEIGHTS, n_rows)
        self.own = [
            OwnColumn("number", self.some(VALUES, n_rows)),
            OwnColumn("town", self.rng.choice([0.0, 1.0, 2.0, 3.0, np.nan], n_rows), is_categorical=True),
        ]
        self.parameters = BoostingParameters(**self._settings())
        n_margins = self.loss.n_outputs if self.pick(0, 0, 0, 1) else 0
        self.margins = [OwnColumn(f"start {k}", self.some(MARGINS, n_rows)) for k in range(n_margins)]

    def some(self, values: list[float], n_rows: int) -> np.ndarray:
        """A column of one value, two, or more."""
        few = self.rng.choice(values, int(self.rng.integers(1, 4)))
        return self.rng.choice(few, n_rows)

    def pick(self, *values: Any) -> Any:
        return self.rng.choice(np.array(values)).item()

    def _settings(self) -> dict[str, Any]:
        pick = self.pick
        settings = {
            "n_estimators": pick(0, 1, 3),
            "max_depth": pick(1, 3),
            "max_leaves": pick(0, 3),
            "learning_rate": pick(0.3, 1.0, 1e-6),
            "reg_lambda": pick(0.0, 1.0),
            "min_child_weight": pick(0.0, 1.0),
            "subsample": pick(1.0, 0.5, 0.01),
            "colsample_bytree": pick(1.0, 0.3),
            "max_bin": pick(3, 5, 256),
            "gamma": pick(0.0, 1.0),
            "max_cat_to_onehot": pick(0, 4),
        }
        if self.name == "binary:logistic" and self.labels.ndim == 1:
            settings["scale_pos_weight"] = pick(1.0, 1e-100, 1e30, 3.0)
        if pick(True, False):
            settings["early_stopping_rounds"] = 1
        return settings

    def accept(self, engine: Engine) -> None:
        """Check all rows."""
        check_own_rows(
            self.own,
            self.labels,
            weights=self.weights,
            margins=[one.values for one in self.margins],
            loss=self.loss,
            parameters=self.parameters,
            engine=engine,
        )

    def selection(self) -> tuple[list[Column], np.ndarray, np.ndarray, list[OwnColumn]]:
        """Some of the rows, with one column of ranks more: of one value, of several, with or without missing cells."""
        rows = np.flatnonzero(self.rng.random(len(self.labels)) < 0.5)
        rows = rows if len(rows) else np.array([0])
        distinct, ranks = np.unique(self.rng.integers(0, self.pick(1, 2, 9), len(rows)), return_inverse=True)
        n_ranks = self.pick(0, len(distinct))
        column = RankColumn("shop", 0, "c0", np.minimum(ranks, n_ranks).astype(np.uint8), n_ranks)
        own = [OwnColumn(one.name, one.values[rows], is_categorical=one.is_categorical) for one in self.own]
        margins = [OwnColumn(one.name, one.values[rows]) for one in self.margins]
        return [*own, column], self.labels[rows], self.weights[rows], margins

    def plan(self, n_rows: int) -> ValidationPlan | None:
        if n_rows < 2 or (self.parameters.early_stopping_rounds is None and self.pick(True, False)):
            return None
        is_held_out = np.arange(n_rows) < self.rng.integers(1, n_rows)
        names = self.rng.permutation(list(_metrics(self.loss)))[:2]
        metrics = tuple(metric_by_name(str(name), self.loss) for name in names)
        return ValidationPlan(self.rng.permutation(is_held_out), metrics)


@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_any_selection_of_accepted_rows_trains_and_is_kept(tmp_path: Path, engine: Engine) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[xgboost]'")
    n_trained = n_refused = 0
    for seed in range(N_TABLES):
        draw = Draw(seed)
        try:
            draw.accept(engine)
        except DataError:
            n_refused += 1
            continue
        columns, labels, weights, margins = draw.selection()
        plan = draw.plan(len(labels))
        if plan is None and draw.parameters.early_stopping_rounds is not None:
            continue
        with warnings.catch_warnings():
            # XGBoost says so of an AUC without two classes.
            warnings.filterwarnings("ignore", message=".*contains only positive or negative samples")
            trained = train(
                columns,
                labels,
                weights,
                loss=draw.loss,
                parameters=draw.parameters,
                validation=plan,
                engine=engine,
                seed=1,
                margins=margins,
            )
        model = bind(trained, list_tests(trained))
        fit = training_quality(trained, model, labels, None if plan is None else plan.is_held_out)
        json.dumps([trained.history.scores, fit and asdict(fit)], allow_nan=False)
        save_model(model, tmp_path / "model.json")
        assert load_model(tmp_path / "model.json").n_rounds == model.n_rounds
        n_trained += 1
    assert n_trained > N_TABLES / 4
    assert n_refused > N_TABLES / 50


def test_what_is_refused_is_refused_of_the_whole_file() -> None:
    towns = OwnColumn("town", np.arange(4.0), is_categorical=True)
    refused: dict[str, tuple[list[OwnColumn], np.ndarray, Engine, str]] = {
        "labels": ([], np.array([0.0, 2.0]), "native", "needs labels 0 and 1"),
        "categories": (
            [towns],
            np.array([0.0, 1.0]),
            "native",
            "column 'town' has 4 categories, more than max_bin = 3 allows",
        ),
    }
    for columns, labels, engine, words in refused.values():
        with pytest.raises(DataError, match=words):
            check_own_rows(columns, labels, **ONES, loss=loss_by_name("binary:logistic"), engine=engine)
    numbers = loss_by_name("reg:squarederror")
    check_own_rows([], np.array([0.0, 1e39]), **ONES, loss=numbers, engine="native")
    with pytest.raises(DataError, match="XGBoost needs labels of magnitude"):
        check_own_rows([], np.array([0.0, 1e39]), **ONES, loss=numbers, engine="xgboost")
    check_single_precision(np.array([np.nan, -3e38]), "cells")
    # What is no positive number in single precision.
    gamma = loss_by_name("reg:gamma")
    check_own_rows([], np.array([1.0, 1e-300]), **ONES, loss=gamma, engine="native")
    with pytest.raises(DataError, match="needs labels greater than 0"):
        check_own_rows([], np.array([1.0, 1e-300]), **ONES, loss=gamma, engine="xgboost")
    # Labels are checked before classes are weighed.
    classes, weighed = (
        loss_by_name("binary:logistic"),
        {**ONES, "parameters": BoostingParameters(class_weight="balanced")},
    )
    with pytest.raises(DataError, match="needs labels 0 and 1"):
        check_own_rows([], np.array([0.0, 7.0]), **weighed, loss=classes, engine="xgboost")
    for weight in (1e-100, 1e100):
        weights = np.array([1.0, weight])
        check_own_rows([], np.ones(2), loss=numbers, parameters=BoostingParameters(), engine="native", weights=weights)
        with pytest.raises(DataError, match=r"XGBoost needs weights and their reciprocals of magnitude 1e\+18 at most"):
            check_own_rows(
                [], np.ones(2), loss=numbers, parameters=BoostingParameters(), engine="xgboost", weights=weights
            )


def test_amounts_that_differ_a_thousandfold_train_with_xgboost() -> None:
    pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[xgboost]'")
    sizes, gamma = np.resize([0.0, 1.0], 2000), loss_by_name("reg:gamma")
    amounts = np.where(sizes == 0, 10.0, 1e4)
    rest: dict[str, Any] = {"loss": gamma, "parameters": BoostingParameters(n_estimators=30), "engine": "xgboost"}
    trained = train([OwnColumn("a", sizes)], amounts, np.ones(2000), seed=1, **rest)
    scores = bind(trained, {}).predict(sizes[:2, None])
    np.testing.assert_allclose(scores, [10.0, 1e4], rtol=0.1)


def test_labels_and_weights_of_whose_product_squares_overflow_are_refused_of_the_whole_file() -> None:
    numbers, parameters = loss_by_name("reg:squarederror"), BoostingParameters()
    rest: dict[str, Any] = {"loss": numbers, "parameters": parameters, "engine": "native"}
    labels, weights = np.resize([0.0, 1e40], 200), np.full(200, 1e100)
    check_own_rows([], labels, weights=weights, **rest)
    train([OwnColumn("a", np.arange(200.0))], labels, weights, loss=numbers, parameters=parameters, seed=1)
    with pytest.raises(DataError, match=r"labels times weights of magnitude 1e\+140 at most"):
        check_own_rows([], labels * 1e20, weights=weights, **rest)
    # A time without an upper bound.
    times = np.array([[1.0, np.inf], [1.0, 2.0]])
    check_own_rows([], times, weights=weights[:2], **rest | {"loss": loss_by_name("survival:aft", n_labels=2)})


def test_starting_scores_of_which_exponentials_or_sums_overflow_are_refused_of_the_whole_file() -> None:
    for objective, most in (("count:poisson", 50.0), ("survival:cox", 50.0), ("reg:squarederror", 1e18)):
        loss, labels = loss_by_name(objective), np.ones(2)
        check_own_rows([], labels, **ONES, loss=loss, engine="native", margins=[np.array([0.0, -most])])
        with pytest.raises(DataError, match=rf"{objective} needs base margins of magnitude"):
            check_own_rows([], labels, **ONES, loss=loss, engine="native", margins=[np.array([0.0, -1.01 * most])])
    with pytest.raises(DataError, match="one column for each of its 1 outputs"):
        check_own_rows([], labels, **ONES, loss=loss, engine="native", margins=[labels, labels])


@pytest.mark.parametrize(
    ("objective", "labels", "predicted"),
    [
        ("reg:squarederror", (1e-200, 2e-200), 0.0),
        ("reg:squarederror", (0.0, 1e-155), 1.0),
        ("count:poisson", (0.0, 1e9), 1e300),
        ("reg:tweedie", (0.0, 1e9), 0.0),
    ],
)
def test_held_out_records_that_no_metric_can_score_are_scored_in_numbers_that_files_hold(
    objective: str, labels: tuple[float, ...], predicted: float
) -> None:
    loss, each = loss_by_name(objective), np.resize(labels, 20)
    with np.errstate(all="ignore"):
        models = np.full(20, predicted), np.full(20, predicted)[::-1] * 0.5
        found = measure_uplift(loss, each, *models, is_scored=np.ones(20, np.bool_), seed=0)
        fit = fit_quality(loss, each, models[0], basis="held-out records", metric=default_metric(loss))
        metrics = fit and evaluate(loss, each, models[0])
    json.dumps([asdict(found), fit and asdict(fit), metrics], allow_nan=False)


def test_a_metric_that_is_infinite_for_some_labels_can_be_kept() -> None:
    columns, labels = [OwnColumn("number", np.arange(4.0))], np.array([-1.0, 1.0, -1.0, 1.0])
    loss = loss_by_name("reg:squarederror")
    plan = ValidationPlan(np.arange(4) < 2, (metric_by_name("poisson-nloglik", loss),))
    parameters = BoostingParameters(n_estimators=1)
    trained = train(columns, labels, np.ones(4), loss=loss, parameters=parameters, validation=plan)
    json.dumps(trained.history.scores, allow_nan=False)


@pytest.mark.parametrize(("share", "n_rows"), [(0.2, 1), (0.2, 2), (0.9, 3), (0.01, 49)])
def test_a_share_that_leaves_nothing_on_one_side_is_refused_by_the_number_of_rows(share: float, n_rows: int) -> None:
    with pytest.raises(ParameterError, match=f"of {n_rows} records a share of .* both need one"):
        ValidationPlan.of_share(share, n_rows, (), rng=np.random.default_rng(1))
