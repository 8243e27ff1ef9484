"""Trees on alternating versions of columns, against obvious twins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from opboost.errors import DataError
from opboost.trees.alternating import Alternates, FollowedVersions
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_categories, bin_values
from opboost.trees.boosting import BoostingParameters, boost_table
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Loss, Softmax, SquaredError
from opboost.trees.tree import Tree

SMALL = BoostingParameters(n_estimators=9, max_depth=4, learning_rate=0.3)


def table_of(
    rng: np.random.Generator, n_rows: int, n_versions: int, *, max_bin: int = 300, has_missing: bool = True
) -> Any:
    """Own numbers with gaps, own categories, and two columns with versions that are missing here and there."""
    own = rng.normal(size=n_rows)
    if has_missing:
        own[rng.random(n_rows) < 0.1] = np.nan
    kinds = rng.integers(0, 6, n_rows).astype(float)
    versions = rng.integers(0, 8, size=(n_versions, 2, n_rows)).astype(np.uint8)
    columns = [bin_values(own, max_bin=max_bin), bin_categories(kinds, max_bin=max_bin)]
    columns += [BinnedColumn(versions[0, j].copy(), np.arange(6.0)) for j in range(2)]
    labels = np.nan_to_num(own) + 0.3 * versions.mean(axis=0)[0] + (kinds == 2)
    return BinnedTable.of(columns), versions, labels


def grow(table: BinnedTable, labels: np.ndarray, loss: Loss, **settings: Any) -> list[Tree]:
    base_scores = loss.initial_scores(labels, np.ones(len(labels)))
    limits = ColumnConstraints().on(list("abcd"), are_categorical=[False, True, False, False], max_delta_step=0.0)
    trees, _ = boost_table(
        table,
        labels,
        np.ones(len(labels)),
        settings.pop("parameters", SMALL),
        loss=loss,
        base_scores=base_scores,
        constraints=limits,
        seed=0,
        **settings,
    )
    return trees


def _stump(thresholds: np.ndarray, missing_left: np.ndarray) -> Tree:
    """A tree of one split on the first column."""
    zeros = np.zeros(3)
    return Tree(
        np.array([0, -1, -1], np.int32),
        thresholds,
        missing_left,
        np.array([1, 0, 0], np.int32),
        np.array([2, 0, 0], np.int32),
        np.array([0.0, 1.0, -2.0]),
        zeros,
        zeros,
    )


def walked(tree: Tree, bins: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Each row's leaf value, one row and one node after the other."""
    found = np.empty(bins.shape[1])
    for i in range(bins.shape[1]):
        node = 0
        while tree.columns[node] >= 0:
            cell = bins[tree.columns[node], i]
            if cell == sizes[tree.columns[node]] - 1:
                goes_left = tree.missing_left[node]
            elif node in tree.left_categories:
                goes_left = int(cell) in tree.left_categories[node]
            else:
                goes_left = cell <= tree.thresholds[node]
            node = tree.lefts[node] if goes_left else tree.rights[node]
        found[i] = tree.values[node]
    return found


@pytest.mark.parametrize("max_bin", [50, 256, 400])
@pytest.mark.parametrize("max_depth", [3, 10])
def test_a_version_is_followed_through_every_kind_of_split(max_bin: int, max_depth: int) -> None:
    """Bins of one and of two bytes, and as many as a byte counts; trees of few nodes and of more than a byte counts."""
    table, versions, labels = table_of(np.random.default_rng(1), 5000, 3, max_bin=max_bin, has_missing=max_bin != 256)
    parameters = BoostingParameters(n_estimators=4, max_depth=max_depth, max_bin=max_bin, min_child_weight=0)
    trees = grow(table, labels, SquaredError(), parameters=parameters)
    assert all(len(tree.left_categories) > 0 for tree in trees)
    assert (max(tree.n_nodes for tree in trees) > 256) == (max_depth == 10)
    followed = FollowedVersions(table, Alternates(np.array([2, 3]), versions, (0, 1, 2)), np.zeros((1, 5000)))
    # Cuts before all present bins and behind the first one are the ends of what a byte counts.
    for cut in (-1.0, 0.0):
        for missing_left in (False, True):
            root = np.array([cut, 0.0, 0.0]), np.array([missing_left, False, False])
            trees.append(_stump(*root))
    for tree in trees:
        followed.add(tree, 0)
    for version in range(3):
        bins = table.bins.copy()
        bins[2:] = versions[version]
        expected = sum(walked(tree, bins, table.axes.sizes) for tree in trees)
        np.testing.assert_allclose(followed.up_to_date(version)[0], expected)


@pytest.mark.parametrize("loss", [SquaredError(), Logistic(), Softmax(3)], ids=lambda loss: loss.name)
def test_one_version_is_the_table_itself(loss: Loss) -> None:
    table, versions, numbers = table_of(np.random.default_rng(2), 800, 1)
    labels = (
        numbers
        if loss.n_outputs == 1 and isinstance(loss, SquaredError)
        else np.clip(np.digitize(numbers, [0.5, 1.5]), 0, max(1, loss.n_outputs - 1)).astype(float)
    )
    plain = grow(table, labels, loss)
    same = grow(table, labels, loss, alternates=Alternates(np.array([2, 3]), versions, (0,)))
    assert len(plain) == len(same)
    for one, other in zip(plain, same, strict=True):
        np.testing.assert_array_equal(one.columns, other.columns)
        np.testing.assert_array_equal(one.thresholds, other.thresholds)
        np.testing.assert_array_equal(one.values, other.values)


def test_versions_leave_out_the_trees_that_the_table_leaves_out() -> None:
    table, versions, labels = table_of(np.random.default_rng(5), 800, 1)
    dart = replace(SMALL, booster="dart", rate_drop=0.5)
    plain = grow(table, labels, SquaredError(), parameters=dart)
    same = grow(table, labels, SquaredError(), parameters=dart, alternates=Alternates(np.array([2, 3]), versions, (0,)))
    for one, other in zip(plain, same, strict=True):
        np.testing.assert_array_equal(one.columns, other.columns)
        np.testing.assert_allclose(one.values, other.values, atol=1e-5)


@pytest.mark.parametrize("n_ensembles", [1, 2])
def test_each_tree_grows_on_its_version_at_the_scores_that_the_trees_of_its_ensemble_give_it(n_ensembles: int) -> None:
    """An obvious twin grows one tree at a time on a table of its own, with the scores so far as its labels' offset."""
    table, versions, labels = table_of(np.random.default_rng(3), 600, 2)
    turns = (0, 1, 1)
    trees = grow(table, labels, SquaredError(), alternates=Alternates(np.array([2, 3]), versions, turns, n_ensembles))
    assert all(_is_fitted(table, versions, turns, labels, trees, t, n_ensembles) for t in range(len(trees)))
    assert not all(_is_fitted(table, versions, turns, labels, trees, t, 3 - n_ensembles) for t in range(len(trees)))


def _is_fitted(
    table: BinnedTable,
    versions: np.ndarray,
    turns: tuple[int, ...],
    labels: np.ndarray,
    trees: Sequence[Tree],
    t: int,
    n_ensembles: int,
) -> bool:
    """Whether a tree's leaves are a step towards what the trees before it in its ensemble leave of the labels."""
    bins = table.bins.copy()
    bins[2:] = versions[turns[t % len(turns)]]
    before = trees[t % n_ensembles : t : n_ensembles]
    scores = labels.mean() + n_ensembles * sum((walked(one, bins, table.axes.sizes) for one in before), np.zeros(600))
    reached = walked(trees[t], bins, table.axes.sizes)
    return all(
        leaf == pytest.approx(0.3 * (labels - scores)[reached == leaf].sum() / ((reached == leaf).sum() + 1), abs=1e-5)
        for leaf in np.unique(reached)
    )


def test_trees_from_before_count_for_every_ensemble() -> None:
    table, versions, labels = table_of(np.random.default_rng(3), 600, 2)
    of_both = Alternates(np.array([2, 3]), versions, (0, 1), n_ensembles=2)
    earlier = grow(table, labels, SquaredError(), alternates=of_both)
    first = len(earlier)
    later = grow(table, labels, SquaredError(), alternates=of_both, earlier=earlier)[first:]
    for t in range(2):
        bins = table.bins.copy()
        bins[2:] = versions[(first + t) % 2]
        scores = labels.mean() + sum((walked(one, bins, table.axes.sizes) for one in earlier), np.zeros(600))
        reached = walked(later[t], bins, table.axes.sizes)
        for leaf in np.unique(reached):
            here = reached == leaf
            assert leaf == pytest.approx(0.3 * (labels - scores)[here].sum() / (here.sum() + 1), abs=1e-5)


def test_versions_that_do_not_fit_the_table_are_refused() -> None:
    table, versions, labels = table_of(np.random.default_rng(4), 100, 2)
    for alternates in (
        Alternates(np.array([2, 3]), versions[:, :, :-1], (0,)),
        Alternates(np.array([2]), versions, (0,)),
        Alternates(np.array([2, 3]), versions, ()),
    ):
        with pytest.raises(DataError, match="do not fit"):
            grow(table, labels, SquaredError(), alternates=alternates)
