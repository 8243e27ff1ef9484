"""Losses of rankings within groups (LambdaMART), under XGBoost's names.

Labels have the shape ``(n_rows, 2)``: the degree of relevance, and the number of the group (query) whose rows are
ranked against each other. Scores order the rows of a group and say nothing across groups.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from opboost.arrays import Scores, Values
from opboost.errors import DataError, ParameterError
from opboost.trees.kernels.gradients import pack_gradients
from opboost.trees.kernels.pairs import pair_gradients
from opboost.trees.losses.grid import GradientGrid
from opboost.trees.losses.loss import Loss, WriteGradients

# Degrees of relevance, whose gain is ``2^degree - 1``.
MAX_DEGREE = 31


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """The rows of each group, in their order.

    Attributes
    ----------
    rows : ndarray of int64, shape (n_rows,)
        Group by group.
    begins : ndarray of int64, shape (n_groups + 1,)
    """

    rows: NDArray[np.int64]
    begins: NDArray[np.int64]

    @classmethod
    def of(cls, numbers: Values) -> Groups:
        """The groups of rows that have these numbers."""
        is_sorted = (numbers[1:] >= numbers[:-1]).all()
        rows = np.arange(len(numbers)) if is_sorted else np.argsort(numbers, kind="stable")
        changes = np.flatnonzero(np.diff(numbers if is_sorted else numbers[rows])) + 1
        return cls(rows, np.concatenate([[0], changes, [len(rows)]]))

    def weights(self, weights: Values) -> Values:
        """The mean weight of each group's rows."""
        return np.asarray(np.add.reduceat(weights[self.rows], self.begins[:-1]) / np.diff(self.begins))


@dataclass(frozen=True, slots=True)
class LambdaRank(Loss):
    """LambdaMART on normalised discounted cumulative gain.

    As in XGBoost, a group has one weight, here the mean of its rows', and all groups weigh 1 on average.

    Attributes
    ----------
    lambdarank_num_pair_per_sample : int
        Each of so many rows of the highest scores is paired with all rows below it.
    """

    name: ClassVar[str] = "rank:ndcg"
    predicts_labels: ClassVar[bool] = False
    takes_pairs: ClassVar[bool] = True
    is_pairwise: ClassVar[bool] = False
    lambdarank_num_pair_per_sample: int = 32

    def __post_init__(self) -> None:
        if not 1 <= self.lambdarank_num_pair_per_sample <= 10**6:
            raise ParameterError(
                f"lambdarank_num_pair_per_sample must be from 1 to 10^6; got {self.lambdarank_num_pair_per_sample}"
            )

    @property
    def settings(self) -> dict[str, Any]:
        return {"lambdarank_num_pair_per_sample": self.lambdarank_num_pair_per_sample}

    def check_labels(self, labels: Values) -> None:
        if labels.shape[1:] != (2,):
            raise DataError(f"{self.name} needs a group (`qid`) of each row beside its label; found labels alone")
        degrees, groups = labels.T
        if not np.isin(degrees, np.arange(MAX_DEGREE + 1)).all() or not np.isfinite(groups).all():
            raise DataError(f"{self.name} needs labels 0, 1, ..., {MAX_DEGREE}, and known groups; found others")

    def labels_of_xgboost(self, labels: Values) -> Mapping[str, NDArray[Any]]:
        return {"label": labels[:, 0], "qid": np.unique(labels[:, 1], return_inverse=True)[1]}

    def weights_of_xgboost(self, labels: Values, weights: Values) -> Values:
        return Groups.of(labels[:, 1]).weights(weights)

    def initial_scores(self, labels: Values, weights: Values) -> Values:
        return np.zeros(1)

    def grid(self, labels: Values, weights: Values, initial_scores: Values) -> GradientGrid:
        """Room for four times the largest terms at the start; what exceeds it saturates."""
        grad, hess = self._pairs_of(labels, weights)(np.full(len(labels), initial_scores[0]))
        largest = (4 * max(float(np.abs(each).max()), 1e-100) for each in (grad, hess))
        return GradientGrid.for_bounds(next(largest), next(largest))

    def gradients_of(self, labels: Values, weights: Values, grid: GradientGrid) -> WriteGradients:
        pairs_of, ones = self._pairs_of(labels, weights), np.ones(len(labels))
        return lambda scores, out: pack_gradients(*pairs_of(scores[0]), ones, *grid.rounding, out[0])

    def _pairs_of(self, labels: Values, weights: Values) -> Callable[[Scores], tuple[Values, Values]]:
        """Takes scores of the rows; gives their gradients and Hessians."""
        degrees, places, begins = _ranked(labels, labels[:, 0])
        groups, discounts = Groups.of(labels[:, 1]), 1 / np.log2(places + 1)
        best = (places <= self.lambdarank_num_pair_per_sample) * (2.0**degrees - 1) * discounts
        ideals = np.add.reduceat(best, begins) * (not self.is_pairwise)
        of_places = 1 / np.log2(2.0 + np.arange(np.diff(groups.begins).max()))
        of_groups = groups.weights(weights)
        shared = 2.0 ** labels[groups.rows, 0] - 1, ideals, of_places, groups.rows, groups.begins
        share, n_pairs = of_groups / of_groups.mean(), self.lambdarank_num_pair_per_sample

        def pairs(scores: Scores) -> tuple[Values, Values]:
            grad, hess = np.empty((2, len(labels)))
            pair_gradients(scores, *shared, share, n_pairs, grad, hess)
            return grad, hess

        return pairs


@dataclass(frozen=True, slots=True)
class PairwiseRank(LambdaRank):
    """LambdaMART on pairs that all weigh the same."""

    name: ClassVar[str] = "rank:pairwise"
    is_pairwise: ClassVar[bool] = True


def ndcg(labels: Values, scores: Values, most: float = np.inf) -> float:
    """Mean normalised discounted cumulative gain of the groups, of the first `most` rows; 1 where none is relevant.

    Parameters
    ----------
    labels : ndarray of float64, shape (n_rows, 2)
    scores : ndarray of float64, shape (n_rows,)
    most : float
    """
    return float(np.mean(ndcg_of_groups(labels, scores, most)))


def ndcg_of_groups(labels: Values, scores: Values, most: float = np.inf) -> Values:
    """The same of each group, in the order of their numbers."""
    totals = []
    for by in (scores, labels[:, 0]):
        degrees, places, begins = _ranked(labels, by)
        totals.append(np.add.reduceat((places <= most) * (2.0**degrees - 1) / np.log2(places + 1), begins))
    found, ideal = totals
    return np.divide(found, ideal, out=np.ones(len(ideal)), where=ideal > 0)


def mean_average_precision(labels: Values, scores: Values, most: float = np.inf) -> float:
    """Mean average precision of the groups, whose relevant rows have labels above 0; 1 where none is relevant."""
    degrees, places, begins = _ranked(labels, scores)
    is_relevant = degrees > 0
    found = np.cumsum(is_relevant, dtype=np.float64)
    found -= np.repeat(found[begins] - is_relevant[begins], np.diff(np.append(begins, len(found))))
    precision = np.add.reduceat(is_relevant * (places <= most) * found / places, begins)
    n_relevant = np.minimum(np.add.reduceat(is_relevant.astype(np.float64), begins), most)
    return float(np.mean(np.divide(precision, n_relevant, out=np.ones(len(begins)), where=n_relevant > 0)))


def _ranked(labels: Values, scores: Values) -> tuple[Values, NDArray[np.int64], NDArray[np.int64]]:
    """Degrees group by group, the highest scores first; their places from 1, and where each group begins."""
    order = np.lexsort((-scores, labels[:, 1]))
    begins = Groups.of(labels[order, 1]).begins
    places = 1 + np.arange(len(order)) - np.repeat(begins[:-1], np.diff(begins))
    return labels[order, 0], places, begins[:-1]


def group_numbers(names: ArrayLike) -> Values:
    """Numbers of groups that have these names, in the order of their first rows.

    Raises
    ------
    DataError
        If a name is missing.
    """
    # Loaded here for the reason that `opboost.trees.losses.loss` gives.
    import pandas as pd

    numbers, _ = pd.factorize(np.asarray(names))
    if (numbers < 0).any():
        raise DataError(f"{(numbers < 0).sum()} rows have no group. Nothing was released")
    return np.asarray(numbers, np.float64)
