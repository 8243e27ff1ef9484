"""Steps 4 to 7 at the active party: merge columns, train, list the tests to resolve, bind, and predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import RankRows, Values
from opboost.denoise.channel import ColumnRelease
from opboost.denoise.sources import RankSource
from opboost.errors import DataError, ParameterError
from opboost.noise_correction import LEAST_ROWS, N_DRAWS, Recipe, calmed, fill
from opboost.noised_table import NoiseChoice, held_out_table
from opboost.trees.binning import BinnedColumn, BinnedTable, bin_categories, bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, OnRound, boost_table, refit_table
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.kernels.threads import at_most_threads
from opboost.trees.losses import Loss
from opboost.trees.tree import Tree
from opboost.trees.validation import History, KnownRows, ValidationPlan
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
    release : ColumnRelease, optional
        What the owner tells of the release: with it, training learns through the noise.
    cuts : ndarray of int64, optional
        The agreed grid: ranks behind which alone trees may cut. The owner answers with the number of a cell.
    """

    owner: str
    index: int
    name: str
    ranks: RankRows
    n_ranks: int
    release: ColumnRelease | None = None
    cuts: NDArray[np.int64] | None = None


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
    choice : NoiseChoice or None
        What of noised columns the trees were grown on; None if there are none whose release is known.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    columns: tuple[Column, ...]
    cuts: tuple[Values, ...]
    history: History
    choice: NoiseChoice | None = None


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
    known: KnownRows | None = None,
    engine: Engine = "native",
    correct_noise: bool = True,
    left_open: frozenset[str] = frozenset(),
    seed: int | None = None,
    on_round: OnRound = lambda _: None,
    leaf_labels: Values | None = None,
) -> TrainedTrees:
    """Train trees on own columns and rank columns side by side.

    Ties between columns go to the earlier one. `seed` serves row and column sampling only. The engine ``xgboost`` has
    XGBoost grow the trees, on the same bins. With `correct_noise`, columns whose release is known are learned through
    their noise where that is likely to serve (`opboost.noise_correction`), for losses that predict labels, and the
    parameters in `left_open` are set as suits noise. Held-out rows that are `known` decide where that serves and, if
    there are no `validation` rows, when to stop. With `leaf_labels`, `labels` decide on everything but the leaves'
    values and the base scores, which are fitted to these.

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
    limits = (constraints or ColumnConstraints()).on(
        [column.name for column in columns],
        are_categorical=[isinstance(column, OwnColumn) and column.is_categorical for column in columns],
        max_delta_step=loss.max_delta_step if parameters.max_delta_step is None else parameters.max_delta_step,
    )
    is_trained = np.ones(len(labels), np.bool_) if validation is None else ~validation.is_held_out
    if validation is not None and (is_trained.all() or not is_trained.any()):
        raise DataError(
            f"{is_trained.sum()} rows are left to train on and {(~is_trained).sum()} to validate; both need one"
        )
    parameters.check_objective(loss)
    plain, weights = weights, parameters.weighted(labels, weights, loss)
    is_fitted = is_trained & (weights > 0)
    is_corrected = correct_noise and loss.predicts_labels and is_fitted.sum() >= LEAST_ROWS
    sources = _noised_sources(columns) if is_corrected else {}
    parameters = calmed(parameters, left_open) if sources else parameters
    binned = (None if c in sources else _bin(column, max_bin=parameters.max_bin) for c, column in enumerate(columns))
    recipe = Recipe(parameters, loss, limits, seed)
    filled = fill(binned, sources, labels, weights, is_fitted, recipe, known, n_columns=len(columns))
    table, alternates, held_out = filled.table, filled.alternates, None
    if validation is not None:
        held_out = held_out_table(filled, ~is_trained, n_draws=N_DRAWS), labels[~is_trained], validation.metrics
        table, labels, weights = table.of_rows(is_trained), labels[is_trained], weights[is_trained]
        alternates = alternates and alternates.of_rows(is_trained)
    elif known is not None and known.metrics:
        held_out = known.binned(table), known.labels, known.metrics
    if parameters.base_score is None:
        base_scores = loss.initial_scores(labels, weights)
    else:
        base_scores = np.full(loss.n_outputs, loss.score_of(parameters.base_score))
    boost = boost_with_xgboost if engine == "xgboost" else boost_table
    shared: dict[str, Any] = {"loss": loss, "constraints": limits, "alternates": alternates, "seed": seed}
    with at_most_threads(parameters.n_jobs):
        trees, history = boost(
            table, labels, weights, parameters, base_scores=base_scores, held_out=held_out, on_round=on_round, **shared
        )
        if leaf_labels is not None:
            if engine == "xgboost" or limits.monotone.any():
                raise ParameterError("leaves cannot be fitted anew with XGBoost or monotone constraints")
            loss.check_labels(leaf_labels)
            labels, weights = leaf_labels[is_trained], parameters.weighted(leaf_labels, plain, loss)[is_trained]
            if parameters.base_score is None:
                base_scores = loss.initial_scores(labels, weights)
            trees = refit_table(trees, table, labels, weights, parameters, base_scores=base_scores, **shared)
    trees = [_with_cuts_from_zero(tree, table) for tree in trees]
    return TrainedTrees(tuple(trees), base_scores, loss, tuple(columns), table.cuts, history, filled.choice)


def _with_cuts_from_zero(tree: Tree, table: BinnedTable) -> Tree:
    """The tree with children exchanged where all present values go right: behind the last bin is a cut, before none."""
    is_before = ~tree.is_leaf & (tree.thresholds < 0)
    if not is_before.any():
        return tree
    behind_last = np.where(is_before, table.axes.sizes[tree.columns] - 2.0, tree.thresholds)
    return replace(tree, thresholds=behind_last).with_children_swapped(is_before)


def _check_lengths(columns: Sequence[Column], n_rows: int) -> None:
    for column in columns:
        length = len(column.values if isinstance(column, OwnColumn) else column.ranks)
        if length != n_rows:
            raise DataError(f"column {column.name!r} has {length} rows; there are {n_rows} labels")


def _bin(column: Column, *, max_bin: int) -> BinnedColumn:
    if isinstance(column, OwnColumn) and column.is_categorical:
        return bin_categories(column.values, max_bin=max_bin)
    if isinstance(column, OwnColumn):
        return bin_values(column.values, max_bin=max_bin)
    return bin_ranks(column.ranks, column.n_ranks, max_bin=max_bin, cuts=column.cuts)


def _noised_sources(columns: Sequence[Column]) -> dict[int, RankSource]:
    """The noised columns whose release is known, by number."""
    return {
        c: source
        for c, column in enumerate(columns)
        if isinstance(column, RankColumn) and column.release is not None
        if not (source := RankSource(column.ranks, column.n_ranks, column.release, column.cuts)).is_exact
    }
