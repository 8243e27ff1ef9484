"""Estimators that start at base margins or at an earlier model, and regressors of several labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost import OpBoostClassifier, OpBoostRegressor
from opboost.errors import DataError, OpBoostError, ParameterError
from opboost.fitting import noise_correction
from opboost.fitting.noised_table import Blend, NoiseChoice
from opboost.trees.losses import LambdaRank
from parties.errors import Disagreement

SMALL: dict[str, Any] = {"n_estimators": 6, "max_depth": 3, "learning_rate": 0.3, "subsample": 1.0}
PASSIVE: dict[str, Any] = {"bounds": {0: (-4, 4)}, "epsilon": 5.0, "random_state": 3}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(4)
    table = rng.normal(size=(600, 3))
    return table, table[:, 0] + np.sin(3 * table[:, 1]) + 0.1 * rng.normal(size=600)


def test_margins_and_what_trees_add_are_the_score(rows: tuple[np.ndarray, np.ndarray]) -> None:
    table, target = rows
    margin = 2 * target + 1
    model = OpBoostRegressor(**SMALL).fit(
        table, target, base_margin=margin, eval_set=[(table, target)], base_margin_eval_set=[margin]
    )
    predicted = model.predict(table, base_margin=margin)
    assert np.abs(predicted - target).mean() < 0.5 * np.abs(margin - target).mean()
    assert model.evals_result_["rmse"][-1] == pytest.approx(np.sqrt(np.mean((predicted - target) ** 2)))
    parts = model.contributions(table, base_margin=margin)
    np.testing.assert_allclose(parts.sum(axis=1), predicted, rtol=1e-9)
    assert parts.shape == (600, 4)
    assert model.feature_importances_.sum() == pytest.approx(1)
    with pytest.raises(ParameterError, match="was trained with a base_margin"):
        model.predict(table)
    with pytest.raises(OpBoostError, match="base_margin must be finite, of shape"):
        model.predict(table, base_margin=margin[:5])


def test_a_margin_of_a_classifier_is_a_raw_score(rows: tuple[np.ndarray, np.ndarray]) -> None:
    table, target = rows
    labels, margin = target > 0, 4 * target
    model = OpBoostClassifier(n_estimators=0).fit(table, labels, base_margin=margin)
    np.testing.assert_allclose(model.predict_proba(table, base_margin=margin)[:, 1], 1 / (1 + np.exp(-margin)))
    with pytest.raises(ParameterError, match="was not trained with a base_margin"):
        OpBoostClassifier(**SMALL).fit(table, labels).predict(table, base_margin=margin)


@pytest.mark.parametrize("passive", [{}, PASSIVE, PASSIVE | {"answers": "cells"}, PASSIVE | {"epsilon": 0.5}], ids=str)
def test_a_fit_goes_on_where_another_one_ended(
    rows: tuple[np.ndarray, np.ndarray], passive: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # What trees look at depends on their number, and those on the own columns are grown once, with the first ones.
    usual = NoiseChoice.CORRECTED_AND_PLAIN if passive.get("epsilon") == 0.5 else NoiseChoice.CORRECTED
    monkeypatch.setattr(noise_correction, "choose", lambda *_, **__: Blend(usual))
    table, target = rows
    labels = target > 0
    begun = OpBoostClassifier(**SMALL | passive).fit(table, labels)
    more = OpBoostClassifier(**SMALL | passive | {"n_estimators": 4}, continue_from=begun).fit(table, labels)
    at_once = OpBoostClassifier(**SMALL | passive | {"n_estimators": 10}).fit(table, labels)
    assert len(more.model_.ensemble.trees) == 10
    np.testing.assert_allclose(more.predict_proba(table), at_once.predict_proba(table), atol=1e-6)


@pytest.mark.parametrize("continues_own", [False, True])
def test_a_fit_that_goes_on_adds_to_scores_that_trees_on_the_own_columns_share(
    rows: tuple[np.ndarray, np.ndarray], monkeypatch: pytest.MonkeyPatch, continues_own: bool
) -> None:
    monkeypatch.setattr(noise_correction, "choose", lambda *_, **__: Blend(NoiseChoice.CORRECTED, 0.5, continues_own))
    table, target = rows
    begun = OpBoostRegressor(**SMALL | PASSIVE).fit(table, target)
    more = OpBoostRegressor(**SMALL | PASSIVE | {"n_estimators": 4}, continue_from=begun).fit(table, target)
    before, after = begun.model_.ensemble.trees, more.model_.ensemble.trees
    assert (len(before), len(after)) == (12, 16)
    for tree, kept in zip(before, after, strict=False):
        np.testing.assert_array_equal(np.sort(tree.values), np.sort(kept.values))
    errors = [np.mean((one.predict(table) - target) ** 2) for one in (begun, more)]
    assert errors[1] < errors[0]


def test_another_release_is_refused(rows: tuple[np.ndarray, np.ndarray]) -> None:
    table, target = rows
    begun = OpBoostRegressor(**SMALL | PASSIVE).fit(table, target)
    with pytest.raises(Disagreement, match="trained on another release of passive/"):
        OpBoostRegressor(**SMALL | PASSIVE | {"random_state": 5}, continue_from=begun).fit(table, target)
    with pytest.raises(ParameterError, match="this run has binary:logistic"):
        OpBoostClassifier(**SMALL, continue_from=begun).fit(table, target > 0)
    with pytest.raises(ParameterError, match="continue_from is a fitted estimator; got str"):
        OpBoostClassifier(**SMALL, continue_from="runs").fit(table, target > 0)


@pytest.mark.parametrize("passive", [{}, PASSIVE | {"correct_noise": False}], ids=str)
def test_classes_have_the_numbers_that_they_have_in_the_model_to_continue(
    rows: tuple[np.ndarray, np.ndarray], passive: dict[str, Any]
) -> None:
    table, target = rows
    grades = np.array(["A", "B", "C"])[np.digitize(target, [-0.7, 0.7])]
    begun = OpBoostClassifier(**SMALL | passive).fit(table, grades)
    without_a = np.where(grades == "A", "B", grades)
    more = OpBoostClassifier(**SMALL | passive, continue_from=begun, class_weight={"A": 2.0}).fit(table, without_a)
    assert more.classes_.tolist() == begun.classes_.tolist() == ["A", "B", "C"]
    assert more.predict_proba(table).shape == (600, 3)
    assert more.score(table, without_a) > max(0.8, begun.score(table, without_a))
    below = more.predict_proba(table)[:, 0] < begun.predict_proba(table)[:, 0]
    assert below.mean() > 0.9


@pytest.mark.parametrize(
    ("known", "labels", "words"),
    [
        (["a", "b"], ["b", "c"], r"label 'c' is none of \['a', 'b'\]"),
        (["a", "b"], ["A", "b"], r"label 'A' is none of \['a', 'b'\]"),
        (["bad", "good"], [0, 1], r"labels 0, 1 are none of \['bad', 'good'\]"),
        (["0", "1"], [0, 1], r"labels 0, 1 are none of \['0', '1'\]"),
        ([0, 1, 2], [0, 2, 5], r"label 5 is none of \[0, 1, 2\]"),
        ([0, 1], list(range(20)), r"labels 2, 3, 4, 5, \.\.\. are none of \[0, 1\]"),
    ],
)
def test_a_class_that_the_model_to_continue_does_not_know_is_refused_by_name(
    rows: tuple[np.ndarray, np.ndarray], known: list[Any], labels: list[Any], words: str
) -> None:
    table, _ = rows
    before, now = (np.array(one)[np.arange(600) % len(one)] for one in (known, labels))
    begun = OpBoostClassifier(**SMALL).fit(table, before)
    with pytest.raises(DataError, match=f"{words}, the classes of the model to continue. Nothing was trained"):
        OpBoostClassifier(**SMALL, continue_from=begun).fit(table, now)


def test_numbers_and_truth_values_that_are_equal_are_one_class(rows: tuple[np.ndarray, np.ndarray]) -> None:
    table, target = rows
    begun = OpBoostClassifier(**SMALL).fit(table, (target > 0).astype(np.int64))
    for labels in (target > 0, (target > 0).astype(np.float64)):
        more = OpBoostClassifier(**SMALL, continue_from=begun).fit(table, labels)
        assert more.classes_.tolist() == [0, 1]
        assert more.score(table, labels.astype(np.int64)) > 0.9


def test_several_labels_are_predicted_by_models_of_their_own(rows: tuple[np.ndarray, np.ndarray]) -> None:
    table, target = rows
    labels = np.column_stack([target, 100 * target**2])
    model = OpBoostRegressor(**SMALL).fit(table, labels, eval_set=[(table, labels)])
    for k in range(2):
        alone = OpBoostRegressor(**SMALL).fit(table, labels[:, k])
        np.testing.assert_array_equal(model.predict(table)[:, k], alone.predict(table))
    assert set(model.evals_result_) == {"rmse-0", "rmse-1"}
    assert model.score(table, labels) > 0.7
    assert model.contributions(table).shape == (600, 2, 4)


def test_two_labels_of_failure_times_are_bounds(rows: tuple[np.ndarray, np.ndarray]) -> None:
    table, target = rows
    times = np.exp(target)
    bounds = np.column_stack([times * 0.8, np.where(table[:, 2] > 1, 0, times * 1.3)])
    model = OpBoostRegressor(**SMALL, objective="survival:aft").fit(table, bounds, eval_set=[(table, bounds)])
    assert model.predict(table).shape == (600,)
    assert model.evals_result_["cindex"][-1] > 0.85
    # As XGBoost has them.
    without = np.where(bounds == 0, np.inf, bounds)
    again = OpBoostRegressor(**SMALL, objective="survival:aft").fit(table, without, eval_set=[(table, without)])
    np.testing.assert_array_equal(again.predict(table), model.predict(table))
    with pytest.raises(ParameterError, match="qid goes with objectives that rank"):
        OpBoostRegressor(objective="survival:aft").fit(table, without, qid=np.zeros(600))


def test_rows_are_ranked_in_the_groups_that_qid_names() -> None:
    rng = np.random.default_rng(0)
    rows, groups = rng.normal(size=(300, 2)), rng.permutation(np.repeat(["a", "b", "c", "d", "e", "f"], 50))
    degrees = np.digitize(rows[:, 0] + rng.normal(0, 0.3, 300), [0, 1])
    fitted, held_out = slice(200), slice(200, None)
    model = OpBoostRegressor(objective="rank:ndcg", n_estimators=5, eval_metric=["map", "ndcg"])
    evaluated: dict[str, Any] = {"eval_set": [(rows[held_out], degrees[held_out])], "eval_qid": [groups[held_out]]}
    model.fit(rows[fitted], degrees[fitted], qid=groups[fitted], **evaluated)
    assert model.evals_result_["ndcg"][-1] > 0.95
    labels = np.column_stack([degrees[fitted], np.unique(groups[fitted], return_inverse=True)[1]])
    again = OpBoostRegressor(objective="rank:ndcg", n_estimators=5).fit(rows[fitted], labels)
    named: dict[str, Any] = {"objective": LambdaRank(), "n_estimators": 5}
    model = OpBoostRegressor(**named).fit(rows[fitted], degrees[fitted], qid=groups[fitted])
    np.testing.assert_array_equal(again.predict(rows), model.predict(rows))
    for wrong in (OpBoostRegressor(), OpBoostClassifier()):
        with pytest.raises(ParameterError, match="qid goes with objectives that rank"):
            wrong.fit(rows, degrees > 0, qid=groups)


@pytest.mark.parametrize("engine", ["native", "xgboost"])
def test_a_fit_on_rows_without_some_categories_keeps_what_the_earlier_trees_make_of_all(engine: str) -> None:
    if engine == "xgboost":
        pytest.importorskip("xgboost", reason="XGBoost is not installed: pip install 'opboost[xgboost]'")
    town = np.resize(list("abcdef"), 300)
    table, labels = pd.DataFrame({"town": town}), np.isin(town, ["a", "f"])
    small = {"n_estimators": 3, "max_depth": 2, "engine": engine}
    begun = OpBoostClassifier(**small).fit(table, labels)
    # Another one, and none of those that tell most.
    few = pd.DataFrame({"town": np.resize(["b", "c", "a b"], 90)})
    more = OpBoostClassifier(**small | {"learning_rate": 1e-9}, continue_from=begun)
    more.fit(few, np.resize([0, 0, 1], 90))
    np.testing.assert_allclose(more.predict_proba(table), begun.predict_proba(table), atol=1e-6)
    assert more.model_.categories == {"town": ("a", "b", "c", "d", "e", "f", "a b")}


def test_a_column_that_changed_its_kind_cannot_be_continued() -> None:
    town = np.resize([0.0, 1.0, 2.0, 3.0], 120)[:, None]
    begun = OpBoostClassifier(n_estimators=2, categorical_features=[0]).fit(town, town[:, 0] % 2)
    with pytest.raises(ParameterError, match="cuts column 'x0' where these records have no cut"):
        OpBoostClassifier(n_estimators=2, continue_from=begun).fit(town, town[:, 0] % 2)
    named = pd.DataFrame({"x0": town[:, 0].astype(str)})
    with pytest.raises(Disagreement, match="trained on other categories of column 'x0'"):
        OpBoostClassifier(n_estimators=2, continue_from=begun).fit(named, town[:, 0] % 2)
