"""The recommended recipe among three owners of made-up records."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.recommended.calibration import recommended_among_owners
from opboost.horizontal.recommended.owners import RecommendedAmongOwners
from opboost.horizontal.recommended.tree_sizes import GivenSizes
from opboost.horizontal.rows.client_rows import SummedClients
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.horizontal.rows.stream import Arrival, EarlierTraining
from opboost.rng import seeded
from opboost.trees.complete import tree_of

GRID = PublicGrid([(0.0, 1.0), (0.0, 100.0), (0.0, 2.0)], 16, categorical=(2,))


ROOT = np.zeros(1, np.int32)


DELTA = 1e-6


def recipe(
    n_classes: int, n_honest: int | None = 2, bounds: tuple[float, float] = (-6.0, 4.0), **changes: Any
) -> RecommendedAmongOwners:
    bounds = (0.0, 1.0) if n_classes else bounds
    task = PublicTask(("a", "b", "c"), GRID, sum(bounds) / 2, (bounds[1] - bounds[0]) / 2, 2.0, True, n_classes > 0)
    settings = {"delta": DELTA, "n_records": 900, "sizes": GivenSizes(4, 2)}
    return recommended_among_owners(task, n_classes=n_classes, n_honest=n_honest, **{**settings, **changes})


def records_of(n_classes: int, n_rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(0)
    X = draw.random((n_rows, 3)) * [1.0, 10.0, 1.0]
    X[:, 2] = np.floor(3 * X[:, 2])
    X[::50, 0] = math.nan
    y = np.nan_to_num(X[:, 0]) + 0.3 * draw.standard_normal(n_rows)
    return X, np.clip(np.floor(n_classes * y), 0, n_classes - 1) if n_classes else y


def earlier_of(n_classes: int, *, n_rows: int = 0, n_records: int = 900) -> EarlierTraining:
    """A finished training without noise, of which an owner has the first rows."""
    model = trained(recipe(n_classes, None), [slice(None)])
    arrivals = (Arrival(n_rows, 0),) if n_rows else ()
    return EarlierTraining(run="spring", model=model, digest="", arrivals=arrivals, n_records=n_records)


def trained(of: RecommendedAmongOwners, parts: list[slice]) -> Any:
    X, y = records_of(of.rounds.n_classes)
    holders = [of.rows(X[part], y[part], rng=seeded(100 + i)) for i, part in enumerate(parts)]
    return of.train(SummedClients(holders), shape_bits=seeded(7), rng=seeded(8))


THIRDS = [slice(i, None, 3) for i in range(3)]


def begun(of: RecommendedAmongOwners, n_trees: int = 1) -> Any:
    holder = of.rows(*records_of(of.rounds.n_classes, 20), rng=seeded(0))
    for number in range(n_trees):
        holder.start_tree(number % of.rounds.n_outputs)
        if number < n_trees - 1:
            holder.finish_tree(tree_of([], np.zeros(1), GRID.axes))
    return holder
