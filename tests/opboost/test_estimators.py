from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.errors import DataError, ParameterError, SchemaError
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import SquaredError
from opboost.vertical import OwnColumn, bind, train

MODES = ("local", "desensitized", "routed")
SMALL: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "random_state": 0}


pytestmark = pytest.mark.usefixtures("one_thread")


def _expected_failures(estimator: Any) -> dict[str, str]:
    if estimator.bounds is None:
        return {}
    reason = "every row draws its own noise, so a row twice is not a row of weight two"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [
        OpBoostClassifier(),
        OpBoostRegressor(),
        OpBoostClassifier(bounds=(-200, 200), epsilon=20.0, random_state=0),
        OpBoostRegressor(bounds=(-200, 200), epsilon=20.0, random_state=0),
    ],
    expected_failed_checks=_expected_failures,
)
def test_the_estimators_keep_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def _frame(n_rows: int = 200, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    return pd.DataFrame({
        "age": rng.integers(18, 91, n_rows) * 1.0,
        "income": rng.normal(3000, 800, n_rows),
        "visits": rng.integers(0, 12, n_rows) * 1.0,
    })  # fmt: skip


BOUNDS = {"age": (18, 90), "visits": (0, 11)}


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
        ({"passive_columns": ["age", "income"], "bounds": {"age": (18, 90)}}, SchemaError,
         "need public bounds, and these have none: income.*Nothing was released"),
        ({"passive_columns": [0]}, SchemaError, "need public bounds, and these have none: age"),
        ({"epsilon": 1.0}, SchemaError, "epsilon is given, but neither passive_columns nor bounds"),
        ({"epsilon": 1.0, "bounds": BOUNDS, "passive_columns": []}, SchemaError, "epsilon is given, but neither"),
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
)  # fmt: skip
def test_columns_that_cannot_be_protected_as_asked_are_refused(
    settings: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        OpBoostRegressor(**SMALL, **settings).fit(_frame(), _numbers(_frame()))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", 0.0), ("epsilon", -1.0), ("epsilon", np.nan), ("epsilon", "much"), ("mechanism", "planar"),
        ("law", "gaussian"), ("domain_size", 1), ("domain_size", 10.0), ("category_epsilon", 0.0),
        ("prediction", "guessed"), ("n_estimators", -1), ("max_depth", 0), ("learning_rate", 0.0), ("reg_lambda", -1.0),
        ("gamma", -1.0), ("min_child_weight", -1.0), ("subsample", 0.0), ("colsample_bytree", 2.0), ("max_bin", 2),
    ],
)  # fmt: skip
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
    assert model.guarantee_.epsilon == pytest.approx(2 * (epsilon + expected), rel=1e-9)
    assert np.isfinite(model.predict(frame)).all()


def test_without_gaps_to_hide_the_guarantee_is_the_sum_over_the_columns() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=0.5, domain_size=100, **SMALL).fit(_frame(), _numbers(_frame()))
    assert model.guarantee_.notion == "dLDP"
    assert model.guarantee_.epsilon == pytest.approx(2 * 0.5, rel=1e-9)
    assert model.guarantee_.domain_loss == pytest.approx(2 * 0.5 * 99, rel=1e-9)


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


def test_a_local_map_says_that_it_publishes_the_cells() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, mechanism="local", **SMALL).fit(_frame(), _numbers(_frame()))
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
        ).fit(frame, _classes(frame, names)).predict_proba(new)
        for prediction in ("local", "routed")
    ]  # fmt: skip
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
