"""Exchange with the installed XGBoost, which adds leaves in float32: scores of up to 20 rounds agree to 1e-6."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost import from_xgboost, to_xgboost
from opboost.columns import OwnColumn, RankColumn
from opboost.errors import ModelFileError, ParameterError
from opboost.split_tests import bind, feature_matrix, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Cox,
    Gamma,
    Logistic,
    Loss,
    Poisson,
    PseudoHuber,
    Quantiles,
    Softmax,
    SquaredError,
    Tweedie,
)
from opboost.trees.tree import Ensemble, Feature, Tree
from opboost.trees.xgboost_numbers import PRESENT
from opboost.vertical import train
from tests.support.special_numbers import F32, SPECIAL, around, numbers

xgboost = pytest.importorskip("xgboost")

pytestmark = pytest.mark.usefixtures("one_thread")

LOSSES: list[Loss] = [
    Logistic(),
    SquaredError(),
    Softmax(3),
    Poisson(),
    Gamma(),
    Tweedie(1.3),
    Quantiles((0.1, 0.5, 0.9)),
    AbsoluteError(),
    PseudoHuber(2.0),
    Cox(),
    AcceleratedFailure("logistic", 0.5),
]


def _tree(**changes: Any) -> Tree:
    """Column 0 at most 1.5: leaf -1; else column 1 at most 0: leaf 2, else leaf 3; missing goes right, then left."""
    parts: dict[str, Any] = {
        "columns": [0, -1, 1, -1, -1],
        "thresholds": [1.5, 0, 0, 0, 0],
        "missing_left": [False, False, True, False, False],
        "lefts": [1, 0, 3, 0, 0],
        "rights": [2, 0, 4, 0, 0],
        "values": [0, -1, 0, 2, 3],
        "gains": [5, 0, 4, 0, 0],
        "covers": [9, 3, 6, 2, 4],
    } | changes
    dtypes = {"columns": np.int32, "lefts": np.int32, "rights": np.int32, "missing_left": np.bool_}
    return Tree(**{name: np.array(part, dtypes.get(name, np.float64)) for name, part in parts.items()})


def _leaf(value: float) -> Tree:
    parts: dict[str, Any] = {name: [0] for name in ("thresholds", "lefts", "rights", "gains")}
    return _tree(columns=[-1], missing_left=[False], values=[value], covers=[1], **parts)


def _test(threshold: float, *, missing_left: bool = False) -> Tree:
    """Column 0 at most the threshold: leaf -1; else leaf 1."""
    return _tree(
        columns=[0, -1, -1],
        thresholds=[threshold, 0, 0],
        missing_left=[missing_left, False, False],
        lefts=[1, 0, 0],
        rights=[2, 0, 0],
        values=[0, -1, 1],
        gains=[1, 0, 0],
        covers=[2, 1, 1],
    )


def _ensemble(trees: list[Tree], loss: Loss, *, n_features: int = 2, base_scores: Any = None) -> Ensemble:
    base = np.zeros(loss.n_outputs) if base_scores is None else np.array(base_scores, np.float64)
    return Ensemble(tuple(trees), base, loss, tuple(Feature(f"f{i}") for i in range(n_features)))


def _theirs(booster: Any, rows: np.ndarray, **how: Any) -> np.ndarray:
    names = booster.feature_names
    return np.asarray(booster.predict(xgboost.DMatrix(rows, feature_names=names), **how), dtype=np.float64)


def _assert_alike(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal to 1e-6, of the largest number where that is more than 1."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * max(1.0, float(np.abs(expected).max(initial=0))))


def _table(loss: Loss, *, has_missing: bool, n_rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Four columns in float32 and labels that depend on them."""
    rng = np.random.default_rng(1)
    table = rng.normal(size=(n_rows, 4)).astype(np.float32)
    table[:, 1] = rng.integers(0, 5, n_rows)
    signal = table[:, 0] * table[:, 1] + np.abs(table[:, 2]) + rng.normal(size=n_rows) / 4
    if has_missing:
        table[rng.random(table.shape) < 0.2] = np.nan
    match loss:
        case SquaredError() | Quantiles() | AbsoluteError() | PseudoHuber():
            labels = signal
        case Gamma() | Tweedie() | AcceleratedFailure():
            labels = np.exp(signal / 4)
        case Cox():
            labels = rng.exponential(np.exp(np.nan_to_num(-signal) / 4)) + 0.01
        case Poisson():
            labels = np.maximum(np.round(signal + 1), 0)
        case _:
            labels = np.digitize(signal, [0.5, 2.0][: max(loss.n_outputs - 1, 1)])
    return table, labels.astype(np.float64)


def _trained(loss: Loss, *, has_missing: bool = True, **parameters: Any) -> tuple[Ensemble, np.ndarray]:
    table, labels = _table(loss, has_missing=has_missing)
    columns = [OwnColumn(f"c{i}", values.astype(np.float64)) for i, values in enumerate(table.T)]
    settings = BoostingParameters(**{"n_estimators": 20, "max_depth": 4, **parameters})
    return bind(train(columns, labels, np.ones(len(labels)), loss=loss, parameters=settings), {}), table


def _trained_there(loss: Loss, *, has_missing: bool = True, n_rounds: int = 20, **settings: Any) -> tuple[Any, Any]:
    table, labels = _table(loss, has_missing=has_missing)
    settings = {"objective": loss.name, "nthread": 1, "max_depth": 4, **settings}
    settings |= {"num_class": loss.n_classes} if isinstance(loss, Softmax) else loss.settings
    rows = xgboost.DMatrix(table)
    rows.set_info(**loss.labels_of_xgboost(labels))
    return xgboost.train(settings, rows, n_rounds), table


VARIANTS: dict[str, dict[str, Any]] = {
    "missing": {},
    "complete": {"has_missing": False},
    "one round": {"n_estimators": 1},
    "no round": {"n_estimators": 0},
    "deep": {"max_depth": 14, "min_child_weight": 0.0, "n_estimators": 5},
    "lone leaves": {"gamma": 1e9},
    "base score": {"base_score": 0.2},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_an_exported_model_predicts_in_xgboost_as_here_and_comes_back(loss: Loss, variant: str) -> None:
    ensemble, table = _trained(loss, **VARIANTS[variant])
    booster = to_xgboost(ensemble)
    expected = ensemble.predict(table.astype(np.float64))
    _assert_alike(_theirs(booster, table), expected)
    returned = from_xgboost(booster)
    _assert_alike(returned.predict(table.astype(np.float64)), expected)
    assert (returned.loss, returned.features) == (ensemble.loss, ensemble.features)
    assert len(returned.trees) == len(ensemble.trees)


IMPORTED: dict[str, dict[str, Any]] = {
    "missing": {},
    "complete": {"has_missing": False},
    "one round": {"n_rounds": 1},
    "no round": {"n_rounds": 0, "base_score": 0.2},
    "deep": {"max_depth": 14, "min_child_weight": 0, "n_rounds": 5},
    "lone leaves": {"gamma": 1e9},
    "base score": {"base_score": 0.2},
    "leaf-wise": {"grow_policy": "lossguide", "max_leaves": 20, "max_depth": 0},
    "pruned afterwards": {"tree_method": "exact", "gamma": 3.0},
    "forest": {"num_parallel_tree": 3, "subsample": 0.5, "n_rounds": 4},
    "dart": {"booster": "dart", "rate_drop": 0.4, "seed": 3},
}


@pytest.mark.parametrize("variant", IMPORTED)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_an_imported_model_predicts_here_as_in_xgboost_and_goes_back(loss: Loss, variant: str) -> None:
    booster, table = _trained_there(loss, **IMPORTED[variant])
    expected = _theirs(booster, table)
    ensemble = from_xgboost(booster)
    _assert_alike(ensemble.predict(table.astype(np.float64)), expected)
    _assert_alike(_theirs(to_xgboost(ensemble), table), expected)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_a_model_that_goes_to_and_fro_stays_as_it_is(loss: Loss) -> None:
    once = from_xgboost(_trained_there(loss)[0])
    twice = from_xgboost(to_xgboost(once))
    assert twice.base_scores.tolist() == once.base_scores.tolist()
    assert twice.n_rounds == once.n_rounds == 20
    for tree, other in zip(once.trees, twice.trees, strict=True):
        for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "values", "gains", "covers"):
            assert getattr(tree, name).dtype == getattr(other, name).dtype
            np.testing.assert_array_equal(getattr(tree, name), getattr(other, name), err_msg=name)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
def test_xgboost_trains_on_from_an_exported_model(loss: Loss) -> None:
    table, labels = _table(loss, has_missing=True)
    booster = to_xgboost(_trained(loss)[0])
    rows = xgboost.DMatrix(table, feature_names=booster.feature_names)
    rows.set_info(**loss.labels_of_xgboost(labels))
    settings = {"objective": loss.name, "nthread": 1}
    settings |= {"num_class": loss.n_classes} if isinstance(loss, Softmax) else loss.settings
    longer = xgboost.train(settings, rows, 2, xgb_model=booster)
    assert longer.num_boosted_rounds() == 22
    np.testing.assert_array_equal(longer[:20].predict(rows), booster.predict(rows))


# Thresholds, and the numbers around them that float32 holds.


@st.composite
def trees(draw: st.DrawFn, n_features: int) -> Tree:
    """A tree of up to 15 nodes, grown by splitting leaves in any order."""
    parts: dict[str, list[Any]] = {"columns": [-1], "thresholds": [0.0], "missing_left": [False]}
    parts |= {"lefts": [0], "rights": [0], "values": [draw(st.floats(-9, 9))]}
    for _ in range(draw(st.integers(0, 7))):
        leaves = [node for node, column in enumerate(parts["columns"]) if column < 0]
        node, n_nodes = draw(st.sampled_from(leaves)), len(parts["columns"])
        for name, entry, of_leaf in (
            ("columns", draw(st.integers(0, n_features - 1)), -1),
            ("thresholds", draw(numbers), 0.0),
            ("missing_left", draw(st.booleans()), False),
            ("lefts", n_nodes, 0),
            ("rights", n_nodes + 1, 0),
            ("values", 0.0, None),
        ):
            parts[name][node] = entry
            parts[name] += [draw(st.floats(-9, 9)) if of_leaf is None else of_leaf for _ in range(2)]
    zeros = [0.0] * len(parts["columns"])
    return _tree(**parts, gains=zeros, covers=zeros)


@st.composite
def ensembles(draw: st.DrawFn) -> Ensemble:
    loss = draw(st.sampled_from(LOSSES))
    n_features, n_rounds = draw(st.integers(1, 3)), draw(st.integers(0, 3))
    grown = [draw(trees(n_features)) for _ in range(n_rounds * loss.n_outputs)]
    base = [draw(st.floats(-20, 20)) for _ in range(loss.n_outputs)]
    return _ensemble(grown, loss, n_features=n_features, base_scores=base)


def _rows_around(ensemble: Ensemble, seed: int) -> np.ndarray:
    pool = around([float(t) for tree in ensemble.trees for t in tree.thresholds[~tree.is_leaf]] + SPECIAL)[:, 0]
    rng = np.random.default_rng(seed)
    return np.stack([rng.permutation(pool) for _ in ensemble.features], axis=1)


@settings(max_examples=60, deadline=None)
@given(ensembles(), st.integers(0, 99))
def test_any_ensemble_scores_any_singles_alike_on_every_way(ensemble: Ensemble, seed: int) -> None:
    """Infinities included: XGBoost scores them in place, though a DMatrix refuses them."""
    rows = _rows_around(ensemble, seed)
    booster = to_xgboost(ensemble)
    ours = ensemble.scores(rows.astype(np.float64))
    theirs = booster.inplace_predict(rows, predict_type="margin", validate_features=False)
    back = from_xgboost(booster).scores(rows.astype(np.float64))
    # Sums of up to four numbers of up to 20, rounded to 2^-24 of their size each time.
    np.testing.assert_allclose(theirs.reshape(ours.shape), ours, rtol=0, atol=4 * 36 * 2.0**-23)
    np.testing.assert_allclose(back, ours, rtol=0, atol=4 * 36 * 2.0**-23)


@pytest.mark.parametrize("threshold", SPECIAL)
def test_rows_at_a_threshold_stay_on_their_side(threshold: float) -> None:
    ensemble = _ensemble([_test(threshold)], SquaredError(), n_features=1)
    rows = around([threshold])
    expected = ensemble.predict(rows.astype(np.float64)).tolist()
    booster = to_xgboost(ensemble)
    assert booster.inplace_predict(rows, validate_features=False).tolist() == expected
    assert from_xgboost(booster).predict(rows.astype(np.float64)).tolist() == expected


@pytest.mark.parametrize("missing_left", [False, True])
def test_present_against_missing_survives(missing_left: bool) -> None:
    ensemble = _ensemble([_test(PRESENT, missing_left=missing_left)], SquaredError(), n_features=1)
    rows = np.float32([[F32.max], [0], [-F32.max], [np.nan]])
    expected = [-1, -1, -1, -1 if missing_left else 1]
    booster = to_xgboost(ensemble)
    assert _theirs(booster, rows).tolist() == expected
    returned = from_xgboost(booster)
    assert returned.predict(rows.astype(np.float64)).tolist() == expected
    assert returned.trees[0].thresholds[0] == PRESENT


def test_doubles_are_scored_here_as_the_xgboost_model_scores_their_roundings() -> None:
    booster, table = _trained_there(SquaredError())
    ensemble = from_xgboost(booster)
    thresholds = np.concatenate([tree.thresholds[~tree.is_leaf] for tree in ensemble.trees])
    rng = np.random.default_rng(0)
    rows = rng.choice(thresholds, (4000, 4))
    rows = np.where(rng.random(rows.shape) < 0.5, rows, np.nextafter(rows, np.inf))
    _assert_alike(ensemble.predict(rows), _theirs(booster, rows))
    singles = np.nextafter(table, np.float32(np.inf)).astype(np.float64)
    _assert_alike(ensemble.predict(singles), _theirs(booster, singles))


# Base scores.


@pytest.mark.parametrize("score", [0.0, 1e-9, 0.3, -0.7, 5.0, 9.0, 11.5, 13.7, 13.8155, -13.8, 16.0, -30.0, 700.0])
@pytest.mark.parametrize("n_rounds", [0, 1, 2])
def test_any_base_score_of_a_probability_is_kept_to_single_precision(score: float, n_rounds: int) -> None:
    ensemble = _ensemble([_leaf(0.25)] * n_rounds, Logistic(), base_scores=[score])
    booster = to_xgboost(ensemble)
    expected = [score + 0.25 * n_rounds]
    assert _theirs(booster, np.zeros((1, 2)), output_margin=True) == pytest.approx(expected, rel=1e-6, abs=1e-6)
    assert from_xgboost(booster).scores(np.zeros((1, 2)))[0] == pytest.approx(expected, rel=1e-6, abs=1e-6)


def test_a_mean_of_zero_is_read_as_the_least_one() -> None:
    """Whether all labels are 0 must not decide whether a run ends."""
    matrix = xgboost.QuantileDMatrix(np.arange(4.0)[:, None], np.zeros(4))
    ensemble = from_xgboost(xgboost.train({"objective": Poisson.name}, matrix, 2))
    assert (ensemble.predict(np.arange(4.0)[:, None]) <= 2e-9).all()


def _has_one_base_score(booster: Any) -> bool:
    base = json.loads(booster.save_raw("json"))["learner"]["learner_model_param"]["base_score"]
    return len(set(json.loads(base))) == 1


@pytest.mark.parametrize("version", ["2.1.4", "3.0.5", "3.1.0rc1", "3.2.0"])
@pytest.mark.parametrize("n_rounds", [0, 1, 3])
def test_base_scores_of_classes_are_kept_by_versions_with_one_number_for_all(
    version: str, n_rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The document of an old version, read by the installed one, which reads those too."""
    grown = [_tree(values=np.array([0, -1, 0, 2, 3]) * (i + 1) / 8) for i in range(3 * n_rounds)]
    ensemble = _ensemble(grown, Softmax(3), base_scores=[-1.1, 0.4, 2.3])
    rows = np.array([[1.5, 9], [2, 0], [2, 1], [np.nan, np.nan]])
    monkeypatch.setattr(xgboost, "__version__", version)
    booster = to_xgboost(ensemble)
    assert _has_one_base_score(booster) == (version < "3.1")
    _assert_alike(_theirs(booster, rows, output_margin=True), ensemble.scores(rows))
    _assert_alike(from_xgboost(booster).scores(rows), ensemble.scores(rows))


def test_one_base_score_for_all_classes_needs_no_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(xgboost, "__version__", "3.0.5")
    ensemble = _ensemble([], Softmax(3), base_scores=[0.5] * 3)
    assert to_xgboost(ensemble).num_boosted_rounds() == 0


@pytest.mark.parametrize(("version", "score"), [([3, 1, 3], 20.72), ([3, 2, 0], 13.8155)])
def test_a_base_probability_is_clipped_as_the_version_that_wrote_it_does(
    version: list[int], score: float, tmp_path: Path
) -> None:
    document = json.loads(to_xgboost(_ensemble([], Logistic())).save_raw("json"))
    document["version"] = version
    document["learner"]["learner_model_param"]["base_score"] = "[1E-9]"
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    assert from_xgboost(path).base_scores == pytest.approx([-score], abs=0.01)


# Names, owners, statistics.


@pytest.mark.parametrize(
    "names",
    [
        ["age", "income [EUR]", "x<5"],
        ["a[", "a]", "a<", "a_", "a__2", "a__2"],
        ['say "hi" \\ now', "ünïcode 漢字 😀", ""],
        ["tab\tline\nbreak", "bell\x07", "null\x00", "lone \ud800", "C:\\users", "\\u0041", "%41"],
    ],
    ids=["brackets", "alike", "quotes", "controls"],
)
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_odd_names_are_taken_by_xgboost_and_come_back(names: list[str], suffix: str, tmp_path: Path) -> None:
    features = tuple(map(Feature, names))
    ensemble = Ensemble((_tree(),), np.zeros(1), SquaredError(), features)
    booster = to_xgboost(ensemble)
    assert len(set(booster.feature_names)) == len(names)
    rows = np.random.default_rng(0).normal(size=(20, len(names)))
    np.testing.assert_array_equal(_theirs(booster, rows), ensemble.predict(rows))
    path = tmp_path / f"model.{suffix}"
    booster.save_model(path)
    assert from_xgboost(booster).features == from_xgboost(xgboost.Booster(model_file=path)).features == features


def test_plain_names_are_kept_as_they_are() -> None:
    booster = to_xgboost(Ensemble((_tree(),), np.zeros(1), SquaredError(), (Feature("age, in years"), Feature("b>"))))
    assert booster.feature_names == ["age, in years", "b>"]
    assert booster.attributes() == {}


def test_names_given_later_are_the_ones_that_come_back() -> None:
    booster = to_xgboost(Ensemble((_tree(),), np.zeros(1), SquaredError(), (Feature("a["), Feature("b"))))
    booster.feature_names = ["first", "second"]
    assert from_xgboost(booster).features == (Feature("first"), Feature("second"))


def test_columns_without_names_are_named_as_xgboost_names_them() -> None:
    assert [f.name for f in from_xgboost(_trained_there(Logistic())[0]).features] == ["f0", "f1", "f2", "f3"]


def test_owners_tests_are_exported_on_the_matrix_of_their_answers() -> None:
    rng = np.random.default_rng(0)
    values, ranks = rng.normal(size=300), rng.integers(0, 21, 300)
    values[::9] = np.nan
    labels = (np.nan_to_num(values) + ranks / 10 + rng.normal(size=300) > 1) * 1.0
    income = values.astype(np.float32).astype(np.float64)
    columns = [OwnColumn("income", income), RankColumn("shop", 0, "c0", ranks.astype(np.uint32), 20)]
    parameters = BoostingParameters(n_estimators=10, max_depth=4)
    trained = train(columns, labels, np.ones(300), loss=Logistic(), parameters=parameters)
    tests = list_tests(trained)
    ensemble = bind(trained, tests)
    listed = tests["shop"]
    answers = np.where((ranks == 20)[:, None], listed.missing_left, ranks[:, None] <= listed.ranks)
    matrix = feature_matrix(ensemble, {"income": income}, {"shop": answers}, 300)
    booster = to_xgboost(ensemble)
    _assert_alike(_theirs(booster, matrix), ensemble.predict(matrix))
    test = next(f for f in ensemble.features if f.owner and not f.missing_left)
    assert f"shop: c0 above rank {test.rank} or missing" in booster.feature_names
    assert from_xgboost(booster).features == ensemble.features


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)
@pytest.mark.parametrize("base_score", [None, 0.2])
def test_shap_values_add_up_to_the_score(loss: Loss, base_score: float | None) -> None:
    ensemble, table = _trained(loss, base_score=base_score)
    shares = _theirs(to_xgboost(ensemble), table, pred_contribs=True)
    sums = shares.sum(axis=-1).reshape(len(table), -1)
    np.testing.assert_allclose(sums, ensemble.scores(table.astype(np.float64)), rtol=0, atol=1e-5)
    assert (np.abs(shares).max(axis=tuple(range(shares.ndim - 1))) > 0.01).all()


def test_shap_values_are_those_of_xgboosts_own_model() -> None:
    booster, table = _trained_there(Logistic())
    exported = to_xgboost(from_xgboost(booster))
    np.testing.assert_allclose(
        _theirs(exported, table, pred_contribs=True), _theirs(booster, table, pred_contribs=True), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("kind", ["gain", "cover", "weight"])
def test_importances_are_those_of_xgboosts_own_model_on_the_same_trees(kind: str) -> None:
    """Trained on both sides on columns of few values, one tree; XGBoost sums gradients in float32."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, 9, (500, 3)).astype(np.float64)
    labels = table @ [1, 2, 3] + rng.normal(size=500)
    columns = [OwnColumn(f"c{i}", values) for i, values in enumerate(table.T)]
    parameters = BoostingParameters(n_estimators=1, max_depth=3, base_score=0.5)
    ours = to_xgboost(bind(train(columns, labels, np.ones(500), loss=SquaredError(), parameters=parameters), {}))
    settings = {"max_depth": 3, "base_score": 0.5, "tree_method": "hist", "nthread": 1}
    theirs = xgboost.train(settings, xgboost.DMatrix(table, labels, feature_names=["c0", "c1", "c2"]), 1)
    assert ours.get_score(importance_type=kind) == pytest.approx(theirs.get_score(importance_type=kind), rel=1e-5)


# Categories.


def _by_category(**parameters: Any) -> tuple[Ensemble, np.ndarray]:
    """Trained here on a number, on 3 categories and on 40, with gaps; rows with unseen categories too."""
    table, labels, rows = _category_table()
    columns = [OwnColumn(f"c{i}", values, is_categorical=i > 0) for i, values in enumerate(table.T)]
    settings = BoostingParameters(**{"n_estimators": 10, "max_depth": 4} | parameters)
    return bind(train(columns, labels, np.ones(len(labels)), loss=SquaredError(), parameters=settings), {}), rows


def _category_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    table = rng.normal(size=(800, 3)).astype(np.float32).astype(np.float64)
    table[:, 1], table[:, 2] = rng.integers(0, 3, 800), rng.integers(0, 40, 800)
    labels = table[:, 0] + (table[:, 1] == 1) + rng.normal(size=40)[table[:, 2].astype(int)]
    table[rng.random(table.shape) < 0.1] = np.nan
    rows = table[:200].copy()
    rows[::3, 2] = rng.choice([40, 41, 63, 64, 100, 60_000], len(rows[::3]))
    rows[::5, 1] = 3
    return table, labels, rows


def _theirs_by_category(booster: Any, rows: np.ndarray) -> np.ndarray:
    """In place: a DMatrix of some versions refuses categories that training has not seen."""
    matrix = xgboost.DMatrix(
        rows, feature_names=booster.feature_names, feature_types=["q", "c", "c"], enable_categorical=True
    )
    return np.asarray(booster.predict(matrix), dtype=np.float64)


@pytest.mark.parametrize("onehot", [0, 4, 100])
def test_splits_by_category_predict_in_xgboost_as_here_and_come_back(onehot: int) -> None:
    ensemble, rows = _by_category(max_cat_to_onehot=onehot)
    booster = to_xgboost(ensemble)
    assert booster.feature_types == ["q", "c", "c"]
    expected = ensemble.predict(rows)
    _assert_alike(_theirs_by_category(booster, rows), expected)
    returned = from_xgboost(booster)
    _assert_alike(returned.predict(rows), expected)
    assert returned.features == ensemble.features
    left = [sorted(tree.left_categories.values()) for tree in ensemble.trees]
    assert [sorted(tree.left_categories.values()) for tree in returned.trees] == left
    assert any(left)


@pytest.mark.parametrize("onehot", [1, 5, 100])
def test_xgboosts_splits_by_category_predict_here_as_there_and_go_back(onehot: int) -> None:
    table, labels, rows = _category_table()
    matrix = xgboost.DMatrix(table, labels, feature_types=["q", "c", "c"], enable_categorical=True)
    settings = {"tree_method": "hist", "nthread": 1, "max_depth": 4, "max_cat_to_onehot": onehot}
    booster = xgboost.train(settings, matrix, 10)
    expected = _theirs_by_category(booster, rows)
    ensemble = from_xgboost(booster)
    _assert_alike(ensemble.predict(rows), expected)
    _assert_alike(_theirs_by_category(to_xgboost(ensemble), rows), expected)
    assert any(tree.left_categories for tree in ensemble.trees)


def test_categories_that_go_to_and_fro_stay_as_they_are() -> None:
    once = from_xgboost(to_xgboost(_by_category(max_cat_to_onehot=0)[0]))
    twice = from_xgboost(to_xgboost(once))
    for tree, other in zip(once.trees, twice.trees, strict=True):
        assert tree.left_categories == other.left_categories
        for name in ("columns", "thresholds", "missing_left", "lefts", "rights", "values"):
            np.testing.assert_array_equal(getattr(tree, name), getattr(other, name), err_msg=name)


def _are_siblings_side_by_side(booster: Any) -> bool:
    """XGBoost's SHAP values take a right child for the node behind the left one, and else end the whole process."""
    trees = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]["trees"]
    return all(
        left == -1 or right == left + 1
        for tree in trees
        for left, right in zip(tree["left_children"], tree["right_children"], strict=True)
    )


def test_any_order_of_children_is_exported_side_by_side() -> None:
    tree = _tree(lefts=[2, 0, 3, 0, 0], rights=[1, 0, 4, 0, 0], columns=[0, -1, 1, -1, -1])
    ensemble = _ensemble([tree], SquaredError())
    booster = to_xgboost(ensemble)
    assert _are_siblings_side_by_side(booster)
    rows = np.array([[1.5, 9], [2, 0], [1, 1], [np.nan, np.nan]])
    _assert_alike(_theirs(booster, rows), ensemble.predict(rows))
    sums = _theirs(booster, rows, pred_contribs=True).sum(axis=1)
    np.testing.assert_allclose(sums, ensemble.scores(rows)[:, 0], rtol=0, atol=1e-5)


def test_shap_values_of_splits_by_category_add_up_to_the_score() -> None:
    ensemble, rows = _by_category()
    booster = to_xgboost(ensemble)
    assert _are_siblings_side_by_side(booster)
    matrix = xgboost.DMatrix(
        rows, feature_names=booster.feature_names, feature_types=["q", "c", "c"], enable_categorical=True
    )
    sums = booster.predict(matrix, pred_contribs=True).sum(axis=1)
    np.testing.assert_allclose(sums, ensemble.scores(rows)[:, 0], rtol=0, atol=1e-5)


def test_a_model_without_splits_by_category_says_nothing_of_types() -> None:
    assert not to_xgboost(_ensemble([_tree()], SquaredError())).feature_types


# Sources of a model.


def test_all_sources_of_a_model_give_the_same_ensemble(tmp_path: Path) -> None:
    table, labels = _table(Logistic(), has_missing=True)
    model = xgboost.XGBClassifier(n_estimators=5, n_jobs=1).fit(table, labels)
    sources: list[Any] = [model.get_booster(), model]
    sources += [tmp_path / "model.json", str(tmp_path / "model.json")]
    model.save_model(tmp_path / "model.json")
    expected = model.predict_proba(table)[:, 1].astype(np.float64)
    for source in sources:
        _assert_alike(from_xgboost(source).predict(table.astype(np.float64)), expected)


def test_a_json_file_is_read_without_xgboost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    booster, _ = _trained_there(Logistic())
    booster.save_model(tmp_path / "model.json")
    monkeypatch.setitem(sys.modules, "xgboost", None)
    assert from_xgboost(tmp_path / "model.json").n_rounds == 20


def test_without_xgboost_the_way_to_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ImportError, match=r"pip install 'opboost\[xgboost\]'.* No model was exported"):
        to_xgboost(_ensemble([], Logistic()))


def test_a_model_that_stopped_early_is_imported_whole() -> None:
    table, labels = _table(Logistic(), has_missing=False)
    rows = xgboost.DMatrix(table, labels)
    held_out = xgboost.DMatrix(table, 1 - labels)
    booster = xgboost.train(
        {"objective": "binary:logistic", "nthread": 1},
        rows,
        9,
        evals=[(held_out, "held_out")],
        early_stopping_rounds=3,
        verbose_eval=False,
    )
    assert booster.best_iteration == 0
    assert from_xgboost(booster).n_rounds == booster.num_boosted_rounds() == 4
    assert from_xgboost(booster[: booster.best_iteration + 1]).n_rounds == 1


def test_a_dart_models_weights_are_in_the_leaves() -> None:
    booster, _ = _trained_there(SquaredError(), **IMPORTED["dart"])
    weights = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["weight_drop"]
    assert min(weights) < 1


# Refusals.


def _of_two_targets(**settings: Any) -> Any:
    table, _ = _table(SquaredError(), has_missing=False)
    return xgboost.train({"tree_method": "hist", "nthread": 1, **settings}, xgboost.DMatrix(table, table[:, :2]), 1)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "linear": (lambda: _trained_there(Logistic(), booster="gblinear", max_depth=None)[0], "booster is gblinear"),
    "two targets": (_of_two_targets, "several targets"),
    "leaves of two values": (lambda: _of_two_targets(multi_strategy="multi_output_tree"), "several targets"),
    "another objective": (
        lambda: _trained_there(Logistic(), objective="binary:hinge")[0],
        "objective is 'binary:hinge'; an ensemble can have binary:logistic",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.filterwarnings("ignore:.*gblinear.*")
def test_a_model_that_an_ensemble_cannot_hold_is_refused(name: str) -> None:
    make, words = REFUSED[name]
    with pytest.raises(ModelFileError, match=words):
        from_xgboost(make())


def _document() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(to_xgboost(_ensemble([_tree()] * 3, Softmax(3))).save_raw("json"))
    return document


def _put(*place: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def edit(document: dict[str, Any]) -> None:
        target: Any = document["learner"]
        for key in place[:-1]:
            target = target[key]
        target[place[-1]] = value

    return edit


def _category_document() -> dict[str, Any]:
    """A model of one tree whose root splits by category: 1 and 4 go left here, right there."""
    ensemble = _ensemble([replace(_tree(), left_categories={0: (1, 4)})], SquaredError())
    document: dict[str, Any] = json.loads(to_xgboost(ensemble).save_raw("json"))
    return document


_MODEL = ("gradient_booster", "model")
_TREE = (*_MODEL, "trees", 0)

EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "no learner": (lambda document: document.pop("learner"), "no learner"),
    "learner as a list": (lambda document: document.update(learner=[]), "malformed, TypeError"),
    "parameters as a list": (_put("learner_model_param", value=[]), "malformed, (AttributeError|TypeError)"),
    "no objective": (lambda document: document["learner"].pop("objective"), "malformed, KeyError"),
    "one class": (_put("learner_model_param", "num_class", value="1"), "at least 2 classes"),
    "too many classes": (_put("learner_model_param", "num_class", value="4"), "4 finite base scores|different numbers"),
    "countless classes": (_put("learner_model_param", "num_class", value="9" * 12), "counts 9+ features or classes"),
    "countless features": (_put("learner_model_param", "num_feature", value="9" * 12), "features or classes"),
    "features in words": (_put("learner_model_param", "num_feature", value="two"), "malformed, ValueError"),
    "names too few": (_put("feature_names", value=["a"]), "2 features and 1 names"),
    "names that are none": (_put("feature_names", value=[1, 2]), "a feature needs a name"),
    "features of another kind": (_put("attributes", value={"opboost_features": "[1, 2]"}), "malformed, TypeError"),
    "base score in words": (_put("learner_model_param", "base_score", value="half"), "malformed"),
    "NaN base score": (_put("learner_model_param", "base_score", value="NaN"), "finite base scores"),
    "trees unlike outputs": (_put(*_MODEL, "tree_info", value=[0, 1]), "malformed, ValueError"),
    "two trees for one output": (_put(*_MODEL, "tree_info", value=[0, 1, 1]), "different numbers of trees"),
    "a tree for no output": (_put(*_MODEL, "tree_info", value=[0, 1, -1]), "output -1; there are 3"),
    "cycle": (_put(*_TREE, "left_children", 2, value=0), "do not form a tree"),
    "two parents": (_put(*_TREE, "left_children", 2, value=1), "do not form a tree"),
    "one child": (_put(*_TREE, "right_children", 0, value=-1), "do not form a tree"),
    "a child beyond the end": (_put(*_TREE, "right_children", 0, value=99), "do not form a tree"),
    "a fraction of a child": (_put(*_TREE, "right_children", 0, value=2.5), "right_children must be one number"),
    "a child beyond 64 bits": (_put(*_TREE, "right_children", 0, value=2**70), "right_children must be one number"),
    "short conditions": (_put(*_TREE, "split_conditions", value=[1.0]), "split_conditions must be one number"),
    "a word among conditions": (_put(*_TREE, "split_conditions", 0, value="1"), "split_conditions must be one number"),
    "NaN condition": (_put(*_TREE, "split_conditions", 0, value=np.nan), "thresholds must be finite"),
    "infinite leaf": (_put(*_TREE, "split_conditions", 1, value=np.inf), "values must be finite"),
    "a leaf beyond singles": (_put(*_TREE, "split_conditions", 1, value=1e300), "values must be finite"),
    "a column that is none": (_put(*_TREE, "split_indices", 0, value=2), "column that does not exist; there are 2"),
    "a negative column": (_put(*_TREE, "split_indices", 0, value=-1), "column that does not exist"),
    "a leaf of two values": (_put(*_TREE, "tree_param", "size_leaf_vector", value="2"), "leaves have several values"),
    "no node": (
        _put(
            *_TREE,
            value={
                name: [] if isinstance(part, list) else part
                for name, part in _document()["learner"]["gradient_booster"]["model"]["trees"][0].items()
            },
        ),
        "must be one number per node",
    ),
}


@pytest.mark.parametrize("name", EDITS)
def test_a_malformed_model_is_refused_with_the_file_and_the_reason(name: str, tmp_path: Path) -> None:
    edit, words = EDITS[name]
    document = _document()
    edit(document)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match=f"model.json cannot be imported from XGBoost: .*({words})"):
        from_xgboost(path)


CATEGORY_EDITS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "lists fewer nodes than split": (_put(*_TREE, "categories_nodes", value=[]), "malformed|differ"),
    "lists another node": (_put(*_TREE, "categories_nodes", value=[2]), "lists of categories differ"),
    "lists a node twice": (_put(*_TREE, "categories_nodes", value=[0, 0]), "malformed|differ"),
    "a kind too many": (_put(*_TREE, "split_type", value=[1, 0, 1, 0, 0]), "lists of categories differ"),
    "no categories": (_put(*_TREE, "categories_sizes", value=[0]), "must be ascending integers"),
    "categories beyond the end": (_put(*_TREE, "categories_segments", value=[5]), "must be ascending integers"),
    "the same category twice": (_put(*_TREE, "categories", value=[4, 4]), "must be ascending integers"),
    "a negative category": (_put(*_TREE, "categories", value=[-1, 4]), "must be ascending integers"),
    "a countless category": (_put(*_TREE, "categories", value=[1, 2**40]), "must be ascending integers"),
    "a category in words": (_put(*_TREE, "categories", value=["north", "south"]), "malformed, ValueError"),
    "no list of categories": (
        lambda document: document["learner"]["gradient_booster"]["model"]["trees"][0].pop("categories"),
        "malformed, KeyError",
    ),
}


@pytest.mark.parametrize("name", CATEGORY_EDITS)
def test_malformed_splits_by_category_are_refused(name: str, tmp_path: Path) -> None:
    edit, words = CATEGORY_EDITS[name]
    document = _category_document()
    edit(document)
    path = tmp_path / "model.json"
    path.write_text(json.dumps(document))
    with pytest.raises(ModelFileError, match=f"model.json cannot be imported from XGBoost: .*({words})"):
        from_xgboost(path)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\x00", b"[" * 200_000, b"binf\x00\x00"])
@pytest.mark.parametrize("name", ["model.json", "model.bin"])
def test_what_is_not_json_is_refused(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelFileError, match=f"{name} is not a JSON file.* No model was imported"):
        from_xgboost(tmp_path / name)


def test_a_binary_file_is_left_to_xgboost_which_may_abort_on_damaged_ones(tmp_path: Path) -> None:
    to_xgboost(_ensemble([], Logistic())).save_model(tmp_path / "model.ubj")
    with pytest.raises(ModelFileError, match=r"model\.ubj is not a JSON file.* import `xgboost\.Booster\(model_file"):
        from_xgboost(tmp_path / "model.ubj")


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"model\.json"):
        from_xgboost(tmp_path / "model.json")


def test_something_else_than_a_model_is_refused() -> None:
    with pytest.raises(ParameterError, match=r"a Booster, an XGBModel or a path; got dict\. No model was imported"):
        from_xgboost({})  # type: ignore[arg-type]


def test_an_ensemble_without_features_is_not_exported() -> None:
    with pytest.raises(ParameterError, match="no models without features"):
        to_xgboost(_ensemble([_leaf(1.0)], SquaredError(), n_features=0))


@pytest.mark.parametrize(
    "ensemble",
    [_ensemble([_leaf(1e39)], SquaredError()), _ensemble([], SquaredError(), base_scores=[-1e39])],
    ids=["leaf", "base score"],
)
def test_numbers_beyond_single_precision_are_not_exported(ensemble: Ensemble) -> None:
    with pytest.raises(ParameterError, match=r"exceed 3\.4e38.* No model was exported"):
        to_xgboost(ensemble)


def test_statistics_beyond_single_precision_are_cut_off() -> None:
    tree = _tree(gains=[1e200, 0, 1, 0, 0], covers=[1e200, 3, 6, 2, 4])
    returned = from_xgboost(to_xgboost(_ensemble([tree], SquaredError()))).trees[0]
    assert returned.gains[0] == returned.covers[0] == float(F32.max)


def test_another_objective_is_not_exported() -> None:
    class Hinge(SquaredError):
        name = "binary:hinge"

    with pytest.raises(ParameterError, match=r"this model has binary:hinge\. No model was exported"):
        to_xgboost(replace(_ensemble([], SquaredError()), loss=Hinge()))


# The documents.


def test_the_documents_example_does_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "xgboost.md").read_text()
    (code,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    table, labels = _table(Logistic(), has_missing=True)
    names: dict[str, Any] = {"X_train": table, "y_train": labels, "X_test": table[:50]}
    monkeypatch.chdir(tmp_path)
    exec(code, names)
    expected = names["model"].predict_proba(table[:50])[:, 1]
    _assert_alike(names["probabilities"].astype(np.float64), expected)
    assert names["contributions"].shape == (50, 5)
    np.testing.assert_allclose(names["contributions"].sum(axis=1), np.log(expected / (1 - expected)), rtol=0, atol=1e-5)
    _assert_alike(names["ensemble"].predict(table[:50].astype(np.float64)), expected)


def test_a_model_that_asks_for_cells_predicts_the_same_in_xgboost_and_comes_back() -> None:
    """Numbers of cells are numbers; a missing cell is a missing value."""
    draw = np.random.default_rng(8)
    ranks, cuts = draw.integers(0, 41, 600).astype(np.uint32), np.array([4, 9, 20, 33])
    own = draw.normal(size=600)
    labels = np.where(ranks == 40, 2.0, (ranks > 9) * 3.0 - (ranks > 33) * 2.0) + own
    columns = [OwnColumn("age", own), RankColumn("shop", 0, "c0", ranks, 40, cuts=cuts)]
    trees = BoostingParameters(n_estimators=15, max_depth=3)
    trained = train(columns, labels, np.ones(600), loss=SquaredError(), parameters=trees)
    ensemble = bind(trained, list_tests(trained))
    cells = np.where(ranks == 40, np.nan, np.searchsorted(cuts, ranks))
    matrix = feature_matrix(ensemble, {"age": own}, {"shop": cells[:, None]}, 600)
    booster = to_xgboost(ensemble)
    assert booster.feature_names == ["age", "shop: cell of c0"]
    found = booster.predict(xgboost.DMatrix(matrix, feature_names=booster.feature_names))
    np.testing.assert_allclose(found, ensemble.predict(matrix), rtol=1e-4, atol=1e-4)
    assert from_xgboost(booster).features == ensemble.features
