"""The boosting loop: round after round, one tree per output."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from opboost.arrays import HistogramAxes
from opboost.errors import ParameterError
from opboost.trees.grower import grow_tree
from opboost.trees.holder import RowHolder
from opboost.trees.leaves import NewtonLeaves
from opboost.trees.losses import Grid
from opboost.trees.splitting import GreedySplitter
from opboost.trees.tree import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class BoostingParameters:
    """What XGBoost's users set, under XGBoost's names.

    Parameters
    ----------
    n_estimators : int
        Rounds.
    max_depth : int
    learning_rate : float
    reg_lambda : float
        L2 regularisation of leaf values.
    gamma : float
        Least gain of a split.
    min_child_weight : float
        Least sum of Hessians in a child.
    subsample : float
        Share of the rows per round.
    colsample_bytree : float
        Share of the columns per tree.
    max_bin : int
        Most bins per column.
    base_score : float, optional
        First prediction; by default the best constant.

    Raises
    ------
    ParameterError
        If a number is out of its range.
    """

    n_estimators: int = 100
    max_depth: int = 6
    learning_rate: float = 0.3
    reg_lambda: float = 1.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    max_bin: int = 256
    base_score: float | None = None

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("n_estimators", 0, 10**6),
            ("max_depth", 1, 30),
            ("max_bin", 3, 65535),
        ):
            _check(name, getattr(self, name), lowest, highest, is_integer=True)
        _check("learning_rate", self.learning_rate, math.ulp(0.0), math.inf)
        for name in ("reg_lambda", "gamma", "min_child_weight"):
            _check(name, getattr(self, name), 0.0, math.inf)
        for name in ("subsample", "colsample_bytree"):
            _check(name, getattr(self, name), math.ulp(0.0), 1.0)
        if self.base_score is not None:
            _check("base_score", self.base_score, -sys.float_info.max, sys.float_info.max)


def boost(
    holder: RowHolder,
    parameters: BoostingParameters,
    *,
    axes: HistogramAxes,
    grid: Grid,
    n_outputs: int,
    rng: np.random.Generator,
    on_round: Callable[[int], None],
) -> list[Tree]:
    """Train trees on a holder's rows.

    Parameters
    ----------
    holder : RowHolder
    parameters : BoostingParameters
    axes : HistogramAxes
    grid : Grid
    n_outputs : int
        Trees per round.
    rng : numpy Generator
        For `colsample_bytree` only; never for privacy.
    on_round : callable
        Called with the number of finished rounds.

    Returns
    -------
    list of Tree
        In bins, with the learning rate in their values, round by round.
    """
    splitter = GreedySplitter(axes, grid, parameters.reg_lambda, parameters.gamma, parameters.min_child_weight)
    leaves = NewtonLeaves(grid, parameters.reg_lambda, parameters.min_child_weight)
    n_sampled = max(1, round(parameters.colsample_bytree * axes.n_columns)) if axes.n_columns else 0
    trees: list[Tree] = []
    for finished in range(1, parameters.n_estimators + 1):
        for output in range(n_outputs):
            columns = np.sort(rng.permutation(axes.n_columns)[:n_sampled])
            holder.start_tree(output)
            tree = grow_tree(holder, splitter=splitter, leaves=leaves, max_depth=parameters.max_depth, columns=columns)
            holder.finish_tree(tree, parameters.learning_rate)
            trees.append(tree.scaled(parameters.learning_rate))
        on_round(finished)
    return trees


def _check(name: str, value: Any, lowest: float, highest: float, *, is_integer: bool = False) -> None:
    kinds = (int, np.integer) if is_integer else (int, float, np.integer, np.floating)
    is_number = isinstance(value, kinds) and not isinstance(value, bool)
    if not is_number or not lowest <= value <= highest or value == math.inf:
        kind = "an integer" if is_integer else "a number"
        least = "greater than 0" if lowest == math.ulp(0.0) else f"at least {lowest:g}"
        most = "finite" if highest == math.inf else f"at most {highest:g}"
        raise ParameterError(f"{name} must be {kind}, {least} and {most}; got {value!r}")
