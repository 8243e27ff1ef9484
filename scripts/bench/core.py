"""The tree core against XGBoost, LightGBM and scikit-learn: JSON lines of time, memory and quality.

Every contestant trains the same integer bins to the same depth, as many trees, on as many threads. Each run is a
process of its own, so that peak memory is its own; contestants take turns, and the median of the turns is reported.
Data are made and handed over in each library's binned form before the clock starts (scikit-learn bins inside its
fit). ``memory_ratio`` is (binned matrix + growth while training) / (binned matrix + 8 bytes per row and output).

    python scripts/bench/core.py [--turns 3] [--threads 2] [--cases first,wide,...] [--engines ours,xgboost,...]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from measuring import peak_bytes, say

ENGINES = ("ours", "xgboost", "lightgbm", "sklearn")
LEARNING_RATE, REG_LAMBDA, N_TEST = 0.1, 1.0, 100_000


@dataclass(frozen=True, slots=True)
class Case:
    """One training task."""

    n_rows: int
    n_columns: int
    n_bins: int = 255
    objective: str = "binary"
    n_trees: int = 100
    max_depth: int = 6
    booster: str = "gbtree"

    @property
    def dropout(self) -> dict[str, Any]:
        """What DART is told, under XGBoost's names."""
        return {"booster": "dart", "rate_drop": 0.1} if self.booster == "dart" else {}

    @property
    def n_outputs(self) -> int:
        """Trees per round."""
        return 5 if self.objective == "multiclass" else 1


CASES = {
    "first": Case(500_000, 28),
    "wide": Case(100_000, 100),
    "ranks": Case(1_000_000, 10, n_bins=1000),
    "small": Case(10_000, 20),
    "regression": Case(200_000, 28, objective="regression"),
    "classes": Case(100_000, 28, objective="multiclass", n_trees=20),
    "dart": Case(200_000, 28, booster="dart"),
    "intervals": Case(200_000, 28, objective="intervals"),
    "half_the_rows": Case(250_000, 28),
    "half_the_columns": Case(500_000, 14),
}
PREDICTION = Case(1_000_000, 28)


def main() -> None:
    """Let the contestants take turns at every case, and print the ratios."""
    arguments = _arguments()
    if arguments.worker:
        case = CASES.get(arguments.worker, PREDICTION)
        measure = measure_prediction if arguments.worker == "prediction" else measure_training
        say(**measure(arguments.engines[0], case, arguments.threads))
        return
    ours = {}
    for name in arguments.cases:
        turns: dict[str, list[dict[str, Any]]] = {engine: [] for engine in arguments.engines}
        for _ in range(arguments.turns):
            for engine in arguments.engines:
                if name != "prediction" or engine != "sklearn":
                    turns[engine].append(in_own_process(name, engine, arguments.threads))
        ours[name] = report(name, turns, arguments.threads)
    if ours.keys() >= {"first", "half_the_rows", "half_the_columns"}:
        growth = {of: round(ours["first"] / ours[f"half_the_{of}"], 2) for of in ("rows", "columns")}
        say(bench="core", case="growth", when_doubled=growth)


def in_own_process(case: str, engine: str, threads: int) -> dict[str, Any]:
    """Run one contestant's turn."""
    command = [sys.executable, __file__, "--worker", case, "--engines", engine, "--threads", str(threads)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"skipped": done.stderr.strip().rpartition("\n")[2]}
    return json.loads(done.stdout.splitlines()[-1])


def report(name: str, turns: dict[str, list[dict[str, Any]]], threads: int) -> float:
    """Print a line per contestant and one of ratios; returns our own seconds."""
    seconds = {}
    for engine, runs in turns.items():
        timed = [run for run in runs if "seconds" in run]
        if not timed:
            say(bench="core", case=name, engine=engine, **(runs or [{}])[0])
            continue
        middle = sorted(timed, key=lambda run: run["seconds"])[len(timed) // 2]
        spread = [min(run["seconds"] for run in timed), max(run["seconds"] for run in timed)]
        seconds[engine] = statistics.median(run["seconds"] for run in timed)
        say(bench="core", case=name, engine=engine, **middle, spread=spread)
    ours = seconds.pop("ours", math.nan)
    ratios = {f"ratio_vs_{rival}": round(ours / s, 3) for rival, s in seconds.items()}
    # On a busy machine, and with one thread, CPU seconds tell more; with several, rivals' wait in loops.
    cpu = {engine: statistics.median(one.get("cpu_s", math.nan) for one in runs) for engine, runs in turns.items()}
    ratios |= {f"cpu_ratio_vs_{rival}": round(cpu.get("ours", math.nan) / cpu[rival], 3) for rival in seconds}
    case = asdict(CASES.get(name, PREDICTION))
    say(bench="core", case=name, **case, threads=threads, **ratios)
    return ours


def measure_training(engine: str, case: Case, threads: int) -> dict[str, Any]:
    """Train once, after a warm-up on few rows, and report seconds, memory and quality."""
    bins, labels = make_data(case, case.n_rows, seed=0)
    test_bins, test_labels = make_data(case, N_TEST, seed=1)
    warm_up = replace(case, n_rows=1000)
    TRAINERS[engine](warm_up, *make_data(warm_up, 1000, seed=2), threads)(2)
    train = TRAINERS[engine](case, bins, labels, threads)
    ctypes.CDLL(None).malloc_trim(0)
    baseline = peak_bytes(reset=True)
    started, cpu_started = time.perf_counter(), time.process_time()
    predict = train(case.n_trees)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu_started
    growth = peak_bytes() - baseline
    gradients = 8 * case.n_rows * case.n_outputs
    ratio = (bins.nbytes + growth) / (bins.nbytes + gradients)
    score = quality(case, test_labels, predict(test_bins))
    facts = {"seconds": round(seconds, 4), "cpu_s": round(cpu, 4), "growth_mb": round(growth / 1e6, 1)}
    return {**facts, "memory_ratio": round(ratio, 2), **score}


def measure_prediction(engine: str, case: Case, threads: int) -> dict[str, Any]:
    """Train on a tenth of the rows, then score a million of them."""
    training = replace(case, n_rows=case.n_rows // 10)
    predict = TRAINERS[engine](training, *make_data(training, training.n_rows, seed=0), threads)(case.n_trees)
    test_bins, test_labels = make_data(case, case.n_rows, seed=1)
    values = np.ascontiguousarray(test_bins.T, dtype=np.float64 if engine == "ours" else np.float32)
    predict(values[:100], transposed=False)
    started = time.perf_counter()
    predictions = predict(values, transposed=False)
    seconds = time.perf_counter() - started
    return {"seconds": round(seconds, 4), **quality(case, test_labels, predictions)}


def make_data(case: Case, n_rows: int, *, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Bins ``(n_columns, n_rows)`` of normal columns cut at equal shares, and labels with interactions and noise."""
    from scipy.special import ndtr

    generator = np.random.default_rng(seed)
    columns = generator.standard_normal((case.n_columns, n_rows), dtype=np.float32)
    signal = columns[0] * columns[1] + np.sin(2 * columns[2]) + 0.5 * columns[3 : case.n_columns // 2].sum(axis=0)
    signal += generator.logistic(size=n_rows)
    dtype = np.uint8 if case.n_bins <= 256 else np.uint16
    bins = np.empty(columns.shape, dtype)
    for c, column in enumerate(columns):
        bins[c] = np.minimum(ndtr(column) * case.n_bins, case.n_bins - 1)
    match case.objective:
        case "binary":
            return bins, (signal > 0).astype(np.float64)
        case "regression":
            return bins, signal.astype(np.float64)
        case "intervals":
            times = np.exp(0.3 * signal.astype(np.float64))
            is_open = generator.random(n_rows) < 0.3
            return bins, np.column_stack([times * 0.8, np.where(is_open, 0.0, times * 1.2)])
        case _:
            return bins, np.digitize(signal, [-2.0, -0.7, 0.7, 2.0]).astype(np.float64)


def quality(case: Case, labels: np.ndarray, predictions: np.ndarray) -> dict[str, float]:
    """AUC, root mean squared error or accuracy on rows that nobody trained on."""
    from opboost.metrics import auc, concordance, error_rate, rmse

    match case.objective:
        case "binary":
            return {"auc": round(auc(labels, predictions), 5)}
        case "regression":
            return {"rmse": round(rmse(labels, predictions), 5)}
        case "intervals":
            return {"cindex": round(concordance(labels[:10_000], predictions[:10_000]), 5)}
        case _:
            return {"accuracy": round(1 - error_rate(labels, predictions.argmax(axis=1)), 5)}


Train = Callable[[int], Callable[..., np.ndarray]]


def train_ours(case: Case, bins: np.ndarray, labels: np.ndarray, threads: int) -> Train:
    """Our core on a binned table."""
    import numba

    from opboost.trees.binning import BinnedColumn, BinnedTable
    from opboost.trees.boosting import BoostingParameters, boost_table
    from opboost.trees.constraints import Constraints
    from opboost.trees.losses import AcceleratedFailure, Logistic, Loss, Softmax, SquaredError
    from opboost.trees.tree import Ensemble, Feature

    numba.set_num_threads(threads)
    cuts = np.arange(case.n_bins - 1, dtype=np.float64)
    table = BinnedTable.of([BinnedColumn(column, cuts) for column in bins])
    losses: dict[str, Callable[[], Loss]] = {
        "binary": Logistic,
        "regression": SquaredError,
        "multiclass": lambda: Softmax(case.n_outputs),
        "intervals": AcceleratedFailure,
    }
    loss = losses[case.objective]()
    weights = np.ones(case.n_rows)

    def train(n_trees: int) -> Callable[..., np.ndarray]:
        parameters = BoostingParameters(
            n_estimators=n_trees,
            max_depth=case.max_depth,
            learning_rate=LEARNING_RATE,
            reg_lambda=REG_LAMBDA,
            **case.dropout,
        )
        scores = loss.initial_scores(labels, weights)
        trees, _ = boost_table(
            table,
            labels,
            weights,
            parameters,
            loss=loss,
            base_scores=scores,
            constraints=Constraints.none(case.n_columns),
        )
        features = tuple(Feature(f"x{c}") for c in range(case.n_columns))
        ensemble = Ensemble(tuple(trees), scores, loss, features)
        return lambda rows, transposed=True: ensemble.predict(
            np.asarray(rows.T if transposed else rows, dtype=np.float64)
        )

    return train


def train_xgboost(case: Case, bins: np.ndarray, labels: np.ndarray, threads: int) -> Train:
    """XGBoost's `hist` on its quantile matrix."""
    import xgboost

    from opboost.trees.losses import AcceleratedFailure

    objectives = {"binary": "binary:logistic", "regression": "reg:squarederror", "intervals": "survival:aft"}
    parameters = {
        "objective": objectives.get(case.objective, "multi:softprob"),
        "max_depth": case.max_depth,
        "eta": LEARNING_RATE,
        "lambda": REG_LAMBDA,
        "tree_method": "hist",
        "max_bin": case.n_bins + 1,
        "nthread": threads,
        **case.dropout,
    }
    if case.n_outputs > 1:
        parameters["num_class"] = case.n_outputs
    given = AcceleratedFailure().labels_of_xgboost(labels) if case.objective == "intervals" else {"label": labels}
    matrix = xgboost.QuantileDMatrix(bins.T.astype(np.float32), **given, max_bin=case.n_bins + 1, nthread=threads)

    def train(n_trees: int) -> Callable[..., np.ndarray]:
        booster = xgboost.train(parameters, matrix, n_trees)
        return lambda rows, transposed=True: booster.inplace_predict(rows.T.astype(np.float32) if transposed else rows)

    return train


def train_lightgbm(case: Case, bins: np.ndarray, labels: np.ndarray, threads: int) -> Train:
    """LightGBM, leaf by leaf up to a full tree of the same depth."""
    import lightgbm

    objectives = {"binary": "binary", "regression": "l2"}
    parameters = {
        "objective": objectives.get(case.objective, "multiclass"),
        "num_leaves": 2**case.max_depth,
        "max_depth": case.max_depth,
        "learning_rate": LEARNING_RATE,
        "lambda_l2": REG_LAMBDA,
        "min_data_in_leaf": 0,
        "min_sum_hessian_in_leaf": 1.0,
        "num_threads": threads,
        "verbose": -1,
        "max_bin": case.n_bins + 1,
        "min_data_in_bin": 1,
        "num_class": case.n_outputs,
    }
    if case.booster == "dart":
        # As many trees are left out as XGBoost leaves out, and weighted as there.
        of_rounds = {"drop_rate": case.dropout["rate_drop"], "skip_drop": 0.0, "max_drop": -1}
        parameters |= {"boosting": "dart", "xgboost_dart_mode": True, **of_rounds}
    data = lightgbm.Dataset(bins.T.astype(np.float32), labels, params=parameters).construct()

    def train(n_trees: int) -> Callable[..., np.ndarray]:
        booster = lightgbm.train(parameters, data, n_trees)
        return lambda rows, transposed=True: booster.predict(rows.T if transposed else rows)

    return train


def train_sklearn(case: Case, bins: np.ndarray, labels: np.ndarray, threads: int) -> Train:
    """scikit-learn's histogram boosting; at most 255 bins, and its fit bins the columns itself."""
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from threadpoolctl import threadpool_limits

    kind = HistGradientBoostingRegressor if case.objective == "regression" else HistGradientBoostingClassifier
    rows = np.asfortranarray(bins.T.astype(np.float64))

    def train(n_trees: int) -> Callable[..., np.ndarray]:
        model = kind(
            max_iter=n_trees,
            max_depth=case.max_depth,
            max_leaf_nodes=2**case.max_depth,
            early_stopping=False,
            learning_rate=LEARNING_RATE,
            l2_regularization=REG_LAMBDA,
            min_samples_leaf=1,
            max_bins=255,
        )
        with threadpool_limits(threads):
            model.fit(rows, labels)
        if case.objective == "regression":
            return lambda rows: model.predict(rows.T)
        return lambda rows: model.predict_proba(rows.T)[:, 1] if case.n_outputs == 1 else model.predict_proba(rows.T)

    return train


TRAINERS = {"ours": train_ours, "xgboost": train_xgboost, "lightgbm": train_lightgbm, "sklearn": train_sklearn}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cases", type=_names, default=[*CASES, "prediction"])
    parser.add_argument("--engines", type=_names, default=list(ENGINES))
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


def _names(text: str) -> Sequence[str]:
    return text.split(",")


if __name__ == "__main__":
    main()
