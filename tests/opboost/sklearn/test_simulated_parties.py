"""Parties that an estimator simulates: what they release, promise and answer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.columns import OwnColumn
from opboost.errors import DataError, ParameterError, SchemaError
from opboost.privacy.guarantee import FRESH_ANSWERS, ROUTED_ANSWERS
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import SquaredError
from opboost.vertical import train
from tests.support.visitors import BOUNDS, MODES, SMALL, predictions_of, spending, spending_classes, visitors

pytestmark = pytest.mark.usefixtures("one_thread")


# Points of the default domain that one year and one visit can span, together.
POINTS_APART = math.ceil(999 / 72) + math.ceil(999 / 11)


def test_other_bounds_give_another_release() -> None:
    assert (predictions_of(visitors(), (0, 9000)) != predictions_of(visitors(), (0, 12000))).any()


def test_only_the_passive_columns_are_released() -> None:
    model = OpBoostRegressor(bounds=(0, 9000), passive_columns=["visits", 0], **SMALL)
    model.fit(visitors(), spending(visitors()))
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
        OpBoostRegressor(**SMALL, **settings).fit(visitors(), spending(visitors()))


def _with_gaps(column: str) -> pd.DataFrame:
    frame = visitors()
    frame.loc[::5, column] = np.nan
    return frame


def test_gaps_in_passive_columns_are_refused_unless_they_are_to_be_randomised() -> None:
    with pytest.raises(DataError, match=r"40 missing cells \(NaN\).*missing='category'.*Nothing was released"):
        OpBoostRegressor(bounds=BOUNDS, **SMALL).fit(_with_gaps("visits"), spending(visitors()))


def test_gaps_in_own_columns_need_no_permission() -> None:
    frame = _with_gaps("income")
    model = OpBoostRegressor(bounds=BOUNDS, **SMALL).fit(frame, spending(visitors()))
    assert np.isfinite(model.predict(frame)).all()


@pytest.mark.parametrize(
    ("epsilon", "category_epsilon", "expected"), [(0.5, None, 3.0), (5.0, None, 5.0), (5.0, 0.25, 0.25)]
)
def test_the_guarantee_counts_what_hiding_the_gaps_costs(
    epsilon: float, category_epsilon: float | None, expected: float
) -> None:
    frame = _with_gaps("visits")
    model = OpBoostRegressor(
        bounds=BOUNDS, epsilon=epsilon, missing="category", category_epsilon=category_epsilon, **SMALL
    ).fit(frame, spending(frame))
    assert [column.missing_epsilon for column in model.guarantee_.columns] == [expected, expected]
    assert model.guarantee_.epsilon == pytest.approx(POINTS_APART * epsilon + 2 * expected, rel=1e-9)
    assert np.isfinite(model.predict(frame)).all()


def test_without_gaps_to_hide_the_guarantee_is_the_sum_over_the_columns() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=0.5, domain_size=100, **SMALL).fit(visitors(), spending(visitors()))
    assert model.guarantee_.notion == "dLDP"
    assert model.guarantee_.epsilon == pytest.approx((math.ceil(99 / 72) + math.ceil(99 / 11)) * 0.5, rel=1e-9)
    assert model.guarantee_.domain_loss == pytest.approx(2 * 0.5 * 99, rel=1e-9)


@pytest.mark.parametrize("prediction", ["routed", "desensitized", "local"])
def test_routed_answers_stand_with_their_number_under_what_is_not_protected(prediction: Any) -> None:
    model = OpBoostRegressor(bounds=BOUNDS, prediction=prediction, **SMALL).fit(visitors(), spending(visitors()))
    told = [words for words in model.guarantee_.not_protected if words.startswith(ROUTED_ANSWERS)]
    n_tests = len(model._share.router.tests.sources)
    assert n_tests > 1
    counted = f"the model has {n_tests} tests on these columns, so {n_tests} exact bits per record"
    expected = [f"{counted}, and another model asks its own"]
    assert [words.rpartition("; ")[2] for words in told] == (expected if prediction == "routed" else [])
    assert not [words for words in model.guarantee_.not_protected if "was changed" in words]


def test_answers_by_cells_stand_as_such_under_what_is_not_protected() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=1.0, answers="cells", cells=7, **SMALL)
    told = model.fit(visitors(), spending(visitors())).guarantee_.not_protected
    assert not any(ROUTED_ANSWERS in words for words in told)
    assert sum("in which of at most 7 cells of each other column" in words for words in told) == 1
    # What was fitted counts.
    assert model.set_params(answers="tests", cells=3).guarantee_.not_protected == told


def test_an_unordered_category_is_told_whole_however_few_cells_there_are_and_the_guarantee_says_so() -> None:
    towns = [f"town {number}" for number in range(12)]
    frame = pd.DataFrame({"own": np.arange(120.0), "town": towns * 10})
    model = OpBoostRegressor(bounds={"town": towns}, answers="cells", cells=2, **SMALL).fit(frame, np.arange(120.0))
    asked = {one.name for one in model.model_.ensemble.features if one.n_cells is not None}
    assert asked == {f"town={town}" for town in towns}
    assert sum("which unordered category a record has" in words for words in model.guarantee_.not_protected) == 1


@pytest.mark.parametrize("estimator", [OpBoostRegressor, OpBoostClassifier])
def test_answers_by_cells_serve_every_mode(estimator: Any) -> None:
    """Exact answers are those that thresholds give in mode `local`; without noise, desensitized ones are the same."""
    frame, labels = visitors(), spending(visitors())
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
    model.fit(visitors(), spending(visitors()))
    first, second = (model.predict(visitors()) for _ in range(2))
    assert (first != second).any()
    told = {mode: model.set_params(prediction=mode).guarantee_.not_protected for mode in MODES}
    assert [mode for mode in MODES if FRESH_ANSWERS in told[mode]] == ["desensitized"]
    assert [mode for mode in MODES if any(ROUTED_ANSWERS in words for words in told[mode])] == ["routed"]
    # A slip of the pen was taken for exact answers, of which the guarantee said nothing.
    with pytest.raises(ParameterError, match="prediction must be local, desensitized or routed"):
        model.set_params(prediction="desensitised").predict(visitors())


@pytest.mark.parametrize("random_state", [0, np.int64(3), np.random.RandomState(0)], ids=["int", "int64", "generator"])
def test_a_guarantee_on_seeded_bits_is_not_certified(random_state: Any) -> None:
    model = OpBoostRegressor(bounds=BOUNDS, n_estimators=1, random_state=random_state)
    guarantee = model.fit(visitors(), spending(visitors())).guarantee_
    assert (guarantee.is_secure, guarantee.certified) == (False, False)
    assert "NOT FOR RELEASE" in str(guarantee)


def test_a_guarantee_on_secure_bits_is_certified_and_its_noise_is_never_drawn_twice() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, n_estimators=5, epsilon=0.05)
    first, second = (model.fit(visitors(), spending(visitors())).predict(visitors()) for _ in range(2))
    assert (model.guarantee_.is_secure, model.guarantee_.certified) == (True, True)
    assert (first != second).any()


@pytest.mark.parametrize(
    ("settings", "cost"), [({"bounds": BOUNDS, "epsilon": np.inf}, np.inf), ({}, 0.0)], ids=["no noise", "own columns"]
)
def test_what_protects_nobody_is_no_guarantee(settings: dict[str, Any], cost: float) -> None:
    guarantee = OpBoostRegressor(n_estimators=1, **settings).fit(visitors(), spending(visitors())).guarantee_
    assert (guarantee.notion, guarantee.certified, guarantee.epsilon) == ("none", False, cost)


def test_columns_state_their_budgets_in_the_words_of_a_run_file() -> None:
    own = {"visits": {"odds": {"within": 1, "at_most": 2}}}
    found = OpBoostRegressor(bounds=BOUNDS, whole_range=4.0, budgets=own, **SMALL).fit(visitors(), spending(visitors()))
    age, visits = found.guarantee_.columns
    assert (round(age.domain_loss, 9), round(visits.epsilon, 9)) == (4.0, round(math.log(2), 9))
    with pytest.raises(SchemaError, match="budgets names columns that are not passive: income"):
        found.set_params(budgets={"income": {"epsilon": 1.0}}).fit(visitors(), spending(visitors()))


def test_a_local_map_says_that_it_publishes_the_cells() -> None:
    model = OpBoostRegressor(epsilon=0.1, bounds=BOUNDS, mechanism="local", **SMALL).fit(
        visitors(), spending(visitors())
    )
    assert any("cell of each value" in words for words in model.guarantee_.not_protected)
    assert math.isinf(model.guarantee_.domain_loss)


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]], ids=["two classes", "three classes"])
def test_scoring_alone_and_by_routing_agree_to_the_bit(names: list[str], mechanism: Any) -> None:
    frame, new = _with_gaps("visits"), visitors(seed=9)
    new.loc[::3, ["visits", "income"]] = np.nan
    found = [
        OpBoostClassifier(
            bounds=BOUNDS, epsilon=0.5, mechanism=mechanism, missing="category", prediction=prediction, **SMALL
        )
        .fit(frame, spending_classes(frame, names))
        .predict_proba(new)
        for prediction in ("local", "routed")
    ]
    np.testing.assert_array_equal(*found)


def test_desensitized_rows_are_scored_with_noise_of_their_own() -> None:
    model = OpBoostRegressor(bounds=BOUNDS, epsilon=0.005, **SMALL).fit(visitors(), spending(visitors()))
    routed, desensitized = (
        model.set_params(prediction=mode).predict(visitors()) for mode in ("routed", "desensitized")
    )
    assert (routed != desensitized).mean() > 0.5


def test_values_outside_the_bounds_are_read_as_the_bounds() -> None:
    model = OpBoostRegressor(bounds={"age": (30, 60)}, epsilon=1.0, **SMALL)
    with pytest.warns(UserWarning, match="125 of 200 values of column 'age' lie outside its bounds, 30 to 60"):
        model.fit(visitors(), spending(visitors()))
    clipped = visitors().assign(age=lambda frame: frame["age"].clip(30, 60))
    np.testing.assert_array_equal(model.predict(visitors()), model.predict(clipped))


def test_the_plain_model_is_the_tree_core_alone() -> None:
    frame, labels = visitors(), spending(visitors())
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
    plain = OpBoostRegressor(**SMALL).fit(frame, spending(frame))
    np.testing.assert_array_equal(joint.fit(frame, spending(frame)).predict(frame), plain.predict(frame))


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_estimators", np.int64(5)), ("max_depth", np.uint8(3)), ("whole_range", np.float32(4)), ("cells", np.uint8(5))],
)
def test_a_number_of_numpy_is_that_number(name: str, value: np.generic) -> None:
    """As in a grid of parameters that `numpy.arange` made."""
    settings: dict[str, Any] = dict(SMALL, bounds=BOUNDS, answers="cells", random_state=0)
    fits = [
        OpBoostRegressor(**settings | {name: one}).fit(visitors(), spending(visitors()))
        for one in (value, value.item())
    ]
    np.testing.assert_array_equal(*(fit.predict(visitors()) for fit in fits))
