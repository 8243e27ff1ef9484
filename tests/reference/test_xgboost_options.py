"""Constraints, categories, growth by leaves and other objectives against XGBoost's `hist`, and XGBoost as the engine.

Columns have at most `max_bin` distinct values, so both sides see every cut. XGBoost sums gradients in double precision
after rounding each to single precision; ours lie on a grid whose step is 2^-22 of the largest one, and Hessians on one
of 2^-17. Equal trees then give scores that differ by less than 1e-5 of their size, tenfold for counts: there the
largest Hessian is many times the mean one, and so is its step. Rows are many for the depth, since two cuts of nearly
the same gain are told apart by rounding alone; they have weights, since bounded leaves of equal rows make equal gains.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.export.xgboost_model import from_xgboost, to_xgboost
from opboost.fitting.outputs import Engine
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import loss_by_name
from opboost.trees.tree import Ensemble, Tree
from opboost.vertical import train

xgboost = pytest.importorskip("xgboost")


@pytest.fixture(autouse=True)
def _one_thread_of_xgboosts() -> Iterator[None]:
    with xgboost.config_context(nthread=1):
        yield


pytestmark = pytest.mark.usefixtures("one_thread")

N_CLASSES = {"multi:softprob": 3}
OBJECTIVES = ["reg:squarederror", "binary:logistic", "multi:softprob", "count:poisson"]
TOLERANCE = 1e-5
TOLERANCE_OF_COUNTS = 1e-4

BASICS: dict[str, Any] = {"n_estimators": 10, "max_depth": 3, "learning_rate": 0.3, "base_score": 0.4}


class Problem:
    """2,000 rows: numbers of 7, 40 and 200 distinct values, and 3 and 12 categories; labels that depend on all."""

    def __init__(self, objective: str, *, has_missing: bool = True, has_categories: bool = False) -> None:
        rng = np.random.default_rng(0)
        n_rows = 2000
        numbers = rng.integers(0, [7, 40, 200], (n_rows, 3)) * np.array([0.5, 3, 1]) - 5
        categories = rng.integers(0, [3, 12], (n_rows, 2)) * 1.0
        effects = rng.normal(size=12)
        signal = 0.5 * numbers[:, 0] + 0.05 * numbers[:, 1] - 0.01 * numbers[:, 2] + rng.normal(size=n_rows)
        signal += effects[categories[:, 1].astype(int)] + (categories[:, 0] == 1) * 0.5
        self.table = np.column_stack([numbers, categories]) if has_categories else numbers
        if has_missing:
            self.table[rng.random(self.table.shape) < 0.1] = np.nan
        match objective:
            case "reg:squarederror":
                labels = signal
            case "count:poisson":
                labels = rng.poisson(np.exp(0.5 * (signal - signal.mean()))).astype(np.float64)
            case _:
                shares = {"binary:logistic": [0.7]}.get(objective, [0.3, 0.6])
                labels = np.digitize(signal, np.quantile(signal, shares)).astype(np.float64)
        self.labels, self.objective = labels, objective
        self.weights = rng.uniform(0.5, 2, n_rows)
        self.kinds = ["q"] * 3 + ["c"] * 2 * has_categories
        self.names = [f"f{i}" for i in range(len(self.kinds))]

    def ours(
        self,
        constraints: ColumnConstraints | None = None,
        *,
        engine: Engine = "native",
        seed: int | None = None,
        **parameters: Any,
    ) -> Ensemble:
        columns = [
            OwnColumn(name, values, is_categorical=kind == "c")
            for name, values, kind in zip(self.names, self.table.T, self.kinds, strict=True)
        ]
        trained = train(
            columns,
            self.labels,
            self.weights,
            loss=loss_by_name(self.objective, N_CLASSES.get(self.objective, 0)),
            parameters=BoostingParameters(**BASICS | parameters),
            constraints=constraints,
            engine=engine,
            seed=seed,
        )
        return bind(trained, {})

    @property
    def matrix(self) -> Any:
        return xgboost.DMatrix(
            self.table,
            self.labels,
            weight=self.weights,
            feature_names=self.names,
            feature_types=self.kinds,
            enable_categorical=True,
        )

    def theirs(self, **parameters: Any) -> Any:
        settings = {"objective": self.objective, "tree_method": "hist", "nthread": 1, **BASICS, **parameters}
        if self.objective in N_CLASSES:
            settings["num_class"] = N_CLASSES[self.objective]
        return xgboost.train(settings, self.matrix, settings.pop("n_estimators"))

    def difference(self, ours: Ensemble, theirs: Any) -> float:
        """The largest difference of predictions, as a share of the largest one where that exceeds 1."""
        expected = theirs.predict(self.matrix)
        return float(np.abs(ours.predict(self.table) - expected).max() / max(1.0, np.abs(expected).max()))


def _tolerance(objective: str) -> float:
    return TOLERANCE_OF_COUNTS if objective == "count:poisson" else TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("directions", [(1, 1, -1), (-1, 0, 1), (0, 0, 1)], ids=str)
def test_monotone_constraints_are_xgboosts(objective: str, directions: tuple[int, ...]) -> None:
    problem = Problem(objective, has_missing=False)
    free = problem.theirs()
    theirs = problem.theirs(monotone_constraints=directions)
    ours = problem.ours(ColumnConstraints(dict(zip(problem.names, directions, strict=True))))
    assert problem.difference(ours, theirs) < _tolerance(objective)
    if directions == (-1, 0, 1):
        assert problem.difference(ours, free) > 100 * _tolerance(objective)


def test_missing_values_under_a_monotone_constraint_are_parted_from_the_present_ones_as_by_xgboost() -> None:
    """Whether missing rows lie above or below all present ones, the split is allowed: it says nothing of the order."""
    problem = Problem("reg:squarederror")
    directions = (-1, 0, 1)
    theirs = problem.theirs(monotone_constraints=directions)
    ours = problem.ours(ColumnConstraints(dict(zip(problem.names, directions, strict=True))))
    assert problem.difference(ours, theirs) < TOLERANCE


GROUPS: dict[str, list[list[str]]] = {
    "apart": [["f0"], ["f1"], ["f2"]],
    "overlapping": [["f0", "f1"], ["f1", "f2"]],
    "one left out": [["f0", "f1"]],
    "all together": [["f0", "f1", "f2"]],
}


@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic"])
@pytest.mark.parametrize("groups", GROUPS)
def test_interaction_constraints_are_xgboosts(objective: str, groups: str) -> None:
    problem = Problem(objective)
    theirs = problem.theirs(interaction_constraints=GROUPS[groups], max_depth=4)
    ours = problem.ours(ColumnConstraints(interactions=GROUPS[groups]), max_depth=4)
    assert problem.difference(ours, theirs) < TOLERANCE
    if groups in ("apart", "overlapping"):
        assert problem.difference(ours, problem.theirs(max_depth=4)) > 100 * TOLERANCE


def test_both_kinds_of_constraints_together_are_xgboosts() -> None:
    problem = Problem("reg:squarederror", has_missing=False)
    theirs = problem.theirs(
        interaction_constraints=GROUPS["overlapping"], monotone_constraints=(1, 1, 0), max_delta_step=0.5
    )
    ours = problem.ours(ColumnConstraints({"f0": 1, "f1": 1}, GROUPS["overlapping"]), max_delta_step=0.5)
    assert problem.difference(ours, theirs) < TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize(("max_leaves", "max_depth"), [(2, 0), (5, 0), (11, 0), (6, 3), (64, 3)])
def test_growth_by_leaves_is_xgboosts_lossguide(objective: str, max_leaves: int, max_depth: int) -> None:
    problem = Problem(objective)
    sizes = {"max_leaves": max_leaves, "max_depth": max_depth}
    theirs = problem.theirs(grow_policy="lossguide", **sizes)
    ours = problem.ours(**sizes)
    assert problem.difference(ours, theirs) < _tolerance(objective)
    assert max(int(tree.is_leaf.sum()) for tree in ours.trees) <= max_leaves


def test_growth_by_leaves_under_constraints_is_xgboosts() -> None:
    problem = Problem("binary:logistic", has_missing=False)
    theirs = problem.theirs(
        grow_policy="lossguide",
        max_leaves=7,
        max_depth=0,
        monotone_constraints=(1, 0, -1),
        interaction_constraints=GROUPS["overlapping"],
    )
    constraints = ColumnConstraints({"f0": 1, "f2": -1}, GROUPS["overlapping"])
    assert problem.difference(problem.ours(constraints, max_leaves=7, max_depth=0), theirs) < TOLERANCE


@pytest.mark.parametrize("bounds", [{}, {"max_delta_step": 0.3}], ids=str)
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic", "multi:softprob"])
def test_reg_alpha_is_xgboosts(objective: str, bounds: dict[str, float]) -> None:
    problem = Problem(objective, has_categories=True)
    settings = {"reg_alpha": 3.0, "min_child_weight": 0.0, **bounds}
    theirs = problem.theirs(**settings)
    for engine in ("native", "xgboost"):
        assert problem.difference(problem.ours(engine=engine, **settings), theirs) < TOLERANCE
    assert problem.difference(problem.ours(**settings | {"reg_alpha": 0.0}), theirs) > 100 * TOLERANCE


@pytest.mark.parametrize("max_leaves", [0, 9])
def test_columns_are_drawn_for_every_tree_level_and_node_from_those_before(max_leaves: int) -> None:
    """One column of three per level leaves every level one column; of a node's draws several occur on a level."""
    problem = Problem("reg:squarederror")
    settings = {"max_leaves": max_leaves, "max_depth": 3, "n_estimators": 20, "seed": 0}
    for name, n_per_tree, n_per_level in (
        ("bytree", {1}, {1}),
        ("bylevel", {1, 2, 3}, {1}),
        ("bynode", {1, 2, 3}, {1, 2, 3}),
    ):
        model = problem.ours(**settings, **{f"colsample_{name}": 0.34})
        by_tree, by_level = set(), set()
        for tree in model.trees:
            levels: dict[int, set[int]] = {}
            depths = np.zeros(tree.n_nodes, np.int64)
            for node in np.flatnonzero(~tree.is_leaf).tolist():
                depths[[tree.lefts[node], tree.rights[node]]] = depths[node] + 1
                levels.setdefault(int(depths[node]), set()).add(int(tree.columns[node]))
            by_tree.add(len(set().union(*levels.values())))
            by_level |= {len(columns) for columns in levels.values()}
        assert by_tree <= n_per_tree
        assert by_level <= n_per_level
        assert max(by_tree) == min(max(n_per_tree), 3)
        assert max(by_level) > 1 or name != "bynode"


@pytest.mark.parametrize("factor", [0.2, 3.0])
def test_scale_pos_weight_is_xgboosts(factor: float) -> None:
    """From a given first score; the one that XGBoost estimates is that of the unweighted labels."""
    problem = Problem("binary:logistic")
    theirs = problem.theirs(scale_pos_weight=factor)
    assert problem.difference(problem.ours(scale_pos_weight=factor), theirs) < TOLERANCE
    assert problem.difference(problem.ours(), theirs) > 100 * TOLERANCE


@pytest.mark.parametrize("objective", OBJECTIVES[:3])
@pytest.mark.parametrize("max_delta_step", [0.05, 0.3])
def test_max_delta_step_is_xgboosts(objective: str, max_delta_step: float) -> None:
    """Not of counts: there XGBoost's slack of the Hessians is the same number, and ours stays at its default of 0.7."""
    problem = Problem(objective)
    theirs = problem.theirs(max_delta_step=max_delta_step)
    assert problem.difference(problem.ours(max_delta_step=max_delta_step), theirs) < TOLERANCE
    assert problem.difference(problem.ours(), theirs) > 100 * TOLERANCE


@pytest.mark.parametrize("has_missing", [False, True], ids=["complete", "with missing"])
@pytest.mark.parametrize("reg_lambda", [1.0, 5.0])
def test_counts_are_predicted_as_xgboost_predicts_them(has_missing: bool, reg_lambda: float) -> None:
    problem = Problem("count:poisson", has_missing=has_missing)
    ours = problem.ours(reg_lambda=reg_lambda)
    assert problem.difference(ours, problem.theirs(reg_lambda=reg_lambda)) < TOLERANCE_OF_COUNTS
    assert problem.difference(ours, problem.theirs(reg_lambda=reg_lambda * 1.1)) > TOLERANCE_OF_COUNTS


@pytest.mark.parametrize("has_missing", [False, True], ids=["complete", "with missing"])
@pytest.mark.parametrize("onehot", [0, 3, 12], ids=["sorted", "one-hot up to 3", "one-hot"])
@pytest.mark.parametrize("objective", ["reg:squarederror", "binary:logistic", "multi:softprob"])
def test_splits_by_category_are_xgboosts(objective: str, onehot: int, has_missing: bool) -> None:
    """XGBoost has categories stand alone below its number, ours up to it.

    XGBoost puts categories lighter than `min_child_weight` where a mean gradient of zero belongs; there are none here.
    """
    problem = Problem(objective, has_missing=has_missing, has_categories=True)
    ours = problem.ours(max_cat_to_onehot=onehot, min_child_weight=0.0)
    theirs = problem.theirs(max_cat_to_onehot=onehot + 1, min_child_weight=0.0)
    assert problem.difference(ours, theirs) < TOLERANCE
    sizes = [len(left) for tree in ours.trees for left in tree.left_categories.values()]
    assert sizes
    assert (max(sizes) == 1) == (onehot == 12)


@pytest.mark.parametrize("onehot", [0, 12], ids=["sorted", "one-hot"])
def test_rows_of_unseen_and_missing_categories_are_scored_as_by_xgboost(onehot: int) -> None:
    """Unseen ones are above all that training has seen; XGBoost takes one that lies between them for an empty one."""
    problem = Problem("reg:squarederror", has_categories=True)
    settings = {"min_child_weight": 0.0, "max_depth": 1}
    ours = problem.ours(max_cat_to_onehot=onehot, **settings)
    theirs = problem.theirs(max_cat_to_onehot=onehot + 1, **settings)
    rows = problem.table[:300].copy()
    rows[:, 4] = np.resize([12, 40, np.nan, 1, 0], 300)
    rows[:, 3] = np.resize([3, np.nan, 0, 1, 2], 300)
    matrix = xgboost.DMatrix(rows, feature_names=problem.names, feature_types=problem.kinds, enable_categorical=True)
    expected = theirs.predict(matrix)
    np.testing.assert_allclose(ours.predict(rows), expected, rtol=0, atol=TOLERANCE * np.abs(expected).max())


CASES: dict[str, dict[str, Any]] = {
    "levels": {},
    "leaves": {"max_leaves": 6, "max_depth": 0},
    "gamma": {"gamma": 1.0, "reg_lambda": 5.0},
    "bounded": {"max_delta_step": 0.3},
    "one-hot": {"max_cat_to_onehot": 12},
}


@pytest.mark.parametrize(
    ("objective", "case"),
    [
        (objective, case)
        for objective in OBJECTIVES
        for case in CASES
        if (objective, case) != ("count:poisson", "bounded")
    ],
)
def test_both_engines_grow_the_same_model(objective: str, case: str) -> None:
    """Of counts, `max_delta_step` is left alone: in XGBoost one number is the bound and the slack of the Hessians."""
    problem = Problem(objective, has_categories=True)
    native, other = (
        problem.ours(engine=engine, **{"min_child_weight": 0.0} | CASES[case]) for engine in ("native", "xgboost")
    )
    expected = native.predict(problem.table)
    tolerance = _tolerance(objective) * max(1.0, np.abs(expected).max())
    np.testing.assert_allclose(other.predict(problem.table), expected, rtol=0, atol=tolerance)
    assert len(other.trees) == len(native.trees)
    for tree, twin in zip(native.trees, other.trees, strict=True):
        assert [split[:2] for split in _splits(tree)] == [split[:2] for split in _splits(twin)]
        assert tree.depth == twin.depth


def _splits(tree: Tree) -> list[tuple[int, float, tuple[int, ...]]]:
    """Columns, thresholds and left categories of all splits."""
    return sorted(
        (int(tree.columns[node]), float(tree.thresholds[node]), tree.left_categories.get(node, ()))
        for node in np.flatnonzero(~tree.is_leaf).tolist()
    )


def test_sorted_categories_are_listed_as_xgboost_lists_them() -> None:
    """In stumps, whose roots hold every category."""
    problem = Problem("reg:squarederror", has_categories=True)
    settings = {"min_child_weight": 0.0, "max_depth": 1}
    theirs = from_xgboost(problem.theirs(max_cat_to_onehot=1, **settings))
    ours = problem.ours(max_cat_to_onehot=0, **settings)
    found, expected = ([tree.left_categories for tree in ensemble.trees] for ensemble in (ours, theirs))
    assert any(expected)
    assert found == expected


def test_categories_that_a_node_lacks_are_listed_as_xgboost_lists_them() -> None:
    problem = Problem("reg:squarederror", has_categories=True)
    theirs = from_xgboost(problem.theirs(max_cat_to_onehot=1, min_child_weight=0.0))
    ours = problem.ours(max_cat_to_onehot=0, min_child_weight=0.0)
    found, expected = (
        [sorted(tree.left_categories.values()) for tree in ensemble.trees] for ensemble in (ours, theirs)
    )
    assert found == expected


def test_both_engines_keep_constraints() -> None:
    problem = Problem("binary:logistic", has_missing=False)
    constraints = ColumnConstraints({"f0": 1, "f2": -1}, GROUPS["overlapping"])
    native, other = (problem.ours(constraints, engine=engine) for engine in ("native", "xgboost"))
    np.testing.assert_allclose(native.predict(problem.table), other.predict(problem.table), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("sampling", [{"subsample": 0.5}, {"colsample_bytree": 0.4}], ids=str)
def test_xgboosts_sampling_is_repeatable_under_a_seed(sampling: dict[str, float]) -> None:
    problem = Problem("reg:squarederror")
    one, again, other = (
        problem.ours(engine="xgboost", seed=seed, **sampling).predict(problem.table) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(one, again)
    assert (one != other).any()


@pytest.mark.parametrize("kind", ["gain", "total_gain", "cover", "total_cover", "split"])
@pytest.mark.parametrize("has_categories", [False, True], ids=["numbers", "categories"])
def test_importances_are_those_of_the_exported_model(kind: Any, has_categories: bool) -> None:
    """XGBoost sums in single precision."""
    problem = Problem("binary:logistic", has_categories=has_categories)
    ensemble = problem.ours(n_estimators=5, max_depth=2)
    theirs = to_xgboost(ensemble).get_score(importance_type={"split": "weight"}.get(kind, kind))
    expected = [theirs.get(name, 0.0) for name in problem.names]
    assert ensemble.importance(kind).tolist() == pytest.approx(expected, rel=1e-5)
    assert np.count_nonzero(expected) > 0
