"""Steps 4 to 7 at the active party: merge columns, train, list the tests to resolve, bind, and predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from opboost.arrays import Mask, RankRows, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_categories, bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, OnRound, boost_table
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.losses import Logistic, Loss
from opboost.trees.tree import Tree
from opboost.trees.validation import History, Metric
from opboost.trees.xgboost_engine import boost_with_xgboost

# Sums of squares of gradients must not overflow.
MAX_WEIGHT = 1e100

# XGBoost keeps numbers in single precision, and squares of residuals too.
MAX_SINGLE = float(np.finfo(np.float32).max)
MAX_SINGLE_LABEL = 1e18


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


TrainingColumn = OwnColumn | RankColumn

Engine = Literal["native", "xgboost"]


@dataclass(frozen=True, slots=True)
class TrainedTrees:
    """Trees in bins, before the passive parties' tests are bound.

    Attributes
    ----------
    trees : tuple of Tree
    base_scores : ndarray of float64
    loss : Loss
    columns : tuple of TrainingColumn
    cuts : tuple of ndarray
        Per column: the value, or the rank, behind which each cut lies; for categories, the category of each bin.
    history : History
        Scores of the validation rows.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    columns: tuple[TrainingColumn, ...]
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
    columns: Sequence[TrainingColumn],
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
        table,
        labels,
        weights,
        parameters,
        loss=loss,
        base_scores=base_scores,
        constraints=limits,
        held_out=held_out,
        seed=seed,
        on_round=on_round,
    )
    trees = [_with_cuts_from_zero(tree, table) for tree in trees]
    return TrainedTrees(tuple(trees), base_scores, loss, tuple(columns), table.cuts, history)


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


def _check_lengths(columns: Sequence[TrainingColumn], n_rows: int) -> None:
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


def _bin(column: TrainingColumn, *, max_bin: int) -> BinnedColumn:
    if isinstance(column, OwnColumn) and column.is_categorical:
        return bin_categories(column.values, max_bin=max_bin)
    if isinstance(column, OwnColumn):
        return bin_values(column.values, max_bin=max_bin)
    return bin_ranks(column.ranks, column.n_ranks, max_bin=max_bin)
