"""Partial dependence against its definition, a recursion through every tree, and against scikit-learn's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.inspection import partial_dependence

from opboost.columns import OwnColumn, RankColumn
from opboost.errors import DataError
from opboost.explanation.partial_dependence import dependences, mean_scores
from opboost.split_tests import bind, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Tree
from opboost.vertical import train

pytestmark = pytest.mark.usefixtures("one_thread")

RNG = np.random.default_rng(3)
N = 400
OWN, KINDS = RNG.normal(size=N), RNG.integers(0, 8, N) * 1.0
OWN[:30] = np.nan
RANKS = RNG.integers(0, 41, N).astype(np.uint32)
LABELS = np.nan_to_num(OWN) + 0.5 * (KINDS % 3) + (RANKS > 20) * np.nan_to_num(OWN) + 0.1 * RNG.normal(size=N)
SMALL = BoostingParameters(n_estimators=6, max_depth=3)


def joint(loss: Loss, labels: np.ndarray = LABELS, *, cuts: np.ndarray | None = None) -> Ensemble:
    """A model of a number, categories, and another party's ranks, of which rank 40 is missing."""
    columns = [OwnColumn("x", OWN), OwnColumn("k", KINDS, True), RankColumn("shop", 0, "c0", RANKS, 40, cuts=cuts)]
    trained = train(columns, labels, np.ones(N), loss=loss, parameters=SMALL)
    return bind(trained, list_tests(trained))


def by_definition(tree: Tree, known: dict[int, float], node: int = 0) -> float:
    """The mean value below a node, a split on a known feature taking its way."""
    if tree.is_leaf[node]:
        return float(tree.values[node])
    left, right = (by_definition(tree, known, int(child[node])) for child in (tree.lefts, tree.rights))
    if (cell := known.get(int(tree.columns[node]))) is None:
        share = tree.covers[tree.lefts[node]] / tree.covers[node]
        return share * left + (1 - share) * right
    if np.isnan(cell):
        return left if tree.missing_left[node] else right
    goes_left = cell in tree.left_categories[node] if node in tree.left_categories else cell <= tree.thresholds[node]
    return left if goes_left else right


@pytest.mark.parametrize("cuts", [None, np.array([5, 20, 30])], ids=["tests", "cells"])
def test_scores_are_those_of_the_definition(cuts: np.ndarray | None) -> None:
    model = joint(SquaredError(), cuts=cuts)
    for found in dependences(model):
        inputs = [i for i, feature in enumerate(model.features) if feature.column == found.column]
        ends = [*found.places, np.inf][: len(found.scores)]
        for place, scores in zip([*ends, np.nan], [*found.scores, found.missing], strict=True):
            known = {i: place for i in inputs}
            if found.kind == "ranks":
                tests = {i: model.features[i] for i in inputs}
                known = {
                    i: float(not one.missing_left) if np.isnan(place) else float(place > one.rank)  # type: ignore[operator]
                    for i, one in tests.items()
                }
            expected = model.base_scores[0] + sum(by_definition(tree, known) for tree in model.trees)
            assert scores[0] == pytest.approx(expected)
    kinds = {one.column.name: one.kind for one in dependences(model)}
    assert kinds == {"x": "thresholds", "k": "categories", "c0": "ranks" if cuts is None else "cells"}


def test_shares_of_the_gain_add_up_and_name_tests_by_their_number() -> None:
    model = joint(SquaredError())
    found = dependences(model)
    assert [one.share_of_gain for one in found] == sorted((one.share_of_gain for one in found), reverse=True)
    assert sum(one.share_of_gain for one in found) == pytest.approx(1)
    ranks = next(one for one in found if one.kind == "ranks")
    asked = [model.features[i].rank for i in model.inputs["shop"]]
    assert [asked[test] for test in ranks.tests] == ranks.places.tolist()
    assert ranks.to_dict()["tests"] == ranks.tests.tolist()


def test_every_output_has_scores_of_its_own() -> None:
    labels = np.digitize(LABELS, np.quantile(LABELS, [0.3, 0.7])).astype(float)
    model = joint(Softmax(3), labels)
    for output in range(3):
        single = {"trees": model.trees[output::3], "base_scores": model.base_scores[output, None]}
        alone = {one.column: one for one in dependences(replace(model, loss=SquaredError(), **single))}
        for found in dependences(model):
            assert found.scores.shape[1] == 3
            np.testing.assert_allclose(found.missing[output], alone[found.column].missing[0])


def test_it_is_scikit_learns_recursion() -> None:
    rows = RNG.normal(size=(500, 3)).round(1)
    target = rows[:, 0] ** 2 + rows[:, 1] * rows[:, 2]
    theirs = HistGradientBoostingRegressor(max_iter=5, max_depth=3, early_stopping=False).fit(rows, target)
    columns = [OwnColumn(f"x{i}", one) for i, one in enumerate(rows.T)]
    parameters = BoostingParameters(n_estimators=5, max_depth=3, learning_rate=0.1, reg_lambda=0, min_child_weight=20)
    model = bind(train(columns, target, np.ones(500), loss=SquaredError(), parameters=parameters), {})
    at = partial_dependence(theirs, rows, [0], grid_resolution=9, method="recursion")
    found = mean_scores(model.flat, model.base_scores * 0, np.array([0]), at["grid_values"][0][:, None])
    np.testing.assert_allclose(found[:, 0], at["average"][0], atol=1e-4)


def test_trees_without_covers_are_refused() -> None:
    model = joint(SquaredError())
    bare = replace(model, trees=tuple(replace(tree, covers=np.zeros(tree.n_nodes)) for tree in model.trees))
    with pytest.raises(DataError, match="needs the trees' covers"):
        dependences(bare)
