"""Imputation of a table's noised columns, fitted with the label and the active party's own columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.imputation import FITTED_ROWS, N_CLASSES, Evidence, Imputation
from opboost.denoise.sources import Source
from opboost.fitting.noised_table import NoisedRows
from opboost.fitting.recipe import FOLDS, Recipe, table_scores
from opboost.trees.binning import BinnedTable
from opboost.trees.boosting import BoostingParameters
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import Loss, Softmax
from opboost.trees.tree import Tree

# Trees of the active party's own columns that sum up what these say of the label.
_OWN_TREES = BoostingParameters(n_estimators=40, max_depth=4, learning_rate=0.15)


@dataclass(frozen=True, slots=True, eq=False)
class OwnScores:
    """Out-of-fold scores of each row by trees on the active party's own columns.

    Attributes
    ----------
    forests : tuple of (list of Tree, base scores)
        One for each fold of rows, grown on the others; none where there are no own columns.
    loss : Loss
    """

    forests: tuple[tuple[list[Tree], Values], ...]
    loss: Loss

    @classmethod
    def fit(
        cls,
        noised: NoisedRows,
        rows: NDArray[np.int64],
        fold: NDArray[np.integer],
        recipe: Recipe,
        *,
        rng: np.random.Generator,
    ) -> OwnScores:
        """Grow the forests on these rows; `fold` is given for every row of the table."""
        if not noised.has_own:
            return cls((), recipe.loss)
        table, recipe, forests = noised.table, replace(recipe, parameters=_OWN_TREES), []
        for k in range(FOLDS):
            others = rows[fold[rows] != k]
            others = np.sort(rng.permutation(others)[:FITTED_ROWS])
            forests.append(recipe.grow(table.of_rows(others), noised.labels[others], np.ones(len(others))))
        return cls(tuple(forests), recipe.loss)

    def of(self, table: BinnedTable, fold: NDArray[np.integer]) -> Values:
        """Scores of a table's rows, shape ``(n_rows, n_numbers)``."""
        if not self.forests:
            return np.empty((table.n_rows, 0))
        scores = np.empty((table.n_rows, self.loss.n_outputs))
        for k, (trees, base_scores) in enumerate(self.forests):
            here = np.flatnonzero(fold == k)
            scores[here] = table_scores(table.of_rows(here), trees, base_scores).T
        return scores[:, 1:] if self.loss == Softmax(2) else scores


def impute(
    noised: NoisedRows, sources: Sequence[Source], rows: NDArray[np.int64], recipe: Recipe, *, rng: np.random.Generator
) -> Imputation:
    """Fit the exact codes of the noised columns, their `sources`, on these rows; labels of other rows are not used."""
    labels = noised.labels
    fold = rng.integers(FOLDS, size=len(labels)).astype(np.uint8)
    own = OwnScores.fit(noised, rows, fold, recipe, rng=rng).of(noised.table, fold)
    evidence = Evidence.of(labels, own, n_classes=recipe.n_classes, like=(labels[rows], own[rows]))
    return impute_from(noised, sources, evidence, rows, rng=rng)


def impute_from(
    noised: NoisedRows,
    sources: Sequence[Source],
    evidence: Evidence,
    rows: NDArray[np.int64],
    *,
    rng: np.random.Generator,
) -> Imputation:
    """Fit the exact codes of the noised columns on these rows, for known evidence."""
    with threads_for(len(rows) * len(noised.columns) * N_CLASSES):
        return Imputation.fit(sources, evidence, rows, rng=rng)
