"""Columns of one party and of two others side by side, and what their owners answer to split tests."""

from __future__ import annotations

from typing import Any

import numpy as np

from opboost.columns import Column, OwnColumn, RankColumn
from opboost.split_tests import ListedTests
from opboost.trees.binning import bin_ranks, bin_values
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Loss, SquaredError
from opboost.vertical import TrainedTrees, train

N_ROWS = 200


def random_ranks(rng: np.random.Generator, n_ranks: int, *, missing: float = 0.0) -> np.ndarray:
    """Ranks of which all occur, and so many missing."""
    ranks = np.concatenate([np.arange(n_ranks), rng.integers(0, n_ranks, N_ROWS - n_ranks)])
    is_missing = rng.random(N_ROWS) < missing
    is_missing[:n_ranks] = False
    return np.where(is_missing, n_ranks, ranks).astype(np.uint32)


def owned_columns(seed: int) -> list[Column]:
    """Own columns and those of two owners side by side, some with gaps."""
    rng = np.random.default_rng(seed)
    gappy = rng.normal(size=N_ROWS).round(1)
    gappy[rng.random(N_ROWS) < 0.2] = np.nan
    return [
        OwnColumn("income", gappy),
        RankColumn("shop", 0, "c0", random_ranks(rng, 30), 30),
        RankColumn("bank", 1, "c1", random_ranks(rng, 7, missing=0.2), 7),
        RankColumn("shop", 1, "c1", random_ranks(rng, 2, missing=0.3), 2),
        OwnColumn("age", rng.integers(18, 90, N_ROWS) * 1.0),
    ]


def labels_of(columns: list[Column], loss: Loss, seed: int) -> np.ndarray:
    """Labels that depend on every column's order, and on its gaps as on high or as on low values."""
    signal = np.random.default_rng(seed).normal(size=N_ROWS)
    for column in columns:
        if isinstance(column, OwnColumn):
            signal += np.nan_to_num(column.values, nan=3.0) / 10
        else:
            gap = 1.5 if column.owner == "shop" else -0.5
            signal += 2 * np.where(column.ranks == column.n_ranks, gap, column.ranks / column.n_ranks)
    if isinstance(loss, SquaredError):
        return signal
    shares = np.arange(1, max(2, loss.n_outputs)) / max(2, loss.n_outputs)
    return np.digitize(signal, np.quantile(signal, shares)).astype(np.float64)


def train_on(
    columns: list[Column], labels: np.ndarray, loss: Loss, *, seed: int | None = None, **changes: Any
) -> TrainedTrees:
    parameters = BoostingParameters(**{"n_estimators": 5, "max_depth": 4} | changes)
    return train(columns, labels, np.ones(len(labels)), loss=loss, parameters=parameters, seed=seed)


def answers_of(columns: list[Column], tests: dict[str, ListedTests]) -> dict[str, np.ndarray]:
    """What every owner answers: whether the rank is at most the asked one, and for gaps what the test says."""
    held = {(c.owner, c.index): c for c in columns if isinstance(c, RankColumn)}
    answers = {}
    for owner, listed in tests.items():
        goes_left = np.empty((N_ROWS, len(listed.ranks)), np.bool_)
        for i, (index, rank, missing_left) in enumerate(
            zip(listed.columns, listed.ranks, listed.missing_left, strict=True)
        ):
            column = held[owner, int(index)]
            goes_left[:, i] = np.where(column.ranks == column.n_ranks, missing_left, column.ranks <= rank)
        answers[owner] = goes_left
    return answers


def walk_in_bins(trained: TrainedTrees) -> np.ndarray:
    """Scores by walking the unbound trees over the columns' bins."""
    binned = [
        bin_values(c.values, max_bin=256) if isinstance(c, OwnColumn) else bin_ranks(c.ranks, c.n_ranks, max_bin=256)
        for c in trained.columns
    ]
    scores = np.tile(trained.base_scores, (N_ROWS, 1))
    for number, tree in enumerate(trained.trees):
        for row in range(N_ROWS):
            node = 0
            while not tree.is_leaf[node]:
                column = binned[tree.columns[node]]
                bin_ = int(column.bins[row])
                is_missing = bin_ == column.n_value_bins
                goes_left = tree.missing_left[node] if is_missing else bin_ <= tree.thresholds[node]
                node = tree.lefts[node] if goes_left else tree.rights[node]
            scores[row, number % trained.loss.n_outputs] += tree.values[node]
    return scores
