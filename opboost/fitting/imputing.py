"""What lies behind the noised columns of a table, fitted with the label and the active party's own columns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.denoise.imputation import FITTED_ROWS, N_CLASSES, Evidence, Imputation
from opboost.denoise.sources import sources_of
from opboost.fitting.noised_table import Noised
from opboost.fitting.recipe import Recipe, no_versions, raw_scores
from opboost.trees.boosting import BoostingParameters
from opboost.trees.kernels.threads import threads_for
from opboost.trees.losses import Softmax

# Trees of the active party's own columns that sum up what these say of the label.
_OWN_TREES = BoostingParameters(n_estimators=40, max_depth=4, learning_rate=0.15)
_FOLDS = 3


def impute(
    noised: Noised, labels: Values, rows: NDArray[np.int64], recipe: Recipe, *, rng: np.random.Generator
) -> tuple[Imputation, Evidence]:
    """Fit what lies behind the noised columns on some of the rows."""
    own = _own_scores(noised, labels, rows, recipe, rng=rng)
    evidence = Evidence.of(labels, own, n_classes=recipe.n_classes)
    with threads_for(len(rows) * len(noised.columns) * N_CLASSES):
        return Imputation.fit(sources_of(noised.columns), evidence, rows, rng=rng), evidence


def _own_scores(
    noised: Noised, labels: Values, rows: NDArray[np.int64], recipe: Recipe, *, rng: np.random.Generator
) -> Values:
    """What the active party's own columns say of each row's label, by trees that have not seen it."""
    n_rows, loss = len(labels), recipe.loss
    if (noised.table.axes.sizes[np.delete(np.arange(noised.table.axes.n_columns), noised.numbers)] < 3).all():
        return np.empty((n_rows, 0))
    fold = rng.integers(_FOLDS, size=n_rows)
    found = np.empty((n_rows, loss.n_outputs))
    recipe = replace(recipe, parameters=_OWN_TREES)
    for k in range(_FOLDS):
        others = rows[fold[rows] != k]
        others = np.sort(rng.permutation(others)[:FITTED_ROWS])
        trees, base_scores = recipe.grow(noised.table.of_rows(others), labels[others], np.ones(len(others)))
        here = np.flatnonzero(fold == k)
        found[here] = raw_scores(noised.table.of_rows(here), trees, base_scores, no_versions(len(here)))[0].T
    return found[:, 1:] if loss == Softmax(2) else found
