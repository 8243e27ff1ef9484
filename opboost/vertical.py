"""Steps 4 and 5 at the active party: merge columns, bin them, and train trees."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from opboost.arrays import Mask, Values
from opboost.columns import Column, OwnColumn, noised_sources
from opboost.errors import DataError, ParameterError
from opboost.fitting.noise_correction import LEAST_ROWS, fill
from opboost.fitting.noised_table import NoiseChoice, NoisedRows
from opboost.fitting.outputs import Engine, OutputTrainer, TrainingTargets, with_cuts_from_zero
from opboost.fitting.recipe import OWN_DEPTHS, Recipe, with_noise_defaults, with_own_defaults
from opboost.trees.binning import BinnedColumn, bin_categories, bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters, OnRound
from opboost.trees.constraints import ColumnConstraints
from opboost.trees.kernels.threads import at_most_threads
from opboost.trees.losses import Loss
from opboost.trees.tree import Tree
from opboost.trees.validation import History, KnownRows, ValidationPlan
from opboost.trees.xgboost_engine import check_settings_of_xgboost
from opboost.trees.xgboost_numbers import MAX_SINGLE_LABEL, check_single_precision

# Gradients that are multiplied by less have no precision left, and by more no room for what multiplies them besides.
LEAST_WEIGHT, MAX_WEIGHT = 1e-100, 1e100


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
        Versions of the noised columns that trees were grown on; None if no noised column has a known release.
    margins : tuple of str
        Columns whose values are added to the scores of each output; no tree splits them.
    n_own_trees : int
        Trees on own columns alone, which are added to the others and are no rounds of their own.
    """

    trees: tuple[Tree, ...]
    base_scores: Values
    loss: Loss
    columns: tuple[Column, ...]
    cuts: tuple[Values, ...]
    history: History
    choice: NoiseChoice | None = None
    margins: tuple[str, ...] = ()
    n_own_trees: int = 0


class EarlierTrees(Protocol):
    """Trees of a finished model that training continues: `opboost.split_tests.EarlierModel`."""

    @property
    def base_scores(self) -> Values: ...
    @property
    def choice(self) -> NoiseChoice | None: ...
    @property
    def n_own_trees(self) -> int: ...
    def cuts(self, column: Column) -> Values:
        """Values behind which the trees cut an own column, or the categories that they tell from others."""
        ...

    def in_bins(self, columns: Sequence[Column], cuts: Sequence[Values]) -> list[Tree]:
        """The trees, for columns that were cut behind these values."""
        ...


def check_own_rows(
    columns: Sequence[OwnColumn],
    labels: Values,
    *,
    weights: Values,
    loss: Loss,
    parameters: BoostingParameters,
    engine: Engine,
    margins: Sequence[Values] = (),
) -> None:
    """Refuse rows if training could fail on some selection of them.

    Which of a file's rows all parties know must not decide whether a run ends: the other side would learn from it.

    Raises
    ------
    DataError
    """
    loss.check_labels(labels)
    loss.check_margins(margins)
    weights = parameters.weighted(labels, weights, loss)
    if engine == "xgboost":
        check_single_precision(labels, "labels", most=MAX_SINGLE_LABEL)
        loss.check_labels(labels.astype(np.float32).astype(np.float64))
        check_single_precision(np.append(weights, 1 / weights), "weights and their reciprocals", most=MAX_SINGLE_LABEL)
    for column in columns:
        if column.is_categorical:
            bin_categories(column.values, max_bin=parameters.max_bin, name=column.name, texts=column.categories)


def check_settings(parameters: BoostingParameters, loss: Loss, engine: Engine) -> None:
    """Refuse settings that do not go with the objective or the engine, and a device that this machine lacks."""
    parameters.check_objective(loss)
    if parameters.device == "cuda" and engine == "native":
        raise ParameterError(
            "device: cuda goes with engine: xgboost; the native engine keeps its exact sums on the processor. Nothing "
            "was trained"
        )
    if engine == "xgboost":
        check_settings_of_xgboost(parameters, loss.singles[0])


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
    margins: Sequence[OwnColumn] = (),
    earlier: EarlierTrees | None = None,
    watch: Callable[[], None] = lambda: None,
) -> TrainedTrees:
    """Train trees on own columns and rank columns side by side.

    Ties between columns go to the earlier one. `seed` serves row and column sampling only. The engine ``xgboost`` has
    XGBoost grow the trees, on the same bins. With `correct_noise`, columns whose release is known are learned through
    their noise where that is likely to serve (`opboost.fitting`), for losses that predict labels, and the
    parameters in `left_open` are set as suits noise. Held-out rows that are `known` decide where that serves and, if
    there are no `validation` rows, when to stop. With `leaf_labels`, `labels` decide on everything but the leaves'
    values and the base scores, which are fitted to these. Scores start at `margins`, one column per output, where there
    are any, and at those of `earlier` trees, which the new ones follow. Labels of several outputs have the shape
    ``(n_rows, n_outputs)``; each has trees of its own, in common bins. `watch` is called after trees that no round has.

    Raises
    ------
    DataError
        If labels do not fit the loss or there is no column.
    """
    is_trained = np.ones(len(labels), np.bool_) if validation is None else ~validation.is_held_out
    # Rows that are held out have no part in the balance of classes either.
    weights = weights if is_trained.all() else np.where(is_trained, weights, 0.0)
    _check_rows(columns, labels, weights, margins, is_trained, loss=loss, is_validated=validation is not None)
    limits = (constraints or ColumnConstraints()).on(
        [column.name for column in columns],
        are_categorical=[isinstance(column, OwnColumn) and column.is_categorical for column in columns],
        max_delta_step=parameters.delta_step_of(loss),
    )
    check_settings(parameters, loss, engine)
    is_fitted = weights > 0
    choice = None if earlier is None else earlier.choice
    is_corrected = correct_noise and loss.predicts_labels and not margins and is_fitted.sum() >= LEAST_ROWS
    # Rounds that continue a model trained without noise correction have none either.
    sources = noised_sources(columns) if is_corrected and (earlier is None or choice is not None) else {}
    balanced_weights = parameters.weighted(labels, weights, loss)
    own_parameters = with_own_defaults(parameters, left_open) if sources else None
    parameters = with_noise_defaults(parameters, left_open, loss, len(labels)) if sources else parameters
    binned = (
        None if c in sources else binned_column(column, earlier, max_bin=parameters.max_bin)
        for c, column in enumerate(columns)
    )
    own_depths = OWN_DEPTHS if sources and "max_depth" in left_open else ()
    recipe = Recipe(parameters, loss, limits, seed, watch, own_parameters, own_depths)
    base_scores = None if earlier is None else earlier.base_scores
    start_margins = np.array([column.values for column in margins])
    with at_most_threads(parameters.n_jobs):
        noised = NoisedRows.of(binned, sources, labels, balanced_weights, n_columns=len(columns))
        filled = fill(noised, is_fitted, recipe, known, choice=choice, may_continue_own=leaf_labels is None)
        if filled.margins is not None:
            base_scores = recipe.base_scores(labels[is_fitted], balanced_weights[is_fitted])
            start_margins = filled.margins
        trainer = OutputTrainer(
            filled=filled,
            weights=weights,
            is_trained=is_trained,
            parameters=filled.grown_by(recipe).parameters,
            limits=limits,
            validation=validation,
            known=known,
            engine=engine,
            seed=seed,
            on_round=on_round,
        )
        targets = TrainingTargets(
            loss=loss,
            labels=labels,
            margins=start_margins,
            base_scores=base_scores,
            earlier=[] if earlier is None else earlier.in_bins(columns, filled.table.cuts),
            leaf_labels=leaf_labels,
        )
        trees, base_scores, history = trainer.train(targets)
    # Leaves that were fitted to other labels have their own height.
    trees = filled.shared(trees) if leaf_labels is None else trees
    trees = [with_cuts_from_zero(tree, filled.table) for tree in trees]
    return TrainedTrees(
        trees=tuple(trees),
        base_scores=base_scores,
        loss=loss,
        columns=(*columns, *margins),
        cuts=filled.table.cuts,
        history=history,
        choice=filled.choice,
        margins=tuple(column.name for column in margins),
        n_own_trees=len(filled.own_trees) + (0 if earlier is None else earlier.n_own_trees),
    )


def _check_rows(
    columns: Sequence[Column],
    labels: Values,
    weights: Values,
    margins: Sequence[OwnColumn],
    is_trained: Mask,
    *,
    loss: Loss,
    is_validated: bool,
) -> None:
    """Refuse rows that no tree could be trained on."""
    if not columns or len(labels) == 0:
        raise DataError(f"training needs at least one column and one row; got {len(columns)} and {len(labels)}")
    if is_validated and (is_trained.all() or not is_trained.any()):
        raise DataError(
            f"{is_trained.sum()} rows are left to train on and {(~is_trained).sum()} to validate; both need one"
        )
    if not ((weights == 0) | ((weights >= LEAST_WEIGHT) & (weights <= MAX_WEIGHT))).all() or not weights.any():
        raise DataError(f"weights must be 0 or from {LEAST_WEIGHT:g} to {MAX_WEIGHT:g}, and not 0 of all trained rows")
    for column in (*columns, *margins):
        length = len(column.values if isinstance(column, OwnColumn) else column.ranks)
        if length != len(labels):
            raise DataError(f"column {column.name!r} has {length} rows; there are {len(labels)} labels")
    loss.check_labels(labels)
    loss.check_margins([column.values for column in margins])


def binned_column(column: Column, earlier: EarlierTrees | None, *, max_bin: int) -> BinnedColumn:
    """A column in bins."""
    if isinstance(column, OwnColumn):
        also = None if earlier is None else earlier.cuts(column)
        if not column.is_categorical:
            return bin_values(column.values, max_bin=max_bin, also=also)
        texts = column.categories
        return bin_categories(column.values, max_bin=max_bin, also=also, name=column.name, texts=texts)
    return bin_ranks(column.ranks, column.n_ranks, max_bin=max_bin, cuts=column.cuts)
