"""Validation rows: scored after every round, for early stopping."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask, Values
from opboost.errors import ParameterError
from opboost.trees.binning import BinnedTable
from opboost.trees.holder import repeated
from opboost.trees.losses import Loss
from opboost.trees.rows import PutBack, add_tree, take_out
from opboost.trees.tree import LEAF, Tree


@dataclass(frozen=True, slots=True)
class Metric:
    """An evaluation metric.

    Attributes
    ----------
    name : str
    of : callable
        From labels and predictions to the metric's value.
    is_higher_better : bool
    """

    name: str
    of: Callable[[Values, Values], float]
    is_higher_better: bool = False

    def score(self, labels: Values, predictions: Values) -> float:
        """The metric of these rows, as files can hold it."""
        return finite(self.of(labels, predictions))


def finite(score: float) -> float:
    """A score that files can hold: in place of an infinite one a number so large that differences are numbers too."""
    return float(np.clip(np.nan_to_num(score), -1e300, 1e300))


class HeldOutRows(NamedTuple):
    """Rows that are not trained on.

    Attributes
    ----------
    table : BinnedTable
        As `ValidationRows` takes it.
    labels : ndarray of float64, shape (n_rows,)
    metrics : tuple of Metric
    margins : ndarray of float64, shape (n_outputs, n_rows), or 0.0
        What is added to the base scores.
    share : float
        Weight of the trees in the scores.
    """

    table: BinnedTable
    labels: Values
    metrics: tuple[Metric, ...]
    margins: Values | float = 0.0
    share: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class KnownRows:
    """Held-out rows beside the training table, known at least to the cuts between which each value lies.

    Attributes
    ----------
    columns : tuple of ndarray of float64, each of shape (n_rows,)
        As the training columns: values, or ranks between the same cuts as the row's; NaN for missing.
    labels : ndarray of float64, shape (n_rows,) or (n_rows, n_outputs)
    metrics : tuple of Metric
        The last one decides when to stop early; none if these rows do not.
    margins : ndarray of float64, shape (n_outputs, n_rows), or 0.0
        What is added to the base scores.
    """

    columns: tuple[Values, ...]
    labels: Values
    metrics: tuple[Metric, ...] = ()
    margins: Values | float = 0.0

    def held_out(self, table: BinnedTable, output: int | None) -> HeldOutRows:
        """These rows in the bins of the training table, to stop the trees of one output by, or of all."""
        labels, margins = self.labels, self.margins
        if output is not None:
            labels, margins = labels[:, output], margins if isinstance(margins, float) else margins[output, None]
        return HeldOutRows(self.binned(table), labels, self.metrics, margins)

    def binned(self, table: BinnedTable) -> BinnedTable:
        """These rows in the bins of the training table; a category that it lacks counts as missing."""
        bins: Any = np.empty((len(self.columns), len(self.labels)), np.min_scalar_type(table.axes.largest))
        for c, is_categorical in enumerate(table.axes.is_categorical.tolist()):
            bins[c] = bins_between(self.columns[c], table.cuts[c], is_categorical=is_categorical)
        return replace(table, bins=bins)


def bins_between(values: Values, cuts: Values, *, is_categorical: bool = False) -> NDArray[np.int64]:
    """Bins of values between the cuts of a binned column, or of its categories."""
    n_value_bins, bins = len(cuts) + (not is_categorical), np.searchsorted(cuts, values)
    is_missing = np.isnan(values)
    if is_categorical:
        is_missing |= cuts[np.minimum(bins, len(cuts) - 1)] != values
    return np.where(is_missing, n_value_bins, bins)


class ValidationRows:
    """Rows that are not trained on, routed through the trees.

    Parameters
    ----------
    table : BinnedTable
        In the bins of the training table; several times the rows, one version after the other, where they are known
        in several versions. Raw scores are then averaged over the versions.
    labels : ndarray of float64, shape (n_rows,)
    loss : Loss
    initial_scores : ndarray of float64, shape (n_outputs,) or (n_outputs, n_rows)
    metrics : tuple of Metric
        The last one decides when to stop.
    share : float
        Weight of the trees in the scores.
    """

    def __init__(
        self,
        table: BinnedTable,
        labels: Values,
        loss: Loss,
        initial_scores: Values,
        *,
        metrics: tuple[Metric, ...],
        share: float = 1.0,
    ) -> None:
        self._labels, self._loss, self._share = labels, loss, share
        self._table, self._scores = table, repeated(initial_scores, table.n_rows, np.float64)
        self.metrics = metrics

    def scores(self) -> dict[str, float]:
        """Every metric of the predictions so far."""
        scores = self._scores.reshape(self._loss.n_outputs, -1, len(self._labels)).mean(axis=1)
        predictions = self._loss.predictions(scores.T)
        return {metric.name: metric.score(self._labels, predictions) for metric in self.metrics}

    def add_tree(self, tree: Tree, output: int) -> None:
        """Add the leaves' values of a tree to the scores."""
        add_tree(self._scores[output], self._table.bins, self._table.axes, self._shared(tree))

    def take_out(self, trees: Sequence[tuple[int, Tree]]) -> PutBack:
        """Take trees, each with its output, out of the scores; returns what puts them back."""
        shared = [(output, self._shared(tree)) for output, tree in trees]
        return take_out(self._scores, self._table.bins, self._table.axes, shared)

    def _shared(self, tree: Tree) -> Tree:
        return tree if self._share == 1.0 else tree.scaled(self._share)


@dataclass(slots=True)
class History:
    """Scores of the validation rows, round by round.

    Attributes
    ----------
    scores : dict of str to list of float
        By metric.
    best_round : int
        Number of rounds with which the last metric was best; 0 before the first.
    """

    scores: dict[str, list[float]] = field(default_factory=dict)
    best_round: int = 0

    def add(self, scores: Mapping[str, float], deciding: Metric) -> None:
        """Note the scores after a further round."""
        for name, score in scores.items():
            self.scores.setdefault(name, []).append(score)
        past, sign = self.scores[deciding.name], 1 if deciding.is_higher_better else -1
        if self.best_round == 0 or sign * past[-1] > sign * past[self.best_round - 1]:
            self.best_round = len(past)


@dataclass(frozen=True, slots=True)
class ValidationPlan:
    """Rows that are held out of training, and the metrics that score them.

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
        cls,
        share: float,
        n_rows: int,
        metrics: tuple[Metric, ...],
        *,
        groups: Values | None = None,
        rng: np.random.Generator,
    ) -> ValidationPlan:
        """Hold out a random share of the rows, or of the groups of rows with all of theirs.

        Of few groups at least one is held out and one is left; rows of a single one are held out one by one. Which rows
        make a group is private, so it must not decide whether a run ends.

        Raises
        ------
        ParameterError
            If so few rows would be held out, or left, that it is none.
        """
        n_held_out = round(share * n_rows)
        if not 0 < n_held_out < n_rows:
            raise ParameterError(
                f"of {n_rows} records a share of {share:g} leaves {n_rows - n_held_out} to train on and "
                f"{n_held_out} to validate; both need one. Nothing was released"
            )
        of_rows, n_groups = np.arange(n_rows), n_rows
        if groups is not None and len(distinct := np.unique(groups)) > 1:
            of_rows, n_groups = np.searchsorted(distinct, groups), len(distinct)
            n_held_out = min(max(round(share * n_groups), 1), n_groups - 1)
        is_held_out = np.zeros(n_groups, dtype=np.bool_)
        is_held_out[rng.permutation(n_groups)[:n_held_out]] = True
        return cls(is_held_out[of_rows], metrics)


def combined(grown: Sequence[tuple[list[Tree], Values, History]]) -> tuple[list[Tree], Values, History]:
    """Trees of several outputs round by round, their base scores, and their histories, each metric with its output."""
    if len(grown) == 1:
        return grown[0]
    n_rounds = max(len(trees) for trees, _, _ in grown)
    trees_of_outputs = [[*trees, *[LEAF] * (n_rounds - len(trees))] for trees, _, _ in grown]
    histories = [history for _, _, history in grown]
    scores = {f"{name}-{k}": values for k, history in enumerate(histories) for name, values in history.scores.items()}
    return (
        [tree for trees_of_round in zip(*trees_of_outputs, strict=True) for tree in trees_of_round],
        np.concatenate([base_scores for _, base_scores, _ in grown]),
        History(scores, max(history.best_round for history in histories)),
    )
