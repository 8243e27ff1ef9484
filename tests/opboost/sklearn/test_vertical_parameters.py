"""Parameters of the vertical estimators: what they refuse, and what they report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.errors import ParameterError
from opboost.trees.boosting import RoundReport
from tests.support.visitors import BOUNDS, SMALL, later_visitors, spending, visitors

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0),
        ("epsilon", -1.0),
        ("epsilon", np.nan),
        ("epsilon", "much"),
        ("mechanism", "planar"),
        ("law", "gaussian"),
        ("domain_size", 1),
        ("domain_size", 10.0),
        ("category_epsilon", 0.0),
        ("prediction", "guessed"),
        ("n_estimators", -1),
        ("max_depth", -1),
        ("learning_rate", 0.0),
        ("reg_lambda", -1.0),
        ("gamma", -1.0),
        ("min_child_weight", -1.0),
        ("subsample", 0.0),
        ("colsample_bytree", 2.0),
        ("max_bin", 2),
    ],
)
def test_a_parameter_out_of_range_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be"):
        OpBoostRegressor(bounds=BOUNDS, **{name: value}).fit(visitors(), spending(visitors()))


@pytest.mark.parametrize(
    ("mechanism", "name", "value"),
    [("local", "theta", 0), ("adj", "theta", 1001), ("adj", "alpha", 0.0), ("adj", "alpha", np.inf)],
)
def test_a_parameter_of_one_mechanism_is_refused_by_name(mechanism: Any, name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be"):
        OpBoostRegressor(bounds=BOUNDS, mechanism=mechanism, **{name: value}).fit(visitors(), spending(visitors()))


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
def test_a_clone_has_the_same_parameters_and_under_a_seed_the_same_predictions(bounds: Any) -> None:
    model = OpBoostRegressor(bounds=bounds, subsample=0.5, colsample_bytree=0.7, **SMALL)
    model.fit(visitors(), spending(visitors()))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")
    np.testing.assert_array_equal(
        copy.fit(visitors(), spending(visitors())).predict(visitors()), model.predict(visitors())
    )


def test_fitting_leaves_every_parameter_as_it_was_given() -> None:
    given = {"bounds": BOUNDS, "passive_columns": ["age"], "epsilon": None, "theta": None, "category_epsilon": None}
    model = OpBoostRegressor(**given, **SMALL)
    before = model.get_params()
    assert model.fit(visitors(), spending(visitors())).get_params() == before
    assert all(before[name] is value for name, value in given.items())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"missing": "impute"}, "missing must be refuse or category"),
        ({"bounds": {0: (5,)}}, "bounds must map columns"),
        ({"bounds": {0: 5}}, "bounds must map columns"),
        ({"random_state": -1}, "random_state must be"),
        ({"random_state": np.random.default_rng(0)}, "random_state must be"),
        ({"base_score": np.nan}, "base_score must be"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_by_name(change, words):
    X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    with pytest.raises(ParameterError, match=words):
        OpBoostClassifier(**change).fit(X, y)


def test_rounds_are_reported_and_the_caller_may_end_them() -> None:
    seen: list[tuple[int, list[str]]] = []

    def after_third(report: RoundReport) -> bool:
        return report.finished == 3

    def note(report: RoundReport) -> None:
        seen.append((report.finished, list(report.scores)))

    model = OpBoostRegressor(n_estimators=50, callbacks=[after_third, note])
    clone(model).fit(visitors(), spending(visitors()), eval_set=[later_visitors()])
    assert seen == [(1, ["rmse"]), (2, ["rmse"]), (3, ["rmse"])]
    assert model.fit(visitors(), spending(visitors())).model_.ensemble.n_rounds == 3


@pytest.mark.parametrize(("verbose", "rounds"), [(False, []), (True, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (9, [1, 5])])
def test_verbose_prints_scores_every_so_many_rounds(
    capsys: pytest.CaptureFixture[str], verbose: bool | int, rounds: list[int]
) -> None:
    model = OpBoostRegressor(n_estimators=5, max_depth=2)
    model.fit(visitors(), spending(visitors()), eval_set=[later_visitors()], verbose=verbose)
    scores = model.evals_result_["rmse"]
    assert capsys.readouterr().out.splitlines() == [f"[{one}/5]  rmse: {scores[one - 1]:.5f}" for one in rounds]


@pytest.mark.parametrize("verbose", [-1, 0.5, "yes", None])
def test_what_verbose_cannot_be_is_said(verbose: Any) -> None:
    with pytest.raises(ParameterError, match="verbose is true, false or a number of rounds; got"):
        OpBoostRegressor(**SMALL).fit(visitors(), spending(visitors()), verbose=verbose)


NEW: dict[str, Any] = {
    "objective": "reg:squarederror",
    "engine": "native",
    "max_leaves": 7,
    "max_delta_step": 0.5,
    "max_cat_to_onehot": 9,
    "scale_pos_weight": 1.0,
    "early_stopping_rounds": None,
    "eval_metric": ["mae", "rmse"],
    "monotone_constraints": {"age": 1},
    "interaction_constraints": [["age", "visits"]],
    "categorical_features": [],
}


def test_every_parameter_survives_a_clone_and_a_fit() -> None:
    model = OpBoostRegressor(**SMALL, **NEW)
    before = model.get_params()
    assert NEW.items() <= before.items()
    copy = clone(model)
    assert copy.get_params() == before
    model.fit(visitors(), spending(visitors()))
    assert model.get_params() == before
    np.testing.assert_array_equal(
        copy.fit(visitors(), spending(visitors())).predict(visitors()), model.predict(visitors())
    )


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "lightgbm"}, "engine must be native or xgboost; got 'lightgbm'"),
        ({"objective": "binary:logistic"}, "a regressor's objective is for numbers; got binary:logistic"),
        ({"objective": "rank:xendcg"}, "objective must be"),
        ({"objective": "mse"}, "objective must be .*; got 'mse'; did you mean 'reg:squarederror'"),
        ({"eval_metric": np.abs}, r"such as Metric\('own', function\), or a list of these; got <ufunc 'absolute'>"),
        ({"objective": np.abs}, r"such as Custom\(function\) for one of your own; got <ufunc 'absolute'>"),
        (
            {"eval_metric": ["rmse", np.abs]},
            r"such as Metric\('own', function\), or a list of these; got <ufunc 'absolute'>",
        ),
        ({"eval_metric": "aucpr"}, "eval_metric 'aucpr' does not score"),
        ({"eval_metric": ["rmse", "logloss"]}, "eval_metric 'logloss' does not score"),
        ({"early_stopping_rounds": 0}, "early_stopping_rounds must be"),
        ({"max_leaves": 1}, "max_leaves must be at least 2"),
        ({"max_depth": 0}, "max_depth = 0"),
        ({"max_delta_step": -1}, "max_delta_step must be"),
        ({"scale_pos_weight": 0}, "scale_pos_weight must be"),
        ({"class_weight": "balanced"}, "class_weight weighs classes, and the objective reg:squarederror has none"),
        ({"n_jobs": 0}, "n_jobs must be an integer, at least 1"),
        ({"class_weight": 2.0}, "class_weight must be balanced or a weight by class; got float"),
        ({"class_weight": {0: 0.0}}, "class_weight must be a number, at least 1e-100"),
        ({"class_weight": {0.5: 1.0}}, "class_weight's class must be an integer"),
        ({"scale_pos_weight": 2.0}, "scale_pos_weight weighs label 1 of binary:logistic"),
        ({"monotone_constraints": {"salary": 1}}, "'salary' does not exist"),
        ({"monotone_constraints": {"age": 2}}, "monotone constraint of 'age' must be -1, 0 or 1; got 2"),
        (
            {"monotone_constraints": "(1,0,0)"},
            r"a list or tuple of one of them for each column; got the text '\(1,0,0\)'",
        ),
        ({"monotone_constraints": [1, 0, 0, 0]}, "need one number for each of 3 columns; got 4"),
        ({"interaction_constraints": [["age", "salary"]]}, "'salary' does not exist"),
        ({"categorical_features": ["salary"]}, "'salary' does not exist"),
        ({"categorical_features": ["visits"], "monotone_constraints": {"visits": 1}}, "'visits' holds categories"),
    ],
    ids=lambda value: "" if isinstance(value, str) else str(value),
)
def test_a_setting_of_the_trees_that_makes_no_sense_is_refused_in_a_sentence(
    settings: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        OpBoostRegressor(**SMALL | settings).fit(visitors(), spending(visitors()), eval_set=[later_visitors()])
    assert "\n" not in str(caught.value)


def test_waiting_for_a_better_round_needs_an_eval_set() -> None:
    with pytest.raises(ParameterError, match="early_stopping_rounds needs validation rows"):
        OpBoostRegressor(early_stopping_rounds=3, **SMALL).fit(visitors(), spending(visitors()))


def test_an_unknown_metric_is_refused_without_rows_that_it_scores() -> None:
    with pytest.raises(ParameterError, match="eval_metric 'roc_auc' does not score what binary:logistic predicts"):
        OpBoostClassifier(eval_metric="roc_auc").fit(visitors(), spending(visitors()) > 10)


def test_more_than_one_eval_set_is_refused() -> None:
    words = (
        r"eval_set holds at most one pair of a table and its labels; got 2\. Give validation rows alone, as \[\(X_valid"
    )
    with pytest.raises(ParameterError, match=words):
        OpBoostRegressor(**SMALL).fit(visitors(), spending(visitors()), eval_set=[later_visitors(), later_visitors()])
