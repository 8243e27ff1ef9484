"""Steps 4 to 7 at the active party: merge columns, train, list the tests to resolve, bind, and predict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, RankRows, Ranks, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_categories, bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, OnRound, boost_table
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Loss
from opboost.trees.tree import Ensemble, Feature, Tree
from opboost.trees.validation import History, Metric
from opboost.trees.xgboost_engine import boost_with_xgboost

# Sums of squares of gradients must not overflow.
MAX_WEIGHT = 1e100

# XGBoost keeps numbers in single precision, and squares of residuals too.
MAX_SINGLE = float(np.finfo(np.float32).max)
MAX_SINGLE_LABEL = 1e18

# "Every present value goes left": a finite threshold, so that model files need no infinity.
PRESENT = float(np.finfo(np.float64).max)


@dataclass(frozen=True, slots=True)
class OwnColumn:
    """A column that the active party holds.

    Attributes
    ----------
    name : str
    values : ndarray of float64, shape (n_rows,)
        NaN for missing. Categories are numbered 0, 1, 2, ...
    is_categorical : bool
        Whether splits divide a set of categories rather than an ordered range.
    """

    name: str
    values: Values
    is_categorical: bool = False


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
    ranks : RankRows
        Unsigned integers ``0 .. n_ranks - 1``; missing rows hold ``n_ranks``. An array, or what maps a file.
    n_ranks : int
    """

    owner: str
    index: int
    name: str
    ranks: RankRows
    n_ranks: int


Column = OwnColumn | RankColumn

Engine = Literal["native", "xgboost"]


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
        Per column: the value, or the rank, behind which each cut lies; for categories, the category of each bin.
    history : History
        Scores of the validation rows.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    columns: tuple[Column, ...]
    cuts: tuple[Values, ...]
    history: History


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """Which rows are held out of training, and how predictions for them are scored.

    Attributes
    ----------
    is_held_out : ndarray of bool, shape (n_rows,)
    metrics : tuple of Metric
        The last one decides when to stop early.
    """

    is_held_out: Mask
    metrics: tuple[Metric, ...]

    @classmethod
    def of_share(
        cls, share: float, n_rows: int, metrics: tuple[Metric, ...], *, rng: np.random.Generator
    ) -> ValidationPlan:
        """Hold out a random share of the rows.

        Raises
        ------
        ParameterError
            If none would be held out, or all.
        """
        n_held_out = round(share * n_rows)
        if not 0 < n_held_out < n_rows:
            raise ParameterError(
                f"of {n_rows} records a share of {share:g} leaves {n_rows - n_held_out} to train on and {n_held_out} "
                "to validate; both need one. Nothing was released"
            )
        is_held_out = np.zeros(n_rows, dtype=np.bool_)
        is_held_out[rng.permutation(n_rows)[:n_held_out]] = True
        return cls(is_held_out, metrics)


@dataclass(frozen=True, slots=True)
class ListedTests:
    """Split tests to be resolved by one owner: its column, the rank, and the answer for missing; ``(n_tests,)``."""

    columns: NDArray[np.uint32]
    ranks: Ranks
    missing_left: Mask


def check_own_rows(columns: Sequence[OwnColumn], labels: Values, *, loss: Loss, max_bin: int, engine: Engine) -> None:
    """Refuse rows if training could fail on some selection of them.

    Which of a file's rows all parties know must not decide whether a run ends: the other side would learn from it.

    Raises
    ------
    DataError
    """
    loss.check_labels(labels)
    if engine == "xgboost":
        check_single_precision(labels, "labels", most=MAX_SINGLE_LABEL)
    for column in columns:
        if column.is_categorical:
            bin_categories(column.values, max_bin=max_bin)


def check_single_precision(values: Values, what: str, *, most: float = MAX_SINGLE) -> None:
    """Refuse numbers that are too large for single precision, in which XGBoost computes.

    Raises
    ------
    DataError
    """
    if (np.abs(values) > most).any():
        raise DataError(f"XGBoost needs {what} of magnitude {most:g} at most; found others")


def train(
    columns: Sequence[Column],
    labels: Values,
    weights: Values,
    *,
    loss: Loss,
    parameters: BoostingParameters,
    constraints: ColumnConstraints | None = None,
    validation: ValidationPlan | None = None,
    engine: Engine = "native",
    seed: int | None = None,
    on_round: OnRound = lambda _: None,
) -> TrainedTrees:
    """Grow trees on own columns and rank columns side by side.

    Ties between columns go to the earlier one. `seed` serves row and column sampling only. The engine ``xgboost`` has
    XGBoost grow the trees, on the same bins.

    Raises
    ------
    DataError
        If labels do not fit the loss or there is no column.
    """
    if not columns or len(labels) == 0:
        raise DataError(f"training needs at least one column and one row; got {len(columns)} and {len(labels)}")
    if not ((weights >= 0) & (weights <= MAX_WEIGHT)).all() or not weights.any():
        raise DataError(f"weights must be numbers from 0 to {MAX_WEIGHT:g}, not all zero")
    _check_lengths(columns, len(labels))
    loss.check_labels(labels)
    binned = (_bin(column, max_bin=parameters.max_bin) for column in columns)
    table, held_out = BinnedTable.of(binned, n_columns=len(columns)), None
    if validation is not None:
        rows = validation.is_held_out
        held_out = table.of_rows(rows), labels[rows], validation.metrics
        table, labels, weights = table.of_rows(~rows), labels[~rows], weights[~rows]
        if not len(labels) or not rows.any():
            raise DataError(f"{len(labels)} rows are left to train on and {rows.sum()} to validate; both need one")
    weights = _with_positive_weight(labels, weights, loss, parameters.scale_pos_weight)
    if parameters.base_score is None:
        base_scores = loss.initial_scores(labels, weights)
    else:
        base_scores = np.full(loss.n_outputs, loss.score_of(parameters.base_score))
    step = loss.max_delta_step if parameters.max_delta_step is None else parameters.max_delta_step
    limits = (constraints or ColumnConstraints()).on(
        [column.name for column in columns],
        are_categorical=[isinstance(column, OwnColumn) and column.is_categorical for column in columns],
        max_delta_step=step,
    )
    trees, history = (boost_with_xgboost if engine == "xgboost" else boost_table)(
        table, labels, weights, parameters, loss=loss, base_scores=base_scores, constraints=limits, held_out=held_out,
        seed=seed, on_round=on_round,
    )  # fmt: skip
    trees = [_with_cuts_from_zero(tree, table) for tree in trees]
    return TrainedTrees(tuple(trees), base_scores, loss, tuple(columns), table.cuts, history)


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
    for owner, inputs in ensemble.inputs.items():
        if owner is None:
            for i in inputs.tolist():
                name = ensemble.features[i].name
                if name not in own:
                    raise DataError(f"the model needs column {name!r}, which is absent. No score was computed")
                matrix[:, i] = own[name]
        elif owner not in answers or answers[owner].shape != (n_rows, len(inputs)):
            raise DataError(
                f"the model needs the answers of {owner!r} to {len(inputs)} tests on {n_rows} records. "
                "No score was computed"
            )
        else:
            is_block = inputs[-1] - inputs[0] + 1 == len(inputs)
            matrix[:, slice(inputs[0], inputs[-1] + 1) if is_block else inputs] = ~answers[owner]
    return matrix


def _with_cuts_from_zero(tree: Tree, table: BinnedTable) -> Tree:
    """The tree with children exchanged where all present values go right: behind the last bin is a cut, before none."""
    is_before = ~tree.is_leaf & (tree.thresholds < 0)
    return replace(
        tree,
        thresholds=np.where(is_before, table.axes.sizes[tree.columns] - 2.0, tree.thresholds),
        missing_left=tree.missing_left ^ is_before,
        lefts=np.where(is_before, tree.rights, tree.lefts),
        rights=np.where(is_before, tree.lefts, tree.rights),
    )


def _check_lengths(columns: Sequence[Column], n_rows: int) -> None:
    for column in columns:
        length = len(column.values if isinstance(column, OwnColumn) else column.ranks)
        if length != n_rows:
            raise DataError(f"column {column.name!r} has {length} rows; there are {n_rows} labels")


def _with_positive_weight(labels: Values, weights: Values, loss: Loss, factor: float) -> Values:
    """The weights with those of label 1 multiplied."""
    if factor == 1:
        return weights
    if not isinstance(loss, Logistic):
        raise ParameterError(f"scale_pos_weight weighs label 1 of {Logistic.name}; the objective is {loss.name}")
    return np.where(labels == 1, weights * factor, weights)


def _bin(column: Column, *, max_bin: int) -> BinnedColumn:
    if isinstance(column, OwnColumn) and column.is_categorical:
        return bin_categories(column.values, max_bin=max_bin)
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
    categories: dict[int, tuple[int, ...]] = {}
    for node in np.flatnonzero(~tree.is_leaf).tolist():
        c, cut = int(tree.columns[node]), int(tree.thresholds[node])
        column, cuts = trained.columns[c], trained.cuts[c]
        if isinstance(column, RankColumn):
            columns[node] = test_feature[column.owner, *_test(trained, tree, node)]
            thresholds[node] = 0.5
            missing_left[node] = False
        elif column.is_categorical:
            columns[node], thresholds[node] = own_feature[c], 0.0
            categories[node] = tuple(int(cuts[b]) for b in tree.left_categories[node])
        else:
            columns[node] = own_feature[c]
            thresholds[node] = cuts[cut] if cut < len(cuts) else PRESENT
    return replace(tree, columns=columns, thresholds=thresholds, missing_left=missing_left, left_categories=categories)
