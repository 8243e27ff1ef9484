from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.errors import DataError, ParameterError, SchemaError
from opboost.metrics import default_metric
from opboost.privacy.guarantee import FRESH_ANSWERS, ROUTED_ANSWERS
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.losses import SquaredError
from opboost.vertical import OwnColumn, train

MODES = ("local", "desensitized", "routed")
SMALL: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "random_state": 0}


pytestmark = pytest.mark.usefixtures("one_thread")


@parametrize_with_checks(
    [
        OpBoostClassifier(),
        OpBoostRegressor(),
        OpBoostClassifier(bounds=(-200, 200), epsilon=20.0, random_state=0),
        OpBoostRegressor(bounds=(-200, 200), epsilon=20.0, random_state=0),
    ]
)
def test_the_estimators_keep_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def _frame(n_rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "age": rng.integers(18, 91, n_rows) * 1.0,
            "income": rng.normal(3000, 800, n_rows),
            "visits": rng.integers(0, 12, n_rows) * 1.0,
        }
    )


BOUNDS = {"age": (18, 90), "visits": (0, 11)}

# Points of the default domain that one year and one visit can span, together.
POINTS_APART = math.ceil(999 / 72) + math.ceil(999 / 11)


def _numbers(frame: pd.DataFrame) -> np.ndarray:
    noise = np.random.default_rng(1).normal(size=len(frame))
    return frame["age"].to_numpy() / 10 + np.nan_to_num(frame["visits"].to_numpy()) + noise


def _classes(frame: pd.DataFrame, names: list[str]) -> np.ndarray:
    numbers = _numbers(frame)
    shares = np.arange(1, len(names)) / len(names)
    return np.array(names)[np.digitize(numbers, np.quantile(numbers, shares))]


def _predictions(X: Any, bounds: Any, **settings: Any) -> np.ndarray:
    model = OpBoostRegressor(bounds=bounds, epsilon=1.0, **(SMALL | settings))
    return model.fit(X, _numbers(_frame())).predict(X)


@pytest.mark.parametrize(
    "bounds",
    [
        {0: (18, 90), 1: (0, 9000), 2: (0, 11)},
        {-1: (0, 11), -3: (18, 90), np.int64(1): (0, 9000)},
        {"visits": (0, 11), "age": (18, 90), 1: [0, 9000]},
        ([18, 0, 0], [90, 9000, 11]),
        (np.array([18.0, 0, 0]), np.array([90.0, 9000, 11])),
        [(18, 0, 0), (90, 9000, 11)],
    ],
    ids=["indices", "negative indices", "names", "lists", "arrays", "list of tuples"],
)
def test_bounds_say_the_same_however_they_are_written(bounds: Any) -> None:
    written_out = {"age": (18, 90), "income": (0, 9000), "visits": (0, 11)}
    np.testing.assert_array_equal(_predictions(_frame(), bounds), _predictions(_frame(), written_out))


def test_a_pair_of_numbers_bounds_every_column() -> None:
    expected = _predictions(_frame(), ([0, 0, 0], [9000, 9000, 9000]))
    np.testing.assert_array_equal(_predictions(_frame(), (0, 9000)), expected)


def test_other_bounds_give_another_release() -> None:
    assert (_predictions(_frame(), (0, 9000)) != _predictions(_frame(), (0, 5000))).any()


def test_columns_without_names_are_called_by_their_number() -> None:
    named = _predictions(_frame().to_numpy(), {"x0": (18, 90)})
    np.testing.assert_array_equal(named, _predictions(_frame().to_numpy(), {0: (18, 90)}))


def test_only_the_passive_columns_are_released() -> None:
    model = OpBoostRegressor(bounds=(0, 9000), passive_columns=["visits", 0], **SMALL)
    model.fit(_frame(), _numbers(_frame()))
    assert [column.column for column in model.guarantee_.columns] == ["age", "visits"]
    own = {feature.name for feature in model.model_.ensemble.features if feature.owner is None}
    assert own == {"income"}


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        (
            {"passive_columns": ["age", "income"], "bounds": {"age": (18, 90)}},
            SchemaError,
            "need public bounds, and these have none: income.*Nothing was released",
        ),
        ({"passive_columns": [0]}, SchemaError, "need public bounds, and these have none: age"),
        ({"epsilon": 1.0}, SchemaError, "a budget is given, but neither passive_columns nor bounds"),
        ({"epsilon": 1.0, "bounds": BOUNDS, "passive_columns": []}, SchemaError, "a budget is given, but neither"),
        ({"passive_columns": ["salary"]}, ParameterError, "'salary' does not exist; there are age, income, visits"),
        ({"passive_columns": [3]}, ParameterError, "column 3 does not exist"),
        ({"bounds": {-4: (0, 1)}}, ParameterError, "column -4 does not exist"),
        ({"bounds": {True: (0, 1)}}, ParameterError, "column True does not exist"),
        ({"bounds": {"age": (90, 18)}}, SchemaError, "'age': bounds must be finite with lower < upper"),
        ({"bounds": {"age": (18, np.inf)}}, SchemaError, "'age': bounds must be finite"),
        ({"bounds": (0, 1, 2)}, ParameterError, "bounds must map columns .* or be a pair"),
        ({"bounds": ([0, 0], [1, 1])}, ParameterError, "one entry per column"),
        ({"bounds": 5}, ParameterError, "bounds must map columns"),
    ],
    ids=lambda value: "" if isinstance(value, (str, type)) else str(value),
)
def test_columns_that_cannot_be_protected_as_asked_are_refused(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        OpBoostRegressor(**SMALL, **settings).fit(_frame(), _numbers(_frame()))


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
        OpBoostRegressor(bounds=BOUNDS, **{name: value}).fit(_frame(), _numbers(_frame()))


@pytest.mark.parametrize(
    ("mechanism", "name", "value"),
    [("local", "theta", 0), ("adj", "theta", 1001), ("adj", "alpha", 0.0), ("adj", "alpha", np.inf)],
)
def test_a_parameter_of_one_mechanism_is_refused_by_name(mechanism: Any, name: str, value: Any) -> None:
    with pytest.raises(ParameterError, match=rf"^{name} must be"):
        OpBoostRegressor(bounds=BOUNDS, mechanism=mechanism, **{name: value}).fit(_frame(), _numbers(_frame()))


def _with_gaps(column: str) -> pd.DataFrame:
    frame = _frame()
    frame.loc[::5, column] = np.nan
    return frame


def test_gaps_in_passive_columns_are_refused_unless_they_are_to_be_randomised() -> None:
    with pytest.raises(DataError, match=r"40 missing cells \(NaN\).*missing='category'.*Nothing was released"):
        OpBoostRegressor(bounds=BOUNDS, **SMALL).fit(_with_gaps("visits"), _numbers(_frame()))


def test_gaps_in_own_columns_need_no_permission() -> None:
    OpBoostRegressor(bounds=BOUNDS, **SMALL).fit(_with_gaps("income"), _numbers(_frame()))


@pytest.mark.parametrize(
    ("epsilon", "category_epsilon", "expected"), [(0.5, None, 3.0), (5.0, None, 5.0), (5.0, 0.25, 0.25)]
)
def test_the_guarantee_counts_what_hiding_the_gaps_costs(
    epsilon: float, category_epsilon: float | None, expected: float
) -> None:
    frame = _with_gaps("visits")
    model = OpBoostRegressor(
        bounds=BOUNDS, epsilon=epsilon, missing="category", category_epsilon=category_epsilon, **SMALL
    ).fit(frame, _numbers(frame))
    assert [column.missing_epsilon for column in model.guarantee_.columns] == [expected, expected]
    assert model.guarantee_.epsilon == pytest.approx(POINTS_APART * epsilon + 2 * expected, rel=1e-9)
    assert np.isfinite(model.predict(frame)).all()


def test_without_gaps_to_hide_the_guarantee_is_the_sum_over_the_columns() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=0.5, domain_size=100, **SMALL).fit(_frame(), _numbers(_frame()))
    assert model.guarantee_.notion == "dLDP"
    assert model.guarantee_.epsilon == pytest.approx((math.ceil(99 / 72) + math.ceil(99 / 11)) * 0.5, rel=1e-9)
    assert model.guarantee_.domain_loss == pytest.approx(2 * 0.5 * 99, rel=1e-9)


@pytest.mark.parametrize("prediction", ["routed", "desensitized", "local"])
def test_routed_answers_stand_with_their_number_under_what_is_not_protected(prediction: Any) -> None:
    model = OpBoostRegressor(bounds=BOUNDS, prediction=prediction, **SMALL).fit(_frame(), _numbers(_frame()))
    told = [words for words in model.guarantee_.not_protected if words.startswith(ROUTED_ANSWERS)]
    n_tests = len(model._share.router.tests.sources)
    assert n_tests > 1
    expected = [f"the model has {n_tests} tests on these columns, so {n_tests} exact bits per record"]
    assert [words.rpartition("; ")[2] for words in told] == (expected if prediction == "routed" else [])
    assert not [words for words in model.guarantee_.not_protected if "was changed" in words]


def test_answers_by_cells_stand_as_such_under_what_is_not_protected() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=1.0, answers="cells", cells=7, **SMALL)
    told = model.fit(_frame(), _numbers(_frame())).guarantee_.not_protected
    assert not any(ROUTED_ANSWERS in words for words in told)
    assert sum("in which of at most 7 cells of each column" in words for words in told) == 1
    # What was fitted counts.
    assert model.set_params(answers="tests", cells=3).guarantee_.not_protected == told


@pytest.mark.parametrize("estimator", [OpBoostRegressor, OpBoostClassifier])
def test_answers_by_cells_serve_every_mode(estimator: Any) -> None:
    """Exact answers are those that thresholds give in mode `local`; without noise, desensitized ones are the same."""
    frame, labels = _frame(), _numbers(_frame())
    labels = labels if estimator is OpBoostRegressor else (labels > np.median(labels)).astype(int)
    found = {}
    for mode in MODES:
        how: dict[str, Any] = {"prediction": mode, "answers": "cells", "cells": 7, **SMALL}
        model = estimator(bounds=BOUNDS, epsilon=math.inf, **how).fit(frame, labels)
        found[mode] = model.predict(frame)
        assert {one.n_cells for one in model.model_.ensemble.features if one.owner} == {7}
    for mode in MODES:
        np.testing.assert_array_equal(found[mode], found["local"])


def test_what_is_not_protected_follows_the_mode_in_which_new_records_are_scored() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=0.005, prediction="desensitized", n_estimators=5)
    model.fit(_frame(), _numbers(_frame()))
    first, second = (model.predict(_frame()) for _ in range(2))
    assert (first != second).any()
    told = {mode: model.set_params(prediction=mode).guarantee_.not_protected for mode in MODES}
    assert [mode for mode in MODES if FRESH_ANSWERS in told[mode]] == ["desensitized"]
    assert [mode for mode in MODES if any(ROUTED_ANSWERS in words for words in told[mode])] == ["routed"]


@pytest.mark.parametrize("random_state", [0, np.int64(3), np.random.RandomState(0)], ids=["int", "int64", "generator"])
def test_a_guarantee_on_seeded_bits_is_not_certified(random_state: Any) -> None:
    model = OpBoostRegressor(bounds=BOUNDS, n_estimators=1, random_state=random_state)
    guarantee = model.fit(_frame(), _numbers(_frame())).guarantee_
    assert (guarantee.is_secure, guarantee.certified) == (False, False)
    assert "NOT FOR RELEASE" in str(guarantee)


def test_a_guarantee_on_secure_bits_is_certified_and_its_noise_is_never_drawn_twice() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, n_estimators=5, epsilon=0.05)
    first, second = (model.fit(_frame(), _numbers(_frame())).predict(_frame()) for _ in range(2))
    assert (model.guarantee_.is_secure, model.guarantee_.certified) == (True, True)
    assert (first != second).any()


@pytest.mark.parametrize(
    ("settings", "cost"), [({"bounds": BOUNDS, "epsilon": np.inf}, np.inf), ({}, 0.0)], ids=["no noise", "own columns"]
)
def test_what_protects_nobody_is_no_guarantee(settings: dict[str, Any], cost: float) -> None:
    guarantee = OpBoostRegressor(n_estimators=1, **settings).fit(_frame(), _numbers(_frame())).guarantee_
    assert (guarantee.notion, guarantee.certified, guarantee.epsilon) == ("none", False, cost)


def test_columns_state_their_budgets_in_the_words_of_a_run_file() -> None:
    own = {"visits": {"odds": {"within": 1, "at_most": 2}}}
    found = OpBoostRegressor(bounds=BOUNDS, whole_range=4.0, budgets=own, **SMALL).fit(_frame(), _numbers(_frame()))
    age, visits = found.guarantee_.columns
    assert (round(age.domain_loss, 9), round(visits.epsilon, 9)) == (4.0, round(math.log(2), 9))
    with pytest.raises(SchemaError, match="budgets names columns that are not passive: income"):
        found.set_params(budgets={"income": {"epsilon": 1.0}}).fit(_frame(), _numbers(_frame()))


def test_a_local_map_says_that_it_publishes_the_cells() -> None:
    model = OpBoostRegressor(epsilon=0.1, bounds=BOUNDS, mechanism="local", **SMALL).fit(_frame(), _numbers(_frame()))
    assert any("cell of each value" in words for words in model.guarantee_.not_protected)
    assert math.isinf(model.guarantee_.domain_loss)


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]], ids=["two classes", "three classes"])
def test_scoring_alone_and_by_routing_agree_to_the_bit(names: list[str], mechanism: Any) -> None:
    frame, new = _with_gaps("visits"), _frame(seed=9)
    new.loc[::3, ["visits", "income"]] = np.nan
    found = [
        OpBoostClassifier(
            bounds=BOUNDS, epsilon=0.5, mechanism=mechanism, missing="category", prediction=prediction, **SMALL
        )
        .fit(frame, _classes(frame, names))
        .predict_proba(new)
        for prediction in ("local", "routed")
    ]
    np.testing.assert_array_equal(*found)


def test_desensitized_rows_are_scored_with_noise_of_their_own() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=0.005, **SMALL).fit(_frame(), _numbers(_frame()))
    routed, desensitized = (model.set_params(prediction=mode).predict(_frame()) for mode in ("routed", "desensitized"))
    assert (routed != desensitized).mean() > 0.5


@pytest.mark.parametrize("prediction", MODES)
def test_three_classes_get_probabilities_that_sum_to_one(prediction: Any) -> None:
    frame = _frame()
    labels = _classes(frame, ["low", "mid", "top"])
    model = OpBoostClassifier(bounds=BOUNDS, epsilon=2.0, prediction=prediction, **SMALL).fit(frame, labels)
    probabilities = model.predict_proba(frame)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    assert probabilities.shape == (200, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(frame), model.classes_[probabilities.argmax(axis=1)])
    assert (model.predict(frame) == labels).mean() > 0.7


def test_values_outside_the_bounds_are_read_as_the_bounds() -> None:
    model = OpBoostRegressor(bounds={"age": (30, 60)}, epsilon=1.0, **SMALL).fit(_frame(), _numbers(_frame()))
    clipped = _frame().assign(age=lambda frame: frame["age"].clip(30, 60))
    np.testing.assert_array_equal(model.predict(_frame()), model.predict(clipped))


def test_the_plain_model_is_the_tree_core_alone() -> None:
    frame, labels = _frame(), _numbers(_frame())
    columns = [OwnColumn(name, frame[name].to_numpy()) for name in frame]
    parameters = BoostingParameters(n_estimators=5, max_depth=3)
    core = bind(train(columns, labels, np.ones(200), loss=SquaredError(), parameters=parameters, seed=0), {})
    expected = core.predict(frame.to_numpy())
    np.testing.assert_array_equal(OpBoostRegressor(**SMALL).fit(frame, labels).predict(frame), expected)


@pytest.mark.parametrize("prediction", MODES)
def test_without_noise_gaps_are_treated_as_by_the_plain_model(prediction: Any) -> None:
    frame = _with_gaps("visits")
    joint = OpBoostRegressor(
        bounds=BOUNDS, epsilon=np.inf, missing="category", prediction=prediction, domain_size=1000, **SMALL
    )
    plain = OpBoostRegressor(**SMALL).fit(frame, _numbers(frame))
    np.testing.assert_array_equal(joint.fit(frame, _numbers(frame)).predict(frame), plain.predict(frame))


@pytest.mark.parametrize("subsample", [1.0, 0.5])
def test_rows_of_weight_zero_are_as_good_as_removed_from_the_plain_model(subsample: float) -> None:
    frame, labels = _frame(), _numbers(_frame())
    weights = np.random.default_rng(0).integers(0, 3, 200) * 1.0
    kept = weights > 0
    model = OpBoostRegressor(subsample=subsample, **SMALL)
    weighted = model.fit(frame, labels, sample_weight=weights).predict(frame)
    removed = model.fit(frame[kept], labels[kept], sample_weight=weights[kept]).predict(frame)
    np.testing.assert_array_equal(weighted, removed)


def test_a_row_of_weight_two_is_as_good_as_two_rows() -> None:
    """To the rounding of the first score, which is a mean in another order."""
    frame, labels = _frame(), _numbers(_frame())
    weights = np.random.default_rng(0).integers(1, 5, 200)
    model = OpBoostRegressor(**SMALL)
    weighted = model.fit(frame, labels, sample_weight=weights).predict(frame)
    repeated = model.fit(frame.loc[frame.index.repeat(weights)], np.repeat(labels, weights)).predict(frame)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-7)


def test_weights_of_another_scale_change_no_prediction_without_regularisation() -> None:
    """To 1e-5 of the predictions' spread: the largest weight sets the step of the gradients' grid, 2^-22 of it."""
    frame, labels = _frame(), _numbers(_frame())
    weights = np.random.default_rng(0).uniform(0.1, 3, 200)
    model = OpBoostRegressor(reg_lambda=0.0, min_child_weight=0.0, **SMALL)
    one, other = (model.fit(frame, labels, sample_weight=factor * weights).predict(frame) for factor in (1.0, 5.7))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.ptp(one))


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"(?i)sample weights"):
        OpBoostRegressor(**SMALL).fit(_frame(), _numbers(_frame()), sample_weight=np.zeros(200))


def test_one_class_is_refused_without_naming_it() -> None:
    with pytest.raises(DataError, match="at least two classes") as caught:
        OpBoostClassifier(**SMALL).fit(_frame(), np.full(200, "diabetic"))
    assert "diabetic" not in str(caught.value)


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
def test_a_clone_has_the_same_parameters_and_under_a_seed_the_same_predictions(bounds: Any) -> None:
    model = OpBoostRegressor(bounds=bounds, subsample=0.5, colsample_bytree=0.7, **SMALL)
    model.fit(_frame(), _numbers(_frame()))
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    assert not hasattr(copy, "model_")
    np.testing.assert_array_equal(copy.fit(_frame(), _numbers(_frame())).predict(_frame()), model.predict(_frame()))


def test_fitting_leaves_every_parameter_as_it_was_given() -> None:
    given = {"bounds": BOUNDS, "passive_columns": ["age"], "epsilon": None, "theta": None, "category_epsilon": None}
    model = OpBoostRegressor(**given, **SMALL)
    before = model.get_params()
    assert model.fit(_frame(), _numbers(_frame())).get_params() == before
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


def _held_out(n_rows: int = 100) -> tuple[pd.DataFrame, np.ndarray]:
    frame = _frame(n_rows, seed=7)
    return frame, _numbers(frame)


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_rows_of_the_eval_set_are_scored_after_every_round_and_end_the_training(bounds: Any, engine: Any) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost")
    frame, labels = _frame(), _numbers(_frame())
    model = OpBoostRegressor(
        bounds=bounds,
        epsilon=None if bounds is None else np.inf,
        n_estimators=200,
        learning_rate=0.9,
        random_state=0,
        early_stopping_rounds=5,
        eval_metric=["mae", "rmse"],
        engine=engine,
    )
    model.fit(frame, labels, eval_set=[_held_out()])
    scores = model.evals_result_
    assert list(scores) == ["mae", "rmse"]
    assert len(scores["rmse"]) < 200
    assert model.best_iteration_ == int(np.argmin(scores["rmse"])) == len(scores["rmse"]) - 6
    assert model.model_.ensemble.n_rounds == model.best_iteration_ + 1
    held_out, truth = _held_out()
    error = np.sqrt(np.mean((model.predict(held_out) - truth) ** 2))
    # XGBoost scores in single precision.
    assert scores["rmse"][model.best_iteration_] == pytest.approx(error, rel=1e-9 if engine == "native" else 1e-5)


def test_the_eval_set_never_influences_the_trees() -> None:
    frame, labels = _frame(), _numbers(_frame())
    model, (held_out, truth) = OpBoostRegressor(**SMALL), _held_out()
    plain = model.fit(frame, labels).predict(frame)
    for numbers in (truth, -truth):
        np.testing.assert_array_equal(model.fit(frame, labels, eval_set=[(held_out, numbers)]).predict(frame), plain)
    both = model.fit(pd.concat([frame, held_out]), np.concatenate([labels, truth])).predict(frame)
    assert (both != plain).any()


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]], ids=["two classes", "three classes"])
def test_classes_of_the_eval_set_are_those_of_the_training_rows(names: list[str]) -> None:
    frame, held_out = _frame(), _frame(seed=7)
    model = OpBoostClassifier(n_estimators=3, max_depth=2)
    model.fit(frame, _classes(frame, names), eval_set=[(held_out, _classes(held_out, names))])
    assert list(model.evals_result_) == ["logloss" if len(names) == 2 else "mlogloss"]
    assert len(model.evals_result_[default_metric(model.model_.ensemble.loss)]) == 3
    with pytest.raises(DataError, match="eval_set has classes that the training labels lack") as caught:
        model.fit(frame, _classes(frame, names), eval_set=[(held_out, np.full(200, "z"))])
    assert "'z'" not in str(caught.value)


def test_without_an_eval_set_there_are_no_scores() -> None:
    model = OpBoostRegressor(**SMALL).fit(_frame(), _numbers(_frame()))
    assert (model.evals_result_, model.best_iteration_) == ({}, -1)


def test_rounds_are_reported_and_the_caller_may_end_them() -> None:
    seen: list[tuple[int, list[str]]] = []

    def after_third(report: RoundReport) -> bool:
        return report.finished == 3

    def note(report: RoundReport) -> None:
        seen.append((report.finished, list(report.scores)))

    model = OpBoostRegressor(n_estimators=50, callbacks=[after_third, note])
    clone(model).fit(_frame(), _numbers(_frame()), eval_set=[_held_out()])
    assert seen == [(1, ["rmse"]), (2, ["rmse"]), (3, ["rmse"])]
    assert model.fit(_frame(), _numbers(_frame())).model_.ensemble.n_rounds == 3


@pytest.mark.parametrize(("verbose", "rounds"), [(False, []), (True, [1, 2, 3, 4, 5]), (2, [1, 3, 5]), (9, [1, 5])])
def test_verbose_prints_scores_every_so_many_rounds(
    capsys: pytest.CaptureFixture[str], verbose: bool | int, rounds: list[int]
) -> None:
    model = OpBoostRegressor(n_estimators=5, max_depth=2)
    model.fit(_frame(), _numbers(_frame()), eval_set=[_held_out()], verbose=verbose)
    scores = model.evals_result_["rmse"]
    assert capsys.readouterr().out.splitlines() == [f"[{one}/5]  rmse: {scores[one - 1]:.5f}" for one in rounds]


@pytest.mark.parametrize("verbose", [-1, 0.5, "yes", None])
def test_what_verbose_cannot_be_is_said(verbose: Any) -> None:
    with pytest.raises(ParameterError, match="verbose is true, false or a number of rounds; got"):
        OpBoostRegressor(**SMALL).fit(_frame(), _numbers(_frame()), verbose=verbose)


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_bounds_by_name_go_through_a_pipeline(container: str, prefixed: bool) -> None:
    pytest.importorskip(container)
    table = _frame().assign(job=np.where(_frame()["age"] > 40, "nurse", "clerk"))
    columns = ColumnTransformer(
        [("numbers", SimpleImputer(), ["age", "income"]), ("words", "passthrough", ["job"])],
        remainder="drop",
        verbose_feature_names_out=prefixed,
    )
    bounds = {"age": (0, 100), "job": ["clerk", "nurse"]}
    last = OpBoostRegressor(**SMALL, bounds=bounds, monotone_constraints={"age": 1})
    model = make_pipeline(columns, last).set_output(transform=container).fit(table, _numbers(table))
    marks = ("numbers__", "words__") if prefixed else ("", "")
    assert [one.column for one in model[-1].guarantee_.columns] == [f"{marks[0]}age", f"{marks[1]}job"]
    assert model.predict(table).shape == (len(table),)


def test_without_names_a_pipeline_is_told_how_to_keep_them() -> None:
    model = make_pipeline(SimpleImputer(), OpBoostRegressor(**SMALL, bounds={"age": (0, 100)}))
    with pytest.raises(ParameterError, match=r"an array has no names: .*set_output\(transform='pandas'\)"):
        model.fit(_frame(), _numbers(_frame()))


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
@pytest.mark.parametrize(
    "constraints",
    [{"age": -1, "visits": -1}, {0: -1, -1: -1}, [-1, 0, -1], (-1, 0, -1), np.array([-1, 0, -1])],
    ids=["names", "positions", "list", "tuple", "array"],
)
def test_monotone_columns_are_named_numbered_or_all_given_in_order(constraints: Any, bounds: Any) -> None:
    frame, labels = _frame(), _numbers(_frame())
    epsilon = None if bounds is None else np.inf
    model = OpBoostRegressor(bounds=bounds, epsilon=epsilon, monotone_constraints=constraints, **SMALL)
    rows = pd.concat([frame.iloc[:20].assign(visits=float(visits)) for visits in range(12)])
    steps = np.diff(model.fit(frame, labels).predict(rows).reshape(12, 20), axis=0)
    assert (steps <= 1e-12).all()
    free = OpBoostRegressor(bounds=bounds, epsilon=epsilon, **SMALL).fit(frame, labels)
    assert (np.diff(free.predict(rows).reshape(12, 20), axis=0) > 0.1).any()


@pytest.mark.parametrize("groups", [[["age"], ["income", "visits"]], [[0], [1, -1]], ((0,), ("income", 2))], ids=str)
def test_groups_of_columns_are_named_or_numbered(groups: Any) -> None:
    model = OpBoostRegressor(interaction_constraints=groups, **SMALL).fit(_frame(), _numbers(_frame()))
    for tree in model.model_.ensemble.trees:
        used = {int(column) for column in tree.columns[~tree.is_leaf]}
        assert used <= {0} or used <= {1, 2}


@pytest.mark.parametrize("column", ["town", 1, -2])
def test_a_column_of_categories_is_split_by_sets(column: Any) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"age": rng.normal(size=300), "town": rng.integers(0, 9, 300) * 1.0, "x": rng.normal(size=300)}
    )
    labels = (frame["town"] % 2).to_numpy() + rng.normal(size=300) / 100
    model = OpBoostRegressor(
        categorical_features=[column], n_estimators=1, max_depth=1, learning_rate=1.0, reg_lambda=0
    )
    tree = model.fit(frame, labels).model_.ensemble.trees[0]
    assert tree.left_categories in ({0: (0, 2, 4, 6, 8)}, {0: (1, 3, 5, 7)})
    assert np.isfinite(model.predict(frame.assign(town=99.0))).all()
    as_number = OpBoostRegressor(n_estimators=1, max_depth=1).fit(frame, labels)
    assert as_number.model_.ensemble.trees[0].left_categories == {}


def test_a_passive_column_named_as_categorical_is_refused() -> None:
    """`categorical_features` are columns of the active party; on a passive one it must not be dropped in silence."""
    with pytest.raises(ParameterError, match="visits"):
        OpBoostRegressor(bounds=BOUNDS, categorical_features=["visits"], **SMALL).fit(_frame(), _numbers(_frame()))


def test_counts_are_predicted_by_their_mean() -> None:
    frame = _frame(500)
    means = np.exp(frame["visits"].to_numpy() / 6)
    counts = np.random.default_rng(0).poisson(means)
    model = OpBoostRegressor(objective="count:poisson", n_estimators=30, max_depth=3)
    predicted = model.fit(frame, counts, eval_set=[(frame, counts)]).predict(frame)
    assert list(model.evals_result_) == ["poisson-nloglik"]
    assert (predicted > 0).all()
    # The mean of 500 counts of a mean of about 3 has a standard error of 3 %.
    assert predicted.mean() == pytest.approx(counts.mean(), rel=0.05)
    assert np.corrcoef(predicted, means)[0, 1] > 0.9


def test_label_one_may_weigh_more() -> None:
    frame = _frame()
    labels = (_numbers(frame) > 12) * 1
    plain, heavy = (
        OpBoostClassifier(scale_pos_weight=factor, **SMALL).fit(frame, labels).predict_proba(frame)[:, 1]
        for factor in (1.0, 5.0)
    )
    assert heavy.mean() > plain.mean() + 0.05
    weighted = OpBoostClassifier(**SMALL).fit(frame, labels, sample_weight=np.where(labels == 1, 5.0, 1.0))
    np.testing.assert_array_equal(weighted.predict_proba(frame)[:, 1], heavy)


def test_apply_gives_leaves_that_decide_the_scores() -> None:
    frame = _frame()
    model = OpBoostRegressor(epsilon=np.inf, bounds={"visits": (0, 11)}, **SMALL).fit(frame, _numbers(frame))
    leaves = model.apply(frame)
    assert (leaves.shape, leaves.dtype) == ((len(frame), SMALL["n_estimators"]), np.int64)
    by_leaves = pd.DataFrame(leaves).assign(score=model.predict(frame)).groupby(list(range(leaves.shape[1])))["score"]
    assert (by_leaves.max() - by_leaves.min()).max() < 1e-12


@pytest.mark.parametrize("class_weight", ["balanced", {"low": 3.0, "high": 0.5}], ids=["balanced", "by class"])
def test_weights_of_classes_are_weights_of_their_rows(class_weight: Any) -> None:
    frame = _frame()
    labels = np.array(["low", "medium", "high"])[np.digitize(_numbers(frame), [12, 20])]
    by_class = class_weight
    if class_weight == "balanced":
        by_class = {name: len(labels) / 3 / (labels == name).sum() for name in np.unique(labels)}
    rows = np.array([by_class.get(label, 1.0) for label in labels])
    weighted = OpBoostClassifier(class_weight=class_weight, **SMALL).fit(frame, labels).predict_proba(frame)
    np.testing.assert_allclose(
        weighted, OpBoostClassifier(**SMALL).fit(frame, labels, sample_weight=rows).predict_proba(frame), atol=1e-12
    )
    assert np.abs(weighted - OpBoostClassifier(**SMALL).fit(frame, labels).predict_proba(frame)).max() > 0.01
    with pytest.raises(ParameterError, match="class_weight names classes that the labels lack: none"):
        OpBoostClassifier(class_weight={"none": 2.0}, **SMALL).fit(frame, labels)


@pytest.mark.parametrize("bounds", [None, {"visits": (0, 11)}], ids=["plain", "joint"])
def test_importances_are_shares_in_the_gain_by_column_in_the_order_of_the_table(bounds: Any) -> None:
    frame = _frame()
    epsilon = None if bounds is None else np.inf
    model = OpBoostRegressor(bounds=bounds, epsilon=epsilon, **SMALL).fit(frame, 100 * frame["visits"] + frame["age"])
    shares = model.feature_importances_
    assert shares.shape == (3,)
    assert shares.sum() == pytest.approx(1)
    assert shares[2] > 0.99 > 0.01 > shares[0] > shares[1] >= 0
    by_feature = model.model_.ensemble.importance("total_gain")
    of_visits = [f.owner is not None or f.name == "visits" for f in model.model_.ensemble.features]
    assert shares[2] == pytest.approx(by_feature[of_visits].sum() / by_feature.sum())


def test_a_model_without_splits_gives_no_column_importance() -> None:
    model = OpBoostRegressor(gamma=1e12, **SMALL).fit(_frame(), _numbers(_frame()))
    assert model.feature_importances_.tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"max_leaves": 6, "max_depth": 0},
        {"monotone_constraints": {"age": 1}},
        {"interaction_constraints": [["age"], ["income", "visits"]]},
    ],
    ids=str,
)
@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
def test_both_engines_predict_alike(settings: dict[str, Any], bounds: Any) -> None:
    """To single precision of the predictions of about 15."""
    pytest.importorskip("xgboost")
    frame, labels = _frame(1000), _numbers(_frame(1000))
    epsilon = None if bounds is None else 1.0
    native, other = (
        OpBoostRegressor(
            engine=engine, bounds=bounds, epsilon=epsilon, correct_noise=False, **SMALL | {"max_depth": 3} | settings
        )
        .fit(frame, labels)
        .predict(frame)
        for engine in ("native", "xgboost")
    )
    np.testing.assert_allclose(native, other, rtol=0, atol=1e-4)


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
    model.fit(_frame(), _numbers(_frame()))
    assert model.get_params() == before
    np.testing.assert_array_equal(copy.fit(_frame(), _numbers(_frame())).predict(_frame()), model.predict(_frame()))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"engine": "lightgbm"}, "engine must be native or xgboost; got 'lightgbm'"),
        ({"objective": "binary:logistic"}, "a regressor's objective is for numbers; got binary:logistic"),
        ({"objective": "rank:xendcg"}, "objective must be"),
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
        OpBoostRegressor(**SMALL | settings).fit(_frame(), _numbers(_frame()), eval_set=[_held_out()])
    assert "\n" not in str(caught.value)


def test_waiting_for_a_better_round_needs_an_eval_set() -> None:
    with pytest.raises(ParameterError, match="early_stopping_rounds needs validation rows"):
        OpBoostRegressor(early_stopping_rounds=3, **SMALL).fit(_frame(), _numbers(_frame()))


def test_a_sequence_of_directions_is_one_for_each_column() -> None:
    with pytest.raises(ParameterError, match="monotone_constraints"):
        OpBoostRegressor(monotone_constraints=[1, 0], **SMALL).fit(_frame(), _numbers(_frame()))


def test_more_than_one_eval_set_is_refused() -> None:
    with pytest.raises(ParameterError, match="eval_set holds at most one pair of a table and its labels; got 2"):
        OpBoostRegressor(**SMALL).fit(_frame(), _numbers(_frame()), eval_set=[_held_out(), _held_out()])


def test_a_classifier_takes_no_objective_that_its_labels_do_not_call_for() -> None:
    frame = _frame()
    with pytest.raises(ParameterError, match="2 classes need the objective binary:logistic; got 'multi:softprob'"):
        OpBoostClassifier(objective="multi:softprob").fit(frame, _classes(frame, ["no", "yes"]))


def test_categories_that_are_no_numbers_of_categories_are_refused() -> None:
    with pytest.raises(DataError, match="categories must be numbered by integers"):
        OpBoostRegressor(categorical_features=["income"], **SMALL).fit(_frame(), _numbers(_frame()))
