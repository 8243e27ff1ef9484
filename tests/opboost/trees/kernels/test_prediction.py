"""Values to bins by counting cuts, and rows to scores by walking every tree from its root."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.arrays import read_only
from opboost.trees.kernels.prediction import place_in_bins
from opboost.trees.losses import Loss, Softmax, SquaredError
from opboost.trees.tree import Ensemble, Feature, Tree

SEEDS = st.integers(0, 2**32 - 1)
PLACED_TOGETHER = 1 << 15

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.usefixtures("every_thread")
@pytest.mark.parametrize("extra", [-1, 0, 5])
def test_values_of_several_blocks_are_placed_by_the_number_of_cuts_below_them(extra: int) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(0, 9, (PLACED_TOGETHER + extra, 2)) / 2
    values[rng.random(values.shape) < 0.1] = np.nan
    cuts = [np.array([0.5, 1.0, 3.25]), np.empty(0)]
    out = np.empty((2, len(values)), np.uint8)
    place_in_bins(read_only(values), np.concatenate(cuts), np.array([0, 3, 3]), out)
    for column, edges, placed in zip(values.T, cuts, out, strict=True):
        expected = np.where(np.isnan(column), len(edges) + 1, np.searchsorted(edges, column))
        np.testing.assert_array_equal(placed, expected)


def _random_tree(n_splits: int, n_columns: int, rng: np.random.Generator) -> Tree:
    """A tree of any shape whose nodes are numbered in any order, parents first; some splits ask for categories."""
    n_nodes = 2 * n_splits + 1
    children = {}
    leaves = [0]
    for k in range(n_splits):
        children[leaves.pop(rng.integers(len(leaves)))] = (2 * k + 1, 2 * k + 2)
        leaves += [2 * k + 1, 2 * k + 2]
    number, waiting = {}, [0]
    while waiting:
        node = waiting.pop(rng.integers(len(waiting)))
        number[node] = len(number)
        waiting += children.get(node, ())
    lefts, rights = np.zeros((2, n_nodes), np.int32)
    is_split = np.zeros(n_nodes, np.bool_)
    for node, pair in children.items():
        is_split[number[node]] = True
        lefts[number[node]], rights[number[node]] = (number[child] for child in pair)
    return Tree(
        np.where(is_split, rng.integers(n_columns, size=n_nodes), -1).astype(np.int32),
        np.where(is_split, rng.integers(0, 4, n_nodes), 0.0),
        is_split & (rng.random(n_nodes) < 0.5),
        lefts,
        rights,
        np.where(is_split, 0.0, rng.normal(size=n_nodes)),
        np.zeros(n_nodes),
        np.zeros(n_nodes),
        {
            node: tuple(sorted(rng.permutation(3)[: rng.integers(1, 4)].tolist()))
            for node in np.flatnonzero(is_split).tolist()
            if rng.random() < 0.4
        },
    )


def _walk(tree: Tree, row: np.ndarray) -> float:
    node = 0
    while tree.columns[node] >= 0:
        x = row[tree.columns[node]]
        if np.isnan(x):
            goes_left = tree.missing_left[node]
        elif node in tree.left_categories:
            goes_left = x in tree.left_categories[node]
        else:
            goes_left = x <= tree.thresholds[node]
        node = tree.lefts[node] if goes_left else tree.rights[node]
    return float(tree.values[node])


def _scores(trees: list[Tree], features: np.ndarray, loss: Loss) -> np.ndarray:
    names = tuple(Feature(f"f{i}") for i in range(features.shape[1]))
    return Ensemble(tuple(trees), np.zeros(loss.n_outputs), loss, names).scores(features)


CELLS = np.array([0, 1, 2, 3, np.nan, -1, 0.5, 1e300, -1e300, np.inf, -np.inf, 2**31, -(2.0**63)])


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 12), min_size=1, max_size=3),
    st.sampled_from([SquaredError(), Softmax(2)]),
    st.integers(1, 200),
    st.booleans(),
    SEEDS,
)
def test_predictions_add_the_leaf_that_a_walk_from_the_root_reaches(
    sizes: list[int], loss: Loss, n_rows: int, has_missing: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    trees = [_random_tree(n_splits, 3, rng) for n_splits in sizes * loss.n_outputs]
    features = rng.choice(CELLS, (n_rows, 3))
    if not has_missing:
        features[np.isnan(features)] = 1.0
    expected = np.zeros((n_rows, loss.n_outputs))
    for number, tree in enumerate(trees):
        expected[:, number % loss.n_outputs] += [_walk(tree, row) for row in features]
    np.testing.assert_array_equal(_scores(trees, features, loss), expected)


@pytest.mark.usefixtures("every_thread")
@pytest.mark.parametrize("n_rows", [63, 64, 65, 127, 128, 129, 1000])
def test_rows_that_walk_together_reach_the_leaf_that_each_reaches_alone(n_rows: int) -> None:
    """One row in seven has a missing value: its neighbours' way must not depend on that."""
    rng = np.random.default_rng(n_rows)
    trees = [_random_tree(9, 3, rng) for _ in range(4)]
    features = rng.choice(CELLS[~np.isnan(CELLS)], (n_rows, 3))
    features[::7, 1] = np.nan
    alone = [_scores(trees, features[i : i + 1], SquaredError())[0] for i in range(n_rows)]
    np.testing.assert_array_equal(_scores(trees, features, SquaredError()), alone)


def test_a_lone_leaf_is_reached_by_every_row_the_missing_and_the_infinite_ones_too() -> None:
    tree = _random_tree(0, 3, np.random.default_rng(0))
    features = np.array([[np.nan] * 3, [np.inf] * 3, [-np.inf] * 3, [0.0] * 3])
    assert _scores([tree], features, SquaredError()).tolist() == [[tree.values[0]]] * 4
