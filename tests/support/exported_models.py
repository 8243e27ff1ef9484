"""Ensembles for tests of exports: numbers, categories and missing cells, of every loss that other systems know."""

from __future__ import annotations

from typing import Any

import numpy as np

from opboost.columns import OwnColumn
from opboost.split_tests import bind
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Gamma, Logistic, Loss, Quantiles, Softmax, SquaredError
from opboost.trees.tree import Ensemble
from opboost.vertical import train

LOSSES: tuple[Loss, ...] = (Logistic(), SquaredError(), Softmax(3), Gamma(), Quantiles((0.1, 0.9)))

N_CATEGORIES = 5


def rows(n: int, *, seed: int = 0) -> np.ndarray[Any, Any]:
    """A feature matrix: two columns of numbers, one of categories; one cell in ten missing, one category unknown."""
    rng = np.random.default_rng(seed)
    cells = np.stack([rng.normal(size=n), rng.integers(-4, 4, n) / 2, rng.integers(0, N_CATEGORIES, n)], axis=1)
    cells[rng.random(cells.shape) < 0.1] = np.nan
    return cells


def trained(loss: Loss, *, n_rounds: int = 8) -> tuple[Ensemble, np.ndarray[Any, Any]]:
    """A trained ensemble, and the rows it was trained on."""
    matrix = rows(600)
    signal = np.nan_to_num(matrix) @ [1.0, 0.5, 0.3] + (matrix[:, 2] == 3) - np.isnan(matrix[:, 0])
    labels = {
        "binary:logistic": lambda: (signal > np.median(signal)) * 1.0,
        "multi:softprob": lambda: np.digitize(signal, np.quantile(signal, [0.3, 0.7])) * 1.0,
        "reg:gamma": lambda: np.exp(signal / 2),
    }.get(loss.name, lambda: signal)()
    columns = [
        OwnColumn(name, matrix[:, i], name == "kind") for i, name in enumerate(("width", 'the "height"', "kind"))
    ]
    parameters = BoostingParameters(n_estimators=n_rounds, max_depth=4)
    return bind(train(columns, labels, np.ones(len(matrix)), loss=loss, parameters=parameters), {}), matrix
