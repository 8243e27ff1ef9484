"""Hyperparameters of boosting, checked."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import Any

from opboost.errors import ParameterError, is_integer, is_number
from opboost.trees.losses import Logistic, Loss


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
    reg_alpha : float
        L1 regularisation of leaf values.
    gamma : float
        Least gain of a split.
    min_child_weight : float
        Least sum of Hessians in a child.
    max_delta_step : float, optional
        Bound of the leaves' magnitude before the learning rate, 0 for none; by default 0.7 for counts and else 0.
    subsample, colsample_bytree : float
        Shares of the rows per round and of the columns per tree.
    colsample_bylevel, colsample_bynode : float
        Share of these columns per level of a tree, and of those per node.
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
    reg_alpha: float = 0.0
    gamma: float = 0.0
    min_child_weight: float = 1.0
    max_delta_step: float | None = None
    subsample: float = 1.0
    colsample_bytree: float = 1.0
    colsample_bylevel: float = 1.0
    colsample_bynode: float = 1.0
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
        for name in ("reg_lambda", "reg_alpha", "gamma", "min_child_weight"):
            _check(name, getattr(self, name), 0.0, math.inf)
        for name in ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode"):
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


def _check(name: str, value: Any, lowest: float, highest: float, *, counts: bool = False) -> None:
    """Refuse a parameter that is no number within a range, or no integer where it `counts`."""
    is_kind = is_integer(value) if counts else is_number(value)
    if not is_kind or not lowest <= value <= highest or value == math.inf:
        kind = "an integer" if counts else "a number"
        least = "greater than 0" if lowest == math.ulp(0.0) else f"at least {lowest:g}"
        most = "finite" if highest == math.inf else f"at most {highest:g}"
        raise ParameterError(f"{name} must be {kind}, {least} and {most}; got {value!r}")
