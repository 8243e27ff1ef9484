"""The tree core against XGBoost's `hist`, on columns of at most `max_bin` distinct values, where both see every cut.

XGBoost keeps gradients in single precision and we keep them on a grid of 22 bits, so equal trees give scores that
differ by a few units of 2^-22: measured, 2e-7 for probabilities and 3e-6 for numbers of about 20. The rows are many for
the depth, since two cuts of the same gain are told apart by rounding alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.columns import OwnColumn
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import loss_by_name
from opboost.trees.tree import Ensemble, Tree
from opboost.vertical import train

xgboost = pytest.importorskip("xgboost")

N_CLASSES = {"reg:squarederror": 0, "binary:logistic": 0, "multi:softprob": 3}
VARIANTS: dict[str, dict[str, Any]] = {
    "defaults": {},
    "gamma": {"gamma": 1.0},
    "min_child_weight": {"min_child_weight": 17.3},
    "small reg_lambda": {"reg_lambda": 0.1},
    "all three": {"reg_lambda": 10.0, "gamma": 0.5, "min_child_weight": 4.7},
}


pytestmark = pytest.mark.usefixtures("one_thread")


def _table(objective: str, *, n_rows: int, has_missing: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Columns of 2, 7, 40 and 200 distinct values, labels that depend on them, and weights."""
    rng = np.random.default_rng(0)
    table = rng.integers(0, [2, 7, 40, 200], (n_rows, 4)) * np.array([1, 0.5, 3, 1]) - 5
    signal = table[:, 1] + 0.1 * table[:, 2] + 0.01 * table[:, 3] * table[:, 0] + rng.normal(size=n_rows)
    if has_missing:
        table[rng.random(table.shape) < 0.15] = np.nan
    classes = {"binary:logistic": [0.5], "multi:softprob": [0.3, 0.6]}
    if objective in classes:
        signal = np.digitize(signal, np.quantile(signal, classes[objective])).astype(np.float64)
    return table, signal, rng.uniform(0.2, 3, n_rows)


def _ours(
    table: np.ndarray, labels: np.ndarray, weights: np.ndarray, objective: str, parameters: dict[str, Any]
) -> Ensemble:
    columns = [OwnColumn(f"f{i}", values) for i, values in enumerate(table.T)]
    loss = loss_by_name(objective, N_CLASSES[objective])
    return bind(train(columns, labels, weights, loss=loss, parameters=BoostingParameters(**parameters)), {})


def _theirs(
    table: np.ndarray, labels: np.ndarray, weights: np.ndarray, objective: str, parameters: dict[str, Any]
) -> Any:
    settings = {"objective": objective, "tree_method": "hist", "nthread": 1, **parameters}
    if N_CLASSES[objective]:
        settings["num_class"] = N_CLASSES[objective]
    n_rounds = settings.pop("n_estimators")
    return xgboost.train(settings, xgboost.DMatrix(table, labels, weight=weights), n_rounds)


def _largest_difference(
    objective: str, parameters: dict[str, Any], *, has_missing: bool, has_weights: bool, theirs: dict[str, Any]
) -> float:
    table, labels, weights = _table(objective, n_rows=2000, has_missing=has_missing)
    if not has_weights:
        weights = np.ones(len(labels))
    ours = _ours(table, labels, weights, objective, parameters).predict(table)
    booster = _theirs(table, labels, weights, objective, theirs)
    return float(np.abs(booster.predict(xgboost.DMatrix(table)) - ours).max())


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("has_weights", [False, True], ids=["unweighted", "weighted"])
@pytest.mark.parametrize("has_missing", [False, True], ids=["complete", "with missing"])
@pytest.mark.parametrize("objective", N_CLASSES)
def test_predictions_equal_xgboosts(objective: str, has_missing: bool, has_weights: bool, variant: str) -> None:
    parameters = {
        "n_estimators": 15,
        "max_depth": 3,
        "learning_rate": 0.3,
        "max_bin": 256,
        "base_score": 0.4,
        **VARIANTS[variant],
    }
    difference = _largest_difference(
        objective, parameters, has_missing=has_missing, has_weights=has_weights, theirs=parameters
    )
    assert difference < 1e-5


@pytest.mark.parametrize("change", [{"reg_lambda": 1.01}, {"learning_rate": 0.301}, {"base_score": 0.41}], ids=str)
def test_a_parameter_one_percent_off_is_told_from_xgboosts(change: dict[str, Any]) -> None:
    parameters = {"n_estimators": 1, "max_depth": 3, "learning_rate": 0.3, "reg_lambda": 1.0, "base_score": 0.4}
    difference = _largest_difference(
        "reg:squarederror", parameters, has_missing=False, has_weights=False, theirs=parameters | change
    )
    assert difference > 1e-5


@pytest.mark.parametrize("has_missing", [False, True], ids=["complete", "with missing"])
@pytest.mark.parametrize("objective", N_CLASSES)
def test_every_split_gain_cover_and_leaf_equals_xgboosts(objective: str, has_missing: bool) -> None:
    """Relative tolerance 1e-4: a gain is a difference of scores in single precision."""
    parameters = {"n_estimators": 3, "max_depth": 3, "learning_rate": 0.5, "min_child_weight": 5.5, "base_score": 0.4}
    table, labels, weights = _table(objective, n_rows=400, has_missing=has_missing)
    ours = _ours(table, labels, weights, objective, parameters)
    frame = _theirs(table, labels, weights, objective, parameters).trees_to_dataframe()
    assert frame["Tree"].nunique() == len(ours.trees)
    for number, tree in enumerate(ours.trees):
        _check_nodes(tree, frame[frame["Tree"] == number].set_index("ID"), f"{number}-0", table, 0, np.arange(400))


def _check_nodes(
    tree: Tree, theirs: pd.DataFrame, their_id: str, table: np.ndarray, node: int, rows: np.ndarray
) -> None:
    """Compare a node and all below it; `rows` are those of the table that reach it."""
    their = theirs.loc[their_id]
    assert tree.covers[node] == pytest.approx(their["Cover"], rel=1e-4)
    if tree.is_leaf[node]:
        assert their["Feature"] == "Leaf"
        assert tree.values[node] == pytest.approx(their["Gain"], rel=1e-4, abs=1e-6)
        return
    assert their["Feature"] == f"f{tree.columns[node]}"
    assert tree.gains[node] == pytest.approx(their["Gain"], rel=1e-4)
    values = table[rows, tree.columns[node]]
    goes_left = np.where(np.isnan(values), tree.missing_left[node], values <= tree.thresholds[node])
    goes_yes = np.where(np.isnan(values), their["Missing"] == their["Yes"], values < their["Split"])
    np.testing.assert_array_equal(goes_left, goes_yes)
    _check_nodes(tree, theirs, their["Yes"], table, int(tree.lefts[node]), rows[goes_left.astype(bool)])
    _check_nodes(tree, theirs, their["No"], table, int(tree.rights[node]), rows[~goes_left.astype(bool)])
