from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.errors import DataError, ParameterError
from opboost.metrics import default_metric
from tests.support.contract import parametrize_with_checks
from tests.support.visitors import (
    BOUNDS,
    MODES,
    SMALL,
    later_visitors,
    predictions_of,
    spending,
    spending_classes,
    visitors,
)

pytestmark = pytest.mark.usefixtures("one_thread")


@parametrize_with_checks(
    [
        OpBoostClassifier(n_estimators=5),
        OpBoostRegressor(n_estimators=5),
        OpBoostClassifier(bounds=(-200, 200), epsilon=20.0, random_state=0, n_estimators=5),
        OpBoostRegressor(bounds=(-200, 200), epsilon=20.0, random_state=0, n_estimators=5),
    ]
)
def test_the_estimators_keep_scikit_learns_contract(estimator: Any, check: Any) -> None:
    check(estimator)


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
    np.testing.assert_array_equal(predictions_of(visitors(), bounds), predictions_of(visitors(), written_out))


def test_a_pair_of_numbers_bounds_every_column() -> None:
    expected = predictions_of(visitors(), ([0, 0, 0], [9000, 9000, 9000]))
    np.testing.assert_array_equal(predictions_of(visitors(), (0, 9000)), expected)


def test_columns_without_names_are_called_by_their_number() -> None:
    named = predictions_of(visitors().to_numpy(), {"x0": (18, 90)})
    np.testing.assert_array_equal(named, predictions_of(visitors().to_numpy(), {0: (18, 90)}))


@pytest.mark.parametrize("prediction", MODES)
def test_three_classes_get_probabilities_that_sum_to_one(prediction: Any) -> None:
    frame = visitors()
    labels = spending_classes(frame, ["low", "mid", "top"])
    model = OpBoostClassifier(bounds=BOUNDS, epsilon=2.0, prediction=prediction, **SMALL).fit(frame, labels)
    probabilities = model.predict_proba(frame)
    assert model.classes_.tolist() == ["low", "mid", "top"]
    assert probabilities.shape == (200, 3)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(frame), model.classes_[probabilities.argmax(axis=1)])
    assert (model.predict(frame) == labels).mean() > 0.7


@pytest.mark.parametrize("subsample", [1.0, 0.5])
def test_rows_of_weight_zero_are_as_good_as_removed_from_the_plain_model(subsample: float) -> None:
    frame, labels = visitors(), spending(visitors())
    weights = np.random.default_rng(0).integers(0, 3, 200) * 1.0
    kept = weights > 0
    model = OpBoostRegressor(subsample=subsample, **SMALL)
    weighted = model.fit(frame, labels, sample_weight=weights).predict(frame)
    removed = model.fit(frame[kept], labels[kept], sample_weight=weights[kept]).predict(frame)
    np.testing.assert_array_equal(weighted, removed)


def test_a_row_of_weight_two_is_as_good_as_two_rows() -> None:
    """To the rounding of the first score, which is a mean in another order."""
    frame, labels = visitors(), spending(visitors())
    weights = np.random.default_rng(0).integers(1, 5, 200)
    model = OpBoostRegressor(**SMALL)
    weighted = model.fit(frame, labels, sample_weight=weights).predict(frame)
    repeated = model.fit(frame.loc[frame.index.repeat(weights)], np.repeat(labels, weights)).predict(frame)
    np.testing.assert_allclose(weighted, repeated, rtol=1e-7)


def test_weights_of_another_scale_change_no_prediction_without_regularisation() -> None:
    """To 1e-5 of the predictions' spread: the largest weight sets the step of the gradients' grid, 2^-22 of it."""
    frame, labels = visitors(), spending(visitors())
    weights = np.random.default_rng(0).uniform(0.1, 3, 200)
    model = OpBoostRegressor(reg_lambda=0.0, min_child_weight=0.0, **SMALL)
    one, other = (model.fit(frame, labels, sample_weight=factor * weights).predict(frame) for factor in (1.0, 5.7))
    np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * np.ptp(one))


def test_weights_that_are_all_zero_are_refused() -> None:
    with pytest.raises(ValueError, match=r"(?i)sample weights"):
        OpBoostRegressor(**SMALL).fit(visitors(), spending(visitors()), sample_weight=np.zeros(200))


def test_one_class_is_refused_without_naming_it() -> None:
    with pytest.raises(DataError, match="at least two classes") as caught:
        OpBoostClassifier(**SMALL).fit(visitors(), np.full(200, "diabetic"))
    assert "diabetic" not in str(caught.value)


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_rows_of_the_eval_set_are_scored_after_every_round_and_end_the_training(bounds: Any, engine: Any) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost")
    frame, labels = visitors(), spending(visitors())
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
    model.fit(frame, labels, eval_set=[later_visitors()])
    scores = model.evals_result_
    assert list(scores) == ["mae", "rmse"]
    assert len(scores["rmse"]) < 200
    assert model.best_iteration_ == int(np.argmin(scores["rmse"])) == len(scores["rmse"]) - 6
    assert model.model_.ensemble.n_rounds == model.best_iteration_ + 1
    held_out, truth = later_visitors()
    error = np.sqrt(np.mean((model.predict(held_out) - truth) ** 2))
    # XGBoost scores in single precision.
    assert scores["rmse"][model.best_iteration_] == pytest.approx(error, rel=1e-9 if engine == "native" else 1e-5)


def test_the_eval_set_never_influences_the_trees() -> None:
    frame, labels = visitors(), spending(visitors())
    model, (held_out, truth) = OpBoostRegressor(**SMALL), later_visitors()
    plain = model.fit(frame, labels).predict(frame)
    for numbers in (truth, -truth):
        np.testing.assert_array_equal(model.fit(frame, labels, eval_set=[(held_out, numbers)]).predict(frame), plain)
    both = model.fit(pd.concat([frame, held_out]), np.concatenate([labels, truth])).predict(frame)
    assert (both != plain).any()


@pytest.mark.parametrize("names", [["no", "yes"], ["a", "b", "c"]], ids=["two classes", "three classes"])
def test_classes_of_the_eval_set_are_those_of_the_training_rows(names: list[str]) -> None:
    frame, held_out = visitors(), visitors(seed=7)
    model = OpBoostClassifier(n_estimators=3, max_depth=2)
    model.fit(frame, spending_classes(frame, names), eval_set=[(held_out, spending_classes(held_out, names))])
    assert list(model.evals_result_) == ["logloss" if len(names) == 2 else "mlogloss"]
    assert len(model.evals_result_[default_metric(model.model_.ensemble.loss)]) == 3
    with pytest.raises(DataError, match="eval_set has classes that the training labels lack") as caught:
        model.fit(frame, spending_classes(frame, names), eval_set=[(held_out, np.full(200, "z"))])
    assert "'z'" not in str(caught.value)


def test_without_an_eval_set_there_are_no_scores() -> None:
    model = OpBoostRegressor(**SMALL).fit(visitors(), spending(visitors()))
    assert (model.evals_result_, model.best_iteration_) == ({}, -1)


@pytest.mark.parametrize("prefixed", [False, True])
@pytest.mark.parametrize("container", ["pandas", "polars"])
def test_bounds_by_name_go_through_a_pipeline(container: str, prefixed: bool) -> None:
    pytest.importorskip(container)
    table = visitors().assign(job=np.where(visitors()["age"] > 40, "nurse", "clerk"))
    columns = ColumnTransformer(
        [("numbers", SimpleImputer(), ["age", "income"]), ("words", "passthrough", ["job"])],
        remainder="drop",
        verbose_feature_names_out=prefixed,
    )
    bounds = {"age": (0, 100), "job": ["clerk", "nurse"]}
    last = OpBoostRegressor(**SMALL, bounds=bounds, monotone_constraints={"age": 1})
    model = make_pipeline(columns, last).set_output(transform=container).fit(table, spending(table))
    marks = ("numbers__", "words__") if prefixed else ("", "")
    assert [one.column for one in model[-1].guarantee_.columns] == [f"{marks[0]}age", f"{marks[1]}job"]
    assert model.predict(table).shape == (len(table),)


def test_without_names_a_pipeline_is_told_how_to_keep_them() -> None:
    model = make_pipeline(SimpleImputer(), OpBoostRegressor(**SMALL, bounds={"age": (0, 100)}))
    with pytest.raises(ParameterError, match=r"an array has no names: .*set_output\(transform='pandas'\)"):
        model.fit(visitors(), spending(visitors()))


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["plain", "joint"])
@pytest.mark.parametrize(
    "constraints",
    [{"age": -1, "visits": -1}, {0: -1, -1: -1}, [-1, 0, -1], (-1, 0, -1), np.array([-1, 0, -1])],
    ids=["names", "positions", "list", "tuple", "array"],
)
def test_monotone_columns_are_named_numbered_or_all_given_in_order(constraints: Any, bounds: Any) -> None:
    frame, labels = visitors(), spending(visitors())
    epsilon = None if bounds is None else np.inf
    model = OpBoostRegressor(bounds=bounds, epsilon=epsilon, monotone_constraints=constraints, **SMALL)
    rows = pd.concat([frame.iloc[:20].assign(visits=float(visits)) for visits in range(12)])
    steps = np.diff(model.fit(frame, labels).predict(rows).reshape(12, 20), axis=0)
    assert (steps <= 1e-12).all()
    free = OpBoostRegressor(bounds=bounds, epsilon=epsilon, **SMALL).fit(frame, labels)
    assert (np.diff(free.predict(rows).reshape(12, 20), axis=0) > 0.1).any()


@pytest.mark.parametrize("groups", [[["age"], ["income", "visits"]], [[0], [1, -1]], ((0,), ("income", 2))], ids=str)
def test_groups_of_columns_are_named_or_numbered(groups: Any) -> None:
    model = OpBoostRegressor(interaction_constraints=groups, **SMALL).fit(visitors(), spending(visitors()))
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
        OpBoostRegressor(bounds=BOUNDS, categorical_features=["visits"], **SMALL).fit(visitors(), spending(visitors()))


def test_counts_are_predicted_by_their_mean() -> None:
    frame = visitors(500)
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
    frame = visitors()
    labels = (spending(frame) > 12) * 1
    plain, heavy = (
        OpBoostClassifier(scale_pos_weight=factor, **SMALL).fit(frame, labels).predict_proba(frame)[:, 1]
        for factor in (1.0, 5.0)
    )
    assert heavy.mean() > plain.mean() + 0.05
    weighted = OpBoostClassifier(**SMALL).fit(frame, labels, sample_weight=np.where(labels == 1, 5.0, 1.0))
    np.testing.assert_array_equal(weighted.predict_proba(frame)[:, 1], heavy)


def test_apply_gives_leaves_that_decide_the_scores() -> None:
    frame = visitors()
    model = OpBoostRegressor(epsilon=np.inf, bounds={"visits": (0, 11)}, **SMALL).fit(frame, spending(frame))
    leaves = model.apply(frame)
    assert (leaves.shape, leaves.dtype) == ((len(frame), SMALL["n_estimators"]), np.int64)
    by_leaves = pd.DataFrame(leaves).assign(score=model.predict(frame)).groupby(list(range(leaves.shape[1])))["score"]
    assert (by_leaves.max() - by_leaves.min()).max() < 1e-12


@pytest.mark.parametrize("class_weight", ["balanced", {"low": 3.0, "high": 0.5}], ids=["balanced", "by class"])
def test_weights_of_classes_are_weights_of_their_rows(class_weight: Any) -> None:
    frame = visitors()
    labels = np.array(["low", "medium", "high"])[np.digitize(spending(frame), [12, 20])]
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
    frame = visitors()
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
    model = OpBoostRegressor(gamma=1e12, **SMALL).fit(visitors(), spending(visitors()))
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
    frame, labels = visitors(1000), spending(visitors(1000))
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


def test_a_sequence_of_directions_is_one_for_each_column() -> None:
    with pytest.raises(ParameterError, match="monotone_constraints"):
        OpBoostRegressor(monotone_constraints=[1, 0], **SMALL).fit(visitors(), spending(visitors()))


def test_a_classifier_takes_no_objective_that_its_labels_do_not_call_for() -> None:
    frame = visitors()
    with pytest.raises(ParameterError, match="2 classes need the objective binary:logistic; got 'multi:softprob'"):
        OpBoostClassifier(objective="multi:softprob").fit(frame, spending_classes(frame, ["no", "yes"]))
    with pytest.raises(
        ParameterError, match=r"multi:softprob or ordinal:logistic; got <ufunc .*\(Custom\) is for OpBoostR"
    ):
        OpBoostClassifier(objective=np.abs).fit(frame, spending_classes(frame, ["a", "b", "c"]))


def test_categories_that_are_no_numbers_of_categories_are_refused() -> None:
    with pytest.raises(DataError, match="categories must be numbered by integers"):
        OpBoostRegressor(categorical_features=["income"], **SMALL).fit(visitors(), spending(visitors()))
