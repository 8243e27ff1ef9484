"""Hyperparameters of boosting, checked."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from opboost.arrays import Values
from opboost.errors import DataError, ParameterError, check_choice, is_integer, is_number
from opboost.trees.losses import Logistic, Loss, Ordinal, Softmax

# Rows of one class alone must leave gradients that a grid holds.
LEAST_CLASS_WEIGHT, MOST_CLASS_WEIGHT = 1e-100, 1e100

# Sums of squares of gradients must not overflow, and those of Hessians not vanish.
LEAST_WEIGHTED, MOST_WEIGHTED = 1e-140, 1e140


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
    class_weight : mapping of int to float, or "balanced", optional
        Weights of classes by number, 1 for those that are not named; balanced classes have the same weight in all.
    base_score : float, optional
        First prediction; by default the best constant.
    early_stopping_rounds : int, optional
        Stop when so many rounds brought the validation rows nothing, and keep the rounds up to the best one.
    booster : {"gbtree", "dart"}
        Whether each round leaves out random trees of those before (DART).
    rate_drop, skip_drop : float
        With DART: the share of the trees that a round leaves out, and the share of the rounds that leave out none.
    one_drop : bool
        Whether a round leaves out at least one tree, unless it is skipped.
    sample_type : {"uniform", "weighted"}
        Whether heavier trees are left out more often.
    normalize_type : {"tree", "forest"}
        Whether new trees weigh as much as each of those left out, or as all of them.
    device : {"cpu", "cuda"}
        What XGBoost, as the engine, grows trees on; the native engine keeps its exact sums on the processor.
    n_jobs : int, optional
        Most threads of training; by default, and for -1, as many as there are cores. Trees do not depend on it.

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
    class_weight: Mapping[int, float] | Literal["balanced"] | None = None
    base_score: float | None = None
    early_stopping_rounds: int | None = None
    booster: Literal["gbtree", "dart"] = "gbtree"
    rate_drop: float = 0.0
    skip_drop: float = 0.0
    one_drop: bool = False
    sample_type: Literal["uniform", "weighted"] = "uniform"
    normalize_type: Literal["tree", "forest"] = "tree"
    device: Literal["cpu", "cuda"] = "cpu"
    n_jobs: int | None = None

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
        _check("scale_pos_weight", self.scale_pos_weight, LEAST_CLASS_WEIGHT, MOST_CLASS_WEIGHT)
        if self.n_jobs not in (None, -1):
            _check("n_jobs", self.n_jobs, 1, 10**6, counts=True)
        self._check_class_weight()
        for name in ("reg_lambda", "reg_alpha", "gamma", "min_child_weight"):
            _check(name, getattr(self, name), 0.0, math.inf)
        for name in ("subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode"):
            _check(name, getattr(self, name), math.ulp(0.0), 1.0)
        self._check_dropout()
        if self.max_delta_step is not None:
            _check("max_delta_step", self.max_delta_step, 0.0, math.inf)
        if self.base_score is not None:
            _check("base_score", self.base_score, -sys.float_info.max, sys.float_info.max)
        if self.early_stopping_rounds is not None:
            _check("early_stopping_rounds", self.early_stopping_rounds, 1, 10**6, counts=True)

    def _check_dropout(self) -> None:
        for name in ("rate_drop", "skip_drop"):
            _check(name, getattr(self, name), 0.0, 1.0)
        check_choice("device", self.device, "cpu", "cuda")
        check_choice("booster", self.booster, "gbtree", "dart")
        check_choice("sample_type", self.sample_type, "uniform", "weighted")
        check_choice("normalize_type", self.normalize_type, "tree", "forest")
        if self.booster == "gbtree" and (self.rate_drop or self.one_drop):
            raise ParameterError("rate_drop and one_drop leave trees out, which only booster: dart does; got gbtree")

    def _check_class_weight(self) -> None:
        if not (self.class_weight in (None, "balanced") or isinstance(self.class_weight, Mapping)):
            raise ParameterError(
                f"class_weight must be balanced or a weight by class; got {type(self.class_weight).__name__}"
            )
        for number, weight in self._weight_by_class.items():
            _check("class_weight's class", number, 0, math.inf, counts=True)
            _check("class_weight", weight, LEAST_CLASS_WEIGHT, MOST_CLASS_WEIGHT)

    def check_objective(self, loss: Loss) -> None:
        """Refuse weights of classes where labels are none, or others, and a start that is no prediction."""
        loss = loss.singles[0]
        if self.base_score is not None and not abs(loss.score_of(self.base_score)) <= loss.most_margin:
            raise ParameterError(
                f"base_score must be a raw score of magnitude {loss.most_margin:g} at most for {loss.name}, or its "
                f"prediction; got {self.base_score:g}"
            )
        if self.scale_pos_weight != 1 and not isinstance(loss, Logistic):
            raise ParameterError(f"scale_pos_weight weighs label 1 of {Logistic.name}; the objective is {loss.name}")
        n_classes = _n_classes(loss)
        if self.class_weight is not None and n_classes == 0:
            raise ParameterError(f"class_weight weighs classes, and the objective {loss.name} has none")
        if unknown := sorted(number for number in self._weight_by_class if number >= n_classes):
            raise ParameterError(f"class_weight names class {unknown[0]}; there are classes 0 to {n_classes - 1}")

    def delta_step_of(self, loss: Loss) -> float:
        """The bound of the leaves' magnitude: the given one, or what suits the loss."""
        return loss.singles[0].max_delta_step if self.max_delta_step is None else self.max_delta_step

    def weighted(self, labels: Values, weights: Values, loss: Loss) -> Values:
        """Weights of rows, 0 for those that do not count, times those of their classes where a row has one label.

        Raises
        ------
        DataError
            If gradients would be too large or too small to compare splits by.
        """
        balanced = weights if labels.ndim > 1 else self._times_classes(labels, weights, loss)
        if np.nan_to_num(np.abs(labels), posinf=0).max(initial=1) * balanced.max(initial=0) > MOST_WEIGHTED:
            raise DataError(
                f"training needs labels times weights of magnitude {MOST_WEIGHTED:g} at most, those of classes "
                "included; found others"
            )
        if balanced.min(initial=1, where=balanced > 0) < LEAST_WEIGHTED:
            raise DataError(
                f"training needs weights of 0 or at least {LEAST_WEIGHTED:g}, those of classes included; found others"
            )
        return balanced

    def _times_classes(self, labels: Values, weights: Values, loss: Loss) -> Values:
        if self.scale_pos_weight != 1:
            weights = np.where(labels == 1, weights * self.scale_pos_weight, weights)
        if self.class_weight is None:
            return weights
        by_class = np.ones(_n_classes(loss))
        if self.class_weight == "balanced":
            totals = np.bincount(labels.astype(np.int64), weights, len(by_class))
            np.divide(totals.sum() / len(by_class), totals, out=by_class, where=totals > 0)
        for number, weight in self._weight_by_class.items():
            by_class[number] = weight
        return weights * by_class[labels.astype(np.int64)]

    def base_scores(self, loss: Loss, labels: Values, weights: Values, *, has_margins: bool = False) -> Values:
        """Scores that all rows start from; margins stand for them unless `base_score` is given."""
        if self.base_score is not None:
            return np.full(loss.n_outputs, loss.score_of(self.base_score))
        return np.zeros(loss.n_outputs) if has_margins else loss.initial_scores(labels, weights)

    @property
    def _weight_by_class(self) -> Mapping[int, float]:
        return self.class_weight if isinstance(self.class_weight, Mapping) else {}

    @property
    def max_splits(self) -> int:
        """The most splits of one tree."""
        of_depth = [(1 << self.max_depth) - 1] if self.max_depth else []
        of_leaves = [self.max_leaves - 1] if self.max_leaves else []
        return min(of_depth + of_leaves)


def _n_classes(loss: Loss) -> int:
    """Number of classes of a loss; 0 if its labels are no classes."""
    return loss.n_classes if isinstance(loss, Softmax | Ordinal) else 2 * isinstance(loss, Logistic)


def _check(name: str, value: Any, lowest: float, highest: float, *, counts: bool = False) -> None:
    """Refuse a parameter that is no number within a range, or no integer where it `counts`."""
    is_kind = is_integer(value) if counts else is_number(value)
    if not is_kind or not lowest <= value <= highest or value == math.inf:
        kind = "an integer" if counts else "a number"
        least = "greater than 0" if lowest == math.ulp(0.0) else f"at least {lowest:g}"
        most = "finite" if highest == math.inf else f"at most {highest:g}"
        raise ParameterError(f"{name} must be {kind}, {least} and {most}; got {value!r}")
