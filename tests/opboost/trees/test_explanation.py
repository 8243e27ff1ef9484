"""Shapley values against their definition, which enumerates all sets of columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import combinations
from math import factorial

import numpy as np
import pytest

from opboost.covers import with_covers
from opboost.errors import DataError
from opboost.trees.losses import Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree

pytestmark = pytest.mark.usefixtures("one_thread")

N_COLUMNS = 5


def _random_tree(rng: np.random.Generator, n_splits: int) -> Tree:
    """Splits at random places, on numbers and in one of three cases on categories; covers of single leaves may be 0."""
    columns, lefts, rights, categories = [-1], [0], [0], {}
    for _ in range(n_splits):
        node = int(rng.choice([i for i, column in enumerate(columns) if column < 0]))
        columns[node], lefts[node], rights[node] = int(rng.integers(N_COLUMNS)), len(columns), len(columns) + 1
        if rng.random() < 0.3:
            categories[node] = tuple(sorted({int(c) for c in rng.integers(0, 5, 2)}))
        columns, lefts, rights = columns + [-1, -1], lefts + [0, 0], rights + [0, 0]
    n_nodes, is_leaf = len(columns), np.array(columns) < 0
    covers = np.where(is_leaf, rng.integers(0, 9, n_nodes) + 0.5 * (rng.random(n_nodes) < 0.5), 0.0)
    for node in np.flatnonzero(~is_leaf)[::-1]:
        covers[node] = covers[lefts[node]] + covers[rights[node]]
    return Tree(
        columns=np.array(columns, np.int32),
        thresholds=rng.integers(0, 5, n_nodes) * 1.0,
        missing_left=rng.random(n_nodes) < 0.5,
        lefts=np.array(lefts, np.int32),
        rights=np.array(rights, np.int32),
        values=np.where(is_leaf, rng.normal(size=n_nodes), 0),
        gains=np.zeros(n_nodes),
        covers=covers,
        left_categories=categories,
    )


def _ensemble(seed: int, loss: Loss, features: Iterable[Feature] | None = None, n_splits: int = 9) -> Ensemble:
    rng = np.random.default_rng(seed)
    trees = tuple(_random_tree(rng, n_splits) for _ in range(3 * loss.n_outputs))
    named = tuple(features or (Feature(f"f{i}") for i in range(N_COLUMNS)))
    return Ensemble(trees, rng.normal(size=loss.n_outputs), loss, named)


def _rows(n_rows: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    rows = rng.integers(-1, 6, (n_rows, N_COLUMNS)) * 1.0
    rows[rng.random(rows.shape) < 0.2] = np.nan
    return rows


def _expected(tree: Tree, row: np.ndarray, known: set[int], node: int = 0) -> float:
    """A tree's value if some features are known."""
    if tree.is_leaf[node]:
        return float(tree.values[node])
    left, right, x = int(tree.lefts[node]), int(tree.rights[node]), row[tree.columns[node]]
    if int(tree.columns[node]) in known:
        goes_left = tree.missing_left[node] if np.isnan(x) else x <= tree.thresholds[node]
        if node in tree.left_categories and not np.isnan(x):
            goes_left = x in tree.left_categories[node]
        return _expected(tree, row, known, left if goes_left else right)
    total = tree.covers[left] + tree.covers[right]
    shares = [tree.covers[child] / total if total else 0.0 for child in (left, right)]
    return sum(s * _expected(tree, row, known, child) for s, child in zip(shares, (left, right), strict=True))


def _by_definition(model: Ensemble, row: np.ndarray) -> np.ndarray:
    """Shapley values and, off the diagonal, half of the Shapley interaction indices; shape ``(n_outputs, n, n)``."""
    places = [model.columns[feature.column] for feature in model.features]
    n, n_outputs = len(model.columns), model.loss.n_outputs
    worth = {}
    for size in range(n + 1):
        for members in combinations(range(n), size):
            known = {feature for feature, place in enumerate(places) if place in members}
            each = [_expected(tree, row, known) for tree in model.trees]
            worth[frozenset(members)] = np.reshape(each, (-1, n_outputs)).sum(axis=0) + model.base_scores
    out = np.zeros((n_outputs, n + 1, n + 1))
    for members, value in worth.items():
        for i in set(range(n)) - members:
            weight = factorial(len(members)) * factorial(n - len(members) - 1) / factorial(n)
            out[:, i, n] += weight * (worth[members | {i}] - value)
            for j in set(range(n)) - members - {i}:
                both = worth[members | {i, j}] - worth[members | {i}] - worth[members | {j}] + value
                out[:, i, j] += factorial(len(members)) * factorial(n - len(members) - 2) / factorial(n - 1) / 2 * both
    out[:, n, n] = worth[frozenset()]
    return out


def _check(model: Ensemble, rows: np.ndarray, *, atol: float = 1e-12) -> None:
    found, pairs = model.contributions(rows), model.contributions(rows, in_pairs=True)
    n = len(model.columns)
    for i, row in enumerate(rows):
        expected = _by_definition(model, row)
        np.testing.assert_allclose(found[i], expected[:, :, n], rtol=0, atol=atol)
        for a in range(n):
            for b in set(range(n)) - {a}:
                np.testing.assert_allclose(pairs[i, :, a, b], expected[:, a, b], rtol=0, atol=atol)
    np.testing.assert_allclose(pairs.sum(axis=-1), found, rtol=0, atol=atol)
    np.testing.assert_allclose(found.sum(axis=-1), model.scores(rows), rtol=0, atol=atol)


@pytest.mark.parametrize("loss", [SquaredError(), Softmax(2)], ids=str)
@pytest.mark.parametrize("seed", range(6))
def test_contributions_are_the_shapley_values_of_their_definition(seed: int, loss: Loss) -> None:
    _check(_ensemble(seed, loss), _rows(4))


def test_tests_of_one_owners_column_count_as_one_column() -> None:
    features = [
        Feature("age"),
        Feature("x", "shop", 3),
        Feature("y", "shop", 1),
        Feature("x", "shop", 5),
        Feature("x", "bank", 5),
    ]
    model = _ensemble(7, SquaredError(), features)
    assert [(column.owner, column.name) for column in model.columns] == [
        (None, "age"),
        ("shop", "x"),
        ("shop", "y"),
        ("bank", "x"),
    ]
    _check(model, _rows(6))
    alone = _ensemble(7, SquaredError()).contributions(_rows(6))
    together = model.contributions(_rows(6))
    assert np.abs(alone[..., 1] + alone[..., 3] - together[..., 1]).max() > 1e-3


def test_rows_are_explained_alike_in_any_company() -> None:
    model, rows = _ensemble(1, SquaredError(), n_splits=30), _rows(600)
    together = model.contributions(rows)
    np.testing.assert_array_equal(together[500:503], model.contributions(rows[500:503]))
    np.testing.assert_array_equal(together[:, 0].sum(axis=0), model.contributions(rows[::-1])[::-1, 0].sum(axis=0))


def test_a_model_without_trees_or_splits_is_its_first_score() -> None:
    empty = Ensemble((), np.array([2.0]), SquaredError(), (Feature("a"),))
    leaf = _random_tree(np.random.default_rng(0), 0)
    for model, mean in ((empty, 2.0), (replace(empty, trees=(leaf,)), 2.0 + leaf.values[0])):
        assert model.contributions(np.zeros((1, 1))).tolist() == [[[0.0, mean]]]
        assert model.contributions(np.zeros((1, 1)), in_pairs=True).tolist() == [[[[0.0, 0.0], [0.0, mean]]]]


def test_a_model_without_covers_is_explained_on_rows_that_are_counted() -> None:
    model, rows = _ensemble(3, SquaredError()), _rows(200)
    bare = replace(model, trees=tuple(replace(tree, covers=np.zeros(tree.n_nodes)) for tree in model.trees))
    with pytest.raises(DataError, match="need the trees' covers"):
        bare.contributions(rows)
    counted = with_covers(bare, rows)
    assert {tree.covers[0] for tree in counted.trees} == {200.0}
    _check(counted, rows[:3])


def test_rows_of_other_width_are_refused() -> None:
    with pytest.raises(DataError, match="5 features; got an array of shape"):
        _ensemble(0, SquaredError()).contributions(np.zeros((2, 4)))
