"""Imputation in exported models: empty cells go the way of the constants that they are read as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from opboost.arrays import Values
from opboost.trees.tree import Ensemble, Tree


def imputed(ensemble: Ensemble, fills: Mapping[str, float]) -> Ensemble:
    """Send missing cells of own features where constants go.

    Parameters
    ----------
    ensemble : Ensemble
    fills : mapping of str to float
        By own feature, the number that an empty cell was read as in training.

    Returns
    -------
    Ensemble
        Scores rows with empty cells as `ensemble` scores them with the constants.
    """
    own = [fills.get(feature.name, np.nan) if feature.owner is None else np.nan for feature in ensemble.features]
    # A leaf has column -1.
    constants = np.array([*own, np.nan])
    return replace(ensemble, trees=tuple(_imputed(tree, constants) for tree in ensemble.trees))


def _imputed(tree: Tree, constants: Values) -> Tree:
    filled = constants[tree.columns]
    goes_left = filled <= tree.thresholds
    for node, categories in tree.left_categories.items():
        goes_left[node] = filled[node] in categories
    return replace(tree, missing_left=np.where(np.isnan(filled), tree.missing_left, goes_left))
