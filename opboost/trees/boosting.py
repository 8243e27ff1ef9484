"""The boosting loop: round after round, one tree per output."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from opboost.arrays import HistogramAxes, Values
from opboost.errors import ParameterError, is_integer, is_number
from opboost.trees.alternating import Alternates, AlternatingHolder
from opboost.trees.binning import BinnedTable
from opboost.trees.constraints import Constraints
from opboost.trees.grower import HistogramRoom, grow_tree
from opboost.trees.holder import LocalHolder, RowHolder
from opboost.trees.kernels.threads import threads_for
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import GradientGrid, Logistic, Loss
from opboost.trees.splitting import GreedySplitter
from opboost.trees.tree import Tree
from opboost.trees.validation import FollowedHolder, History, Metric, ValidationRows


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostingParameters:
    """Parameters of boosting, under XGBoost's names.

    Parameters
    ----------
    n_estimators : int
        Rounds.
    max_depth : int
        0 for no limit, with `max_leaves`.
    max_leaves : int
        0 grows level by level. Otherwise the leaf with the largest gain is split next, up to so many leaves.
    learning_rate : float
    reg_lambda : float
        L2 regularisation of leaf values.
    gamma : float
        Least gain of a split.
    min_child_weight : float
        Least sum of Hessians in a child.
    max_delta_step : float, optional
        Bound of the leaves' magnitude before the learning rate, 0 for none; by default 0.7 for counts and else 0.
    subsample, colsample_bytree : float
        Shares of the rows per round and of the columns per tree.
    max_bin : int
        Most bins per column.
    max_cat_to_onehot : int
        Up to so many categories, each is tried alone against the others; more are ordered by their gradients.
    scale_pos_weight : float
        Weight of label 1 against label 0.
    base_score : float, optional
        First prediction; by default the best constant.
    early_stopping_rounds : int, optional
        Stop when so many rounds brought the validation rows nothing, and keep the rounds up to the best one.

    Raises
    ------
    ParameterError
        If a number is out of its range.
    """

    n_estimators: int = 100
    max_depth: int = 6
    max_leaves: int = 0
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    max_delta_step: float | None = None
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    max_bin: int = 256
    max_cat_to_onehot: int = 4
    scale_pos_weight: float = 1.0
    base_score: float | None = None
    early_stopping_rounds: int | None = None

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("n_estimators", 0, 10**6),
            ("max_depth", 0, 30),
            ("max_leaves", 0, 2**20),
            ("max_bin", 3, 65535),
            ("max_cat_to_onehot", 0, 65535),
        ):
            _check(name, getattr(self, name), lowest, highest, counts=True)
        if self.max_depth == 0 and self.max_leaves == 0:
            raise ParameterError("max_depth = 0 (no limit) needs max_leaves; got neither")
        if self.max_leaves == 1:
            raise ParameterError("max_leaves must be at least 2, or 0 to grow level by level; got 1")
        _check("learning_rate", self.learning_rate, math.ulp(0.0), math.inf)
        # Rows of label 1 alone must leave gradients that a grid holds.
        _check("scale_pos_weight", self.scale_pos_weight, 1e-100, 1e100)
        for name in ("reg_lambda", "gamma", "min_child_weight"):
            _check(name, getattr(self, name), 0.0, math.inf)
        for name in ("subsample", "colsample_bytree"):
            _check(name, getattr(self, name), math.ulp(0.0), 1.0)
        if self.max_delta_step is not None:
            _check("max_delta_step", self.max_delta_step, 0.0, math.inf)
        if self.base_score is not None:
            _check("base_score", self.base_score, -sys.float_info.max, sys.float_info.max)
        if self.early_stopping_rounds is not None:
            _check("early_stopping_rounds", self.early_stopping_rounds, 1, 10**6, counts=True)

    def check_objective(self, loss: Loss) -> None:
        """Refuse a weight of label 1 where labels are not 0 and 1."""
        if self.scale_pos_weight != 1 and not isinstance(loss, Logistic):
            raise ParameterError(f"scale_pos_weight weighs label 1 of {Logistic.name}; the objective is {loss.name}")

    @property
    def max_splits(self) -> int:
        """The most splits of one tree."""
        of_depth = [(1 << self.max_depth) - 1] if self.max_depth else []
        of_leaves = [self.max_leaves - 1] if self.max_leaves else []
        return min(of_depth + of_leaves)


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

    Returns
    -------
    trees : list of Tree
        In bins, with the learning rate in their values, round by round; after early stopping, up to the best round.
    history : History
    """
    if parameters.early_stopping_rounds is not None and validation is None:
        raise ParameterError("early_stopping_rounds needs validation rows; there are none")
    splitter = GreedySplitter(
        axes,
        grid,
        constraints,
        parameters.reg_lambda,
        parameters.gamma,
        parameters.min_child_weight,
        parameters.max_cat_to_onehot,
    )
    leaves = NewtonLeaves(grid, parameters.reg_lambda, parameters.min_child_weight)
    n_sampled = max(1, round(parameters.colsample_bytree * axes.n_columns)) if axes.n_columns else 0
    limits = constraints.at_root(np.arange(axes.n_columns))
    followed = holder if validation is None else FollowedHolder(holder, validation)
    trees: list[Tree] = []
    history, room = History(), HistogramRoom(axes.n_bins)
    for finished in range(1, parameters.n_estimators + 1):
        for output in range(n_outputs):
            if n_sampled < axes.n_columns:
                limits = constraints.at_root(rng.permutation(axes.n_columns)[:n_sampled])
            followed.start_tree(output)
            tree = grow_tree(
                followed,
                splitter=splitter,
                leaves=leaves,
                learning_rate=parameters.learning_rate,
                max_depth=parameters.max_depth,
                max_leaves=parameters.max_leaves,
                limits=limits,
                room=room,
            )
            followed.finish_tree(tree)
            trees.append(tree)
        scores = validation.scores() if validation else {}
        if validation:
            history.add(scores, validation.metrics[-1])
        is_ended_by_caller = on_round(RoundReport(finished, parameters.n_estimators, scores))
        if is_ended_by_caller or finished - history.best_round >= (parameters.early_stopping_rounds or math.inf):
            break
    if parameters.early_stopping_rounds is not None:
        trees = trees[: history.best_round * n_outputs]
    return trees, history


def boost_table(
    table: BinnedTable,
    labels: Values,
    weights: Values,
    parameters: BoostingParameters,
    *,
    loss: Loss,
    base_scores: Values,
    constraints: Constraints,
    held_out: tuple[BinnedTable, Values, tuple[Metric, ...]] | None = None,
    alternates: Alternates | None = None,
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
    held_out : tuple of BinnedTable, labels and metrics, optional
        Validation rows, and how predictions for them are scored.
    alternates : Alternates, optional
        Versions of some columns, which trees take by turns; the table's own bins of these columns are overwritten.
    seed : int, optional
        For sampling; never for privacy.
    on_round : callable

    Returns
    -------
    trees : list of Tree
    history : History
    """
    grid = loss.grid(labels, weights, base_scores)
    row_rng, column_rng = np.random.default_rng(seed).spawn(2)
    settings: dict[str, Any] = {
        "loss": loss,
        "grid": grid,
        "initial_scores": base_scores,
        "subsample": parameters.subsample,
        "rng": row_rng,
    }
    if alternates is None:
        holder = LocalHolder(table, labels, weights, **settings)
    else:
        holder = AlternatingHolder(table, alternates, labels, weights, **settings)
    followers = None
    if held_out is not None:
        rows, truth, metrics = held_out
        followers = ValidationRows(rows, truth, loss=loss, initial_scores=base_scores, metrics=metrics)
    with threads_for(table.bins.size):
        return boost(
            holder,
            parameters,
            axes=table.axes,
            grid=grid,
            constraints=constraints,
            n_outputs=loss.n_outputs,
            validation=followers,
            rng=column_rng,
            on_round=on_round,
        )


def _check(name: str, value: Any, lowest: float, highest: float, *, counts: bool = False) -> None:
    """Refuse a parameter that is no number within a range, or no integer where it `counts`."""
    is_kind = is_integer(value) if counts else is_number(value)
    if not is_kind or not lowest <= value <= highest or value == math.inf:
        kind = "an integer" if counts else "a number"
        least = "greater than 0" if lowest == math.ulp(0.0) else f"at least {lowest:g}"
        most = "finite" if highest == math.inf else f"at most {highest:g}"
        raise ParameterError(f"{name} must be {kind}, {least} and {most}; got {value!r}")
