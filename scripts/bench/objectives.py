"""Every objective against XGBoost and LightGBM: JSON lines of splits, of time and of held-out loss.

- ``splits``: tree after tree from the same scores, both grow one tree on the same bins. Of the splits that both reach,
  how many are at another column or cut, by how much of the gain these differ, and the largest difference of leaves,
  as a share of the largest leaf.
- ``time``: CPU seconds of training on binned rows by turns in one process, and the median of the turns' ratios.
- ``loss``: the objective's metric on rows that nobody trained on, with LightGBM where it has the objective: means over
  several tables, and the mean of "ours / theirs - 1" with its standard error.

    python scripts/bench/objectives.py [--parts splits,time,loss] [--objectives quantile,...] [--rows 20000]
        [--trees 60] [--turns 3] [--threads 1] [--tables 8]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numba
import numpy as np
import xgboost
from measuring import say

from opboost.metrics import default_metric, metric_by_name
from opboost.trees.binning import BinnedColumn, BinnedTable
from opboost.trees.boosting import BoostingParameters, boost_table
from opboost.trees.constraints import Constraints
from opboost.trees.losses import (
    AbsoluteError,
    AcceleratedFailure,
    Cox,
    Gamma,
    LambdaRank,
    Logistic,
    Loss,
    PairwiseRank,
    Poisson,
    PseudoHuber,
    Quantiles,
    Softmax,
    SquaredError,
    Tweedie,
)
from opboost.trees.tree import Ensemble, Feature, Tree
from opboost.trees.xgboost_engine import boost_with_xgboost

N_COLUMNS, N_BINS, GROUP = 28, 255, 20
SHARED: dict[str, Any] = {"max_depth": 6, "learning_rate": 0.1}
LIGHTGBM = {"reg:quantileerror": "quantile", "reg:tweedie": "tweedie", "reg:gamma": "gamma", "rank:ndcg": "lambdarank"}
LOSSES: list[tuple[str, Loss]] = [
    ("squared", SquaredError()),
    ("logistic", Logistic()),
    ("softmax", Softmax(4)),
    ("poisson", Poisson()),
    ("gamma", Gamma()),
    ("tweedie", Tweedie()),
    ("quantile", Quantiles((0.8,))),
    ("quantiles", Quantiles((0.1, 0.5, 0.9))),
    ("absolute", AbsoluteError()),
    ("huber", PseudoHuber()),
    ("cox", Cox()),
    ("aft", AcceleratedFailure()),
    ("aft-intervals", AcceleratedFailure("logistic", 0.7)),
    ("ndcg", LambdaRank()),
    ("pairwise", PairwiseRank()),
]


def main() -> None:
    """Measure the parts for every objective."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default="splits,time,loss")
    parser.add_argument("--objectives", default=",".join(name for name, _ in LOSSES))
    for option, default in (("rows", 20_000), ("trees", 60), ("turns", 3), ("threads", 1), ("tables", 8)):
        parser.add_argument(f"--{option}", type=int, default=default)
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    for name, loss in LOSSES:
        if name not in options.objectives.split(","):
            continue
        for part in options.parts.split(","):
            found = {"splits": splits, "time": times, "loss": losses}[part](name, loss, options)
            say(bench="objectives", part=part, case=name, objective=loss.name, **found)


def make_data(name: str, loss: Loss, n_rows: int, *, seed: int) -> tuple[BinnedTable, np.ndarray]:
    """Normal columns in bins of equal shares, and labels that fit the objective."""
    from scipy.special import ndtr

    rng = np.random.default_rng(seed)
    columns = rng.standard_normal((N_COLUMNS, n_rows))
    signal = (
        columns[0] * columns[1] + np.sin(2 * columns[2]) + 0.5 * columns[3:8].sum(axis=0) + rng.logistic(size=n_rows)
    )
    bins = np.minimum(ndtr(columns) * N_BINS, N_BINS - 1).astype(np.uint8)
    table = BinnedTable.of([BinnedColumn(column, np.arange(N_BINS - 1.0)) for column in bins])
    mean = np.exp(0.3 * signal)
    match loss:
        case Logistic():
            labels = signal > 0
        case Softmax():
            labels = np.digitize(signal, [-1.5, 0, 1.5])
        case Poisson():
            labels = rng.poisson(mean)
        case Gamma():
            labels = mean * rng.gamma(2.0, 0.5, n_rows)
        case Tweedie():
            labels = rng.poisson(mean) * rng.gamma(2.0, 0.5, n_rows)
        case AcceleratedFailure() if name == "aft-intervals":
            labels = np.column_stack([0.8 * mean, np.where(rng.random(n_rows) < 0.3, 0.0, 1.2 * mean)])
        case Cox() | AcceleratedFailure():
            labels = mean * rng.choice([-1, 1], n_rows, p=[0.3, 0.7])
        case LambdaRank():
            labels = np.column_stack([np.digitize(signal, [0, 1.5, 3]), np.arange(n_rows) // GROUP])
        case _:
            labels = signal
    return table, labels.astype(np.float64)


def splits(name: str, loss: Loss, options: argparse.Namespace) -> dict[str, Any]:
    """Compare trees that both grow from the same scores."""
    table, labels = make_data(name, loss, 20_000, seed=0)
    weights, constraints = np.ones(len(labels)), constraints_of(loss)
    base = loss.initial_scores(labels, weights)
    shared: dict[str, Any] = {"loss": loss, "base_scores": base, "constraints": constraints, "on_round": lambda _: None}
    one, parameters = (BoostingParameters(n_estimators=n, **SHARED | {"max_depth": 4}) for n in (1, 10))
    ours, _ = boost_table(table, labels, weights, parameters, seed=0, **shared)
    compared, gains, leaves = 0, [], [0.0]
    for first in range(0, len(ours), loss.n_outputs):
        grown, _ = boost_with_xgboost(table, labels, weights, one, earlier=ours[:first], seed=0, **shared)
        for mine, theirs in zip(ours[first:], grown[first:], strict=False):
            pairs = list(both(mine, theirs))
            compared += sum(not mine.is_leaf[a] for a, _ in pairs)
            gains += [1 - theirs.gains[b] / mine.gains[a] for a, b in pairs if differs(mine, theirs, a, b)]
            ends = [(mine.values[a], theirs.values[b]) for a, b in pairs if mine.is_leaf[a] and theirs.is_leaf[b]]
            leaves += [abs(a - b) / np.abs(mine.values).max() for a, b in ends]
    largest = float(np.abs(gains).max()) if gains else 0.0
    return {"splits": compared, "elsewhere": len(gains), "largest_difference_of_gain": largest, "of_leaf": max(leaves)}


def constraints_of(loss: Loss) -> Constraints:
    """No constraints but the bound of leaves that the objective has by default."""
    return replace(Constraints.none(N_COLUMNS), max_delta_step=loss.max_delta_step)


def differs(mine: Tree, theirs: Tree, a: int, b: int) -> bool:
    """Whether two nodes are split at other places."""
    if mine.is_leaf[a] or theirs.is_leaf[b]:
        return bool(mine.is_leaf[a] != theirs.is_leaf[b])
    return (mine.columns[a], mine.thresholds[a]) != (theirs.columns[b], theirs.thresholds[b])


def both(mine: Tree, theirs: Tree) -> Iterator[tuple[int, int]]:
    """The nodes that both trees reach by the same splits."""
    waiting = [(0, 0)]
    while waiting:
        a, b = waiting.pop()
        yield a, b
        if not mine.is_leaf[a] and not differs(mine, theirs, a, b):
            waiting += [(mine.lefts[a], theirs.lefts[b]), (mine.rights[a], theirs.rights[b])]


def trainers(name: str, loss: Loss, options: argparse.Namespace, *, seed: int) -> dict[str, Callable[[int], Any]]:
    """Training by us and by XGBoost, on rows in bins, of so many rounds; both give what predicts bins."""
    table, labels = make_data(name, loss, options.rows, seed=seed)
    rows, weights = np.ascontiguousarray(table.bins.T, np.float32), np.ones(options.rows)
    settings = {"objective": loss.name, **loss.settings, "max_depth": 6, "eta": 0.1, "tree_method": "hist"}
    settings |= {"max_bin": N_BINS + 1, "nthread": options.threads, "disable_default_eval_metric": True}
    if isinstance(loss, Softmax):
        settings["num_class"] = loss.n_outputs
    given = loss.labels_of_xgboost(labels)
    matrix = xgboost.QuantileDMatrix(rows, **given, max_bin=N_BINS + 1, nthread=options.threads)

    def ours(n_rounds: int) -> Callable[[np.ndarray], np.ndarray]:
        base, parameters = loss.initial_scores(labels, weights), BoostingParameters(n_estimators=n_rounds, **SHARED)
        constraints = constraints_of(loss)
        trees, _ = boost_table(table, labels, weights, parameters, loss=loss, base_scores=base, constraints=constraints)
        return Ensemble(tuple(trees), base, loss, tuple(Feature(f"x{c}") for c in range(N_COLUMNS))).predict

    def theirs(n_rounds: int) -> Callable[[np.ndarray], np.ndarray]:
        return xgboost.train(settings, matrix, n_rounds).inplace_predict

    return {"ours": ours, "xgboost": theirs}


def times(name: str, loss: Loss, options: argparse.Namespace) -> dict[str, Any]:
    """CPU seconds of both by turns."""
    contestants, seconds = trainers(name, loss, options, seed=0), []
    for train in contestants.values():
        train(1)
    for _ in range(options.turns):
        turn = []
        for train in contestants.values():
            started = time.process_time()
            train(options.trees)
            turn.append(time.process_time() - started)
        seconds.append(turn)
    ours, theirs = (round(statistics.median(one), 3) for one in zip(*seconds, strict=True))
    ratio = round(statistics.median(mine / other for mine, other in seconds), 3)
    return {"cpu_s": ours, "xgboost_cpu_s": theirs, "ratio_vs_xgboost": ratio, "rows": options.rows}


def losses(name: str, loss: Loss, options: argparse.Namespace) -> dict[str, Any]:
    """The objective's metric on rows that nobody trained on, over several tables, and how far ours is from others'."""
    metric, found = metric_by_name(default_metric(loss), loss), []
    for seed in range(options.tables):
        test, truth = make_data(name, loss, 50_000, seed=2 * seed + 1)
        rows, contestants = np.ascontiguousarray(test.bins.T, np.float64), trainers(name, loss, options, seed=2 * seed)
        if loss.name in LIGHTGBM and loss.n_outputs == 1:
            contestants["lightgbm"] = partial(by_lightgbm, name, loss, options, 2 * seed)
        found.append(
            [metric.of(truth, np.asarray(train(options.trees)(rows), float)) for train in contestants.values()]
        )
    scores = np.array(found)
    facts: dict[str, Any] = {"metric": metric.name, "tables": options.tables}
    for rival, of in zip(contestants, scores.T, strict=True):
        apart = scores[:, 0] / of - 1
        error = apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else float("nan")
        facts[rival] = round(float(of.mean()), 5)
        facts |= {} if rival == "ours" else {f"ours_over_{rival}": [round(float(apart.mean()), 5), round(error, 5)]}
    return facts


def by_lightgbm(
    name: str, loss: Loss, options: argparse.Namespace, seed: int, n_rounds: int
) -> Callable[[np.ndarray], np.ndarray]:
    """LightGBM on the same bins, leaf by leaf up to a full tree of the same depth."""
    import lightgbm

    table, labels = make_data(name, loss, options.rows, seed=seed)
    settings = {"objective": LIGHTGBM[loss.name], "num_leaves": 64, "max_depth": 6, "learning_rate": 0.1, "verbose": -1}
    settings |= {"lambda_l2": 1.0, "min_data_in_leaf": 0, "min_sum_hessian_in_leaf": 1.0, "max_bin": N_BINS + 1}
    settings |= {"num_threads": options.threads, "tweedie_variance_power": 1.5, "alpha": 0.8, "min_data_in_bin": 1}
    group = np.full(options.rows // GROUP, GROUP) if isinstance(loss, LambdaRank) else None
    label = labels[:, 0] if labels.ndim == 2 else labels
    data = lightgbm.Dataset(table.bins.T.astype(np.float32), label, group=group, params=settings)
    return lightgbm.train(settings, data, n_rounds).predict


if __name__ == "__main__":
    main()
