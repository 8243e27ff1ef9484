"""The boosting loop: round after round, one tree per output."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opboost.arrays import HistogramAxes, Values
from opboost.errors import ParameterError
from opboost.trees.alternating import Alternates, AlternatingHolder
from opboost.trees.binning import BinnedTable
from opboost.trees.constraints import Constraints
from opboost.trees.grower import HistogramRoom, grow_tree
from opboost.trees.holder import LocalHolder, RowHolder, starting_scores
from opboost.trees.kernels.threads import threads_for
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import GradientGrid, Loss
from opboost.trees.parameters import BoostingParameters as BoostingParameters
from opboost.trees.refit import refit_leaves
from opboost.trees.sampling import ColumnSampler, TreeDropout, draw_columns
from opboost.trees.splitting import GreedySplitter
from opboost.trees.tree import Tree
from opboost.trees.validation import HeldOutRows, History, ValidationRows


@dataclass(frozen=True, slots=True)
class RoundReport:
    """Progress of training after a round.

    Attributes
    ----------
    finished, total : int
        Rounds.
    scores : mapping of str to float
        Of the validation rows, by metric; empty without them.
    """

    finished: int
    total: int
    scores: Mapping[str, float]


# Called after every round; training ends if it returns True.
OnRound = Callable[[RoundReport], bool | None]


def boost(
    holder: RowHolder,
    parameters: BoostingParameters,
    *,
    axes: HistogramAxes,
    grid: GradientGrid,
    constraints: Constraints,
    n_outputs: int,
    validation: ValidationRows | None = None,
    rng: np.random.Generator,
    on_round: OnRound,
    refine: Callable[[Tree], Tree] = lambda tree: tree,
    earlier: Sequence[Tree] = (),
    dropout: TreeDropout | None = None,
) -> tuple[list[Tree], History]:
    """Train trees on a holder's rows.

    Parameters
    ----------
    holder : RowHolder
    parameters : BoostingParameters
    axes : HistogramAxes
    grid : GradientGrid
    constraints : Constraints
    n_outputs : int
        Trees per round.
    validation : ValidationRows, optional
    rng : numpy Generator
        For `colsample_bytree` only; never for privacy.
    on_round : callable
        Takes a RoundReport; training ends if it returns True.
    refine : callable
        Changes the leaf values of a tree before they are added to the scores.
    earlier : sequence of Tree
        Trees that the scores contain already, which the new ones follow.
    dropout : TreeDropout, optional

    Returns
    -------
    trees : list of Tree
        In bins, with the learning rate in their values, round by round; after early stopping, up to the best round.
    history : History
    """
    if parameters.early_stopping_rounds is not None and validation is None:
        raise ParameterError("early_stopping_rounds needs validation rows; there are none")
    grow = _grower(holder, parameters, axes, grid, constraints, rng)
    trees = best = list(earlier)
    history = History()
    for finished in range(1, parameters.n_estimators + 1):
        factor = dropout.drop(trees) if dropout else 1.0
        for output in range(n_outputs):
            holder.start_tree(output)
            tree = refine(grow()).scaled(factor)
            holder.finish_tree(tree)
            if validation:
                validation.add_tree(tree, output)
            trees.append(tree)
        if dropout:
            dropout.bring_back(trees, factor)
        scores = validation.scores() if validation else {}
        if validation:
            history.add(scores, validation.metrics[-1])
            best = trees.copy() if history.best_round == finished else best
        is_ended_by_caller = on_round(RoundReport(finished, parameters.n_estimators, scores))
        if is_ended_by_caller or finished - history.best_round >= (parameters.early_stopping_rounds or math.inf):
            break
    return trees if parameters.early_stopping_rounds is None else best, history


def _grower(
    rows: RowHolder,
    parameters: BoostingParameters,
    axes: HistogramAxes,
    grid: GradientGrid,
    constraints: Constraints,
    rng: np.random.Generator,
) -> Callable[[], Tree]:
    """A function that grows the tree that was started on the rows, on columns drawn for it."""
    splitter = GreedySplitter(
        axes,
        grid,
        constraints,
        parameters.reg_lambda,
        parameters.gamma,
        parameters.min_child_weight,
        parameters.max_cat_to_onehot,
        parameters.reg_alpha,
    )
    leaves, room = NewtonLeaves.of(parameters, grid), HistogramRoom(axes.n_bins)
    every_column = np.arange(axes.n_columns)
    root_limits = constraints.at_root(every_column)

    def grow() -> Tree:
        columns = draw_columns(every_column, parameters.colsample_bytree, rng)
        return grow_tree(
            rows,
            splitter=splitter,
            leaves=leaves,
            learning_rate=parameters.learning_rate,
            max_depth=parameters.max_depth,
            max_leaves=parameters.max_leaves,
            limits=root_limits if columns is every_column else constraints.at_root(columns),
            room=room,
            columns=ColumnSampler(columns, parameters.colsample_bylevel, parameters.colsample_bynode, rng),
        )

    return grow


def _holder(
    table: BinnedTable,
    labels: Values,
    weights: Values,
    parameters: BoostingParameters,
    loss: Loss,
    grid: GradientGrid,
    initial_scores: Values,
    alternates: Alternates | None,
    *,
    n_rounds: int = 0,
    rng: np.random.Generator,
) -> LocalHolder:
    settings: dict[str, Any] = {
        "loss": loss,
        "grid": grid,
        "initial_scores": initial_scores,
        "subsample": parameters.subsample,
        "rng": rng,
    }
    if alternates is None:
        return LocalHolder(table, labels, weights, **settings)
    return AlternatingHolder(table, alternates, labels, weights, n_rounds=n_rounds, **settings)


def refit_table(
    trees: Sequence[Tree],
    table: BinnedTable,
    labels: Values,
    weights: Values,
    parameters: BoostingParameters,
    *,
    loss: Loss,
    base_scores: Values,
    constraints: Constraints,
    alternates: Alternates | None = None,
    margins: Values | float = 0.0,
    seed: int | None = None,
) -> list[Tree]:
    """Trees that `boost_table` grew on other labels of the same rows, with leaves that are fitted to these."""
    initial_scores = starting_scores(table, base_scores, margins)
    grid = loss.grid(labels, weights, initial_scores)
    row_rng, _ = np.random.default_rng(seed).spawn(2)
    holder = _holder(table, labels, weights, parameters, loss, grid, initial_scores, alternates, rng=row_rng)
    limits = constraints.at_root(np.arange(table.axes.n_columns))
    with threads_for(table.bins.size):
        return refit_leaves(
            trees,
            holder,
            leaves=NewtonLeaves.of(parameters, grid),
            axes=table.axes,
            bounds=(limits.lower, limits.upper),
            learning_rate=parameters.learning_rate,
            n_outputs=loss.n_outputs,
        )


def boost_table(
    table: BinnedTable,
    labels: Values,
    weights: Values,
    parameters: BoostingParameters,
    *,
    loss: Loss,
    base_scores: Values,
    constraints: Constraints,
    held_out: HeldOutRows | None = None,
    alternates: Alternates | None = None,
    margins: Values | float = 0.0,
    earlier: Sequence[Tree] = (),
    seed: int | None = None,
    on_round: OnRound = lambda _: None,
) -> tuple[list[Tree], History]:
    """Train trees on a binned table in this process.

    Parameters
    ----------
    table : BinnedTable
    labels, weights : ndarray of float64, shape (n_rows,)
    parameters : BoostingParameters
    loss : Loss
    base_scores : ndarray of float64, shape (n_outputs,)
    constraints : Constraints
    held_out : HeldOutRows, optional
        Validation rows, and how predictions for them are scored.
    alternates : Alternates, optional
        Versions of some columns, which trees take by turns; the table's own bins of these columns are overwritten.
    margins : ndarray of float64, shape (n_outputs, n_rows), or 0.0
        What is added to the base scores of each row.
    earlier : sequence of Tree
        Trees in bins that the new ones follow, one per output by turns.
    seed : int, optional
        For sampling; never for privacy.
    on_round : callable

    Returns
    -------
    trees : list of Tree
    history : History
    """
    initial_scores = starting_scores(table, base_scores, margins)
    grid = loss.grid(labels, weights, initial_scores)
    row_rng, column_rng, tree_rng = np.random.default_rng(seed).spawn(3)
    n_rounds = len(earlier) // loss.n_outputs
    holder = _holder(
        table, labels, weights, parameters, loss, grid, initial_scores, alternates, n_rounds=n_rounds, rng=row_rng
    )
    validation, scored = None, list[LocalHolder | ValidationRows]([holder])
    if held_out is not None:
        start = starting_scores(held_out.table, base_scores, held_out.margins)
        validation = ValidationRows(
            held_out.table, held_out.labels, loss, start, metrics=held_out.metrics, share=held_out.share
        )
        scored.append(validation)
    for i, tree in enumerate(earlier):
        for rows in scored:
            rows.add_tree(tree, i % loss.n_outputs)
    dropout = TreeDropout(parameters=parameters, n_outputs=loss.n_outputs, rows=scored, rng=tree_rng)
    with threads_for(table.bins.size) as look:

        def after_round(report: RoundReport) -> bool | None:
            look()
            return on_round(report)

        return boost(
            holder,
            parameters,
            axes=table.axes,
            grid=grid,
            constraints=constraints,
            n_outputs=loss.n_outputs,
            validation=validation,
            rng=column_rng,
            on_round=after_round,
            refine=lambda tree: holder.with_quantiles(tree, parameters.learning_rate),
            earlier=earlier,
            dropout=dropout if parameters.booster == "dart" else None,
        )
