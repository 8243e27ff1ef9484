"""Steps 4 to 7 at the active party: merge columns, train, list the tests to resolve, bind, and predict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Ranks, Values
from opboost.errors import DataError
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, boost
from opboost.trees.holder import LocalHolder
from opboost.trees.losses import Loss
from opboost.trees.tree import Ensemble, Feature, Tree

# "Every present value goes left": a finite threshold, so that model files need no infinity.
PRESENT = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """A column that the active party holds, shape ``(n_rows,)``, NaN for missing."""

    name: str
    values: Values


@dataclass(frozen=True, slots=True)
class RankColumn:
    """A column of ranks that a passive party released.

    Attributes
    ----------
    owner : str
        The passive party.
    index : int
        Its number among the owner's columns.
    name : str
    ranks : ndarray of unsigned integers, shape (n_rows,)
        ``0 .. n_ranks - 1``; missing rows hold ``n_ranks``.
    n_ranks : int
    """

    owner: str
    index: int
    name: str
    ranks: Ranks
    n_ranks: int


Column = OwnColumn | RankColumn


@dataclass(frozen=True, slots=True)
class TrainedTrees:
    """Trees in bins, before the passive parties' tests are bound.

    Attributes
    ----------
    trees : tuple of Tree
    base_scores : ndarray of float64
    loss : Loss
    columns : tuple of Column
    cuts : tuple of ndarray
        Per column: the value, or the rank, behind which each cut lies.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    columns: tuple[Column, ...]
    cuts: tuple[Values, ...]


@dataclass(frozen=True, slots=True)
class ListedTests:
    """Split tests to be resolved by one owner: its column, the rank, and the answer for missing; ``(n_tests,)``."""

    columns: NDArray[np.uint32]
    ranks: Ranks
    missing_left: Mask


def train(
    columns: Sequence[Column],
    labels: Values,
    weights: Values,
    *,
    loss: Loss,
    parameters: BoostingParameters,
    seed: int | None = None,
    on_round: Callable[[int], None] = lambda _: None,
) -> TrainedTrees:
    """Grow trees on own columns and rank columns side by side.

    Ties between columns go to the earlier one. `seed` serves row and column sampling only.

    Raises
    ------
    DataError
        If labels do not fit the loss or there is no column.
    """
    if not columns or len(labels) == 0:
        raise DataError(f"training needs at least one column and one row; got {len(columns)} and {len(labels)}")
    if not (weights >= 0).all() or not 0 < weights.sum() < np.inf:
        raise DataError("weights must be finite numbers, none negative and not all zero")
    _check_lengths(columns, len(labels))
    loss.check_labels(labels)
    binned = [_bin(column, max_bin=parameters.max_bin) for column in columns]
    table = BinnedTable.of(binned)
    if parameters.base_score is None:
        base_scores = loss.initial_scores(labels, weights)
    else:
        base_scores = np.full(loss.n_outputs, loss.score_of(parameters.base_score))
    grid = loss.grid(labels, weights, base_scores)
    row_rng, column_rng = np.random.default_rng(seed).spawn(2)
    holder = LocalHolder(
        table, labels, weights,
        loss=loss, grid=grid, initial_scores=base_scores, subsample=parameters.subsample, rng=row_rng,
    )  # fmt: skip
    trees = boost(
        holder,
        parameters,
        axes=table.axes,
        grid=grid,
        n_outputs=loss.n_outputs,
        rng=column_rng,
        on_round=on_round,
    )
    return TrainedTrees(tuple(trees), base_scores, loss, tuple(columns), table.cuts)


def list_tests(trained: TrainedTrees) -> dict[str, ListedTests]:
    """Every distinct test that the trees make on each owner's columns, by owner, in ascending order."""
    tests: dict[str, set[tuple[int, int, bool]]] = {
        column.owner: set() for column in trained.columns if isinstance(column, RankColumn)
    }
    for tree in trained.trees:
        for node in np.flatnonzero(~tree.is_leaf):
            column = trained.columns[tree.columns[node]]
            if isinstance(column, RankColumn):
                tests[column.owner].add(_test(trained, tree, int(node)))
    return {owner: _as_arrays(sorted(keys)) for owner, keys in tests.items()}


def bind(trained: TrainedTrees, tests: Mapping[str, ListedTests]) -> Ensemble:
    """The ensemble that predicts from own values and from the owners' answers to `tests`."""
    features: list[Feature] = []
    own_feature: dict[int, int] = {}
    for c, column in enumerate(trained.columns):
        if isinstance(column, OwnColumn):
            own_feature[c] = len(features)
            features.append(Feature(column.name))
    names = {(c.owner, c.index): c.name for c in trained.columns if isinstance(c, RankColumn)}
    test_feature: dict[tuple[str, int, int, bool], int] = {}
    for owner, listed in tests.items():
        keys = zip(listed.columns.tolist(), listed.ranks.tolist(), listed.missing_left.tolist(), strict=True)
        for c, rank, missing_left in keys:
            test_feature[owner, c, rank, missing_left] = len(features)
            features.append(Feature(names[owner, c], owner, rank, missing_left))
    trees = tuple(_bind_tree(trained, tree, own_feature, test_feature) for tree in trained.trees)
    return Ensemble(trees, trained.base_scores, trained.loss, tuple(features))


def feature_matrix(ensemble: Ensemble, own: Mapping[str, Values], answers: Mapping[str, Mask], n_rows: int) -> Values:
    """What an ensemble predicts from: own columns by name, and per owner the answers ``(n_rows, n_tests)``.

    Raises
    ------
    DataError
        If a column or an owner's answers are absent. There is never a silent default score.
    """
    matrix = np.empty((n_rows, len(ensemble.features)))
    n_answered = dict.fromkeys(answers, 0)
    for i, feature in enumerate(ensemble.features):
        if feature.owner is None:
            if feature.name not in own:
                raise DataError(f"the model needs column {feature.name!r}, which is absent. No score was computed")
            matrix[:, i] = own[feature.name]
        else:
            n_tests = sum(other.owner == feature.owner for other in ensemble.features)
            if feature.owner not in answers or answers[feature.owner].shape != (n_rows, n_tests):
                raise DataError(
                    f"the model needs the answers of {feature.owner!r} to {n_tests} tests on {n_rows} records. "
                    "No score was computed"
                )
            matrix[:, i] = ~answers[feature.owner][:, n_answered[feature.owner]]
            n_answered[feature.owner] += 1
    return matrix


def _check_lengths(columns: Sequence[Column], n_rows: int) -> None:
    for column in columns:
        length = len(column.values if isinstance(column, OwnColumn) else column.ranks)
        if length != n_rows:
            raise DataError(f"column {column.name!r} has {length} rows; there are {n_rows} labels")


def _bin(column: Column, *, max_bin: int) -> BinnedColumn:
    if isinstance(column, OwnColumn):
        return bin_values(column.values, max_bin=max_bin)
    return bin_ranks(column.ranks, column.n_ranks, max_bin=max_bin)


def _test(trained: TrainedTrees, tree: Tree, node: int) -> tuple[int, int, bool]:
    """The test at a node as its owner knows it: column, rank, answer for missing."""
    c = int(tree.columns[node])
    column, cuts, cut = trained.columns[c], trained.cuts[c], int(tree.thresholds[node])
    assert isinstance(column, RankColumn)
    rank = int(cuts[cut]) if cut < len(cuts) else column.n_ranks - 1
    return column.index, rank, bool(tree.missing_left[node])


def _as_arrays(keys: list[tuple[int, int, bool]]) -> ListedTests:
    columns, ranks, missing_left = zip(*keys, strict=True) if keys else ((), (), ())
    return ListedTests(np.array(columns, np.uint32), np.array(ranks, np.uint32), np.array(missing_left, np.bool_))


def _bind_tree(
    trained: TrainedTrees,
    tree: Tree,
    own_feature: dict[int, int],
    test_feature: dict[tuple[str, int, int, bool], int],
) -> Tree:
    columns, thresholds, missing_left = tree.columns.copy(), tree.thresholds.copy(), tree.missing_left.copy()
    for node in np.flatnonzero(~tree.is_leaf):
        c, cut = int(tree.columns[node]), int(tree.thresholds[node])
        column = trained.columns[c]
        if isinstance(column, OwnColumn):
            columns[node] = own_feature[c]
            thresholds[node] = trained.cuts[c][cut] if cut < len(trained.cuts[c]) else PRESENT
        else:
            columns[node] = test_feature[column.owner, *_test(trained, tree, int(node))]
            thresholds[node] = 0.5
            missing_left[node] = False
    return Tree(columns, thresholds, missing_left, tree.lefts, tree.rights, tree.values, tree.gains, tree.covers)
