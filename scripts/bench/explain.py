"""Contributions and interactions against XGBoost's of the same trees, on the same rows: JSON lines with the ratios.

python scripts/bench/explain.py [--rows 100000] [--columns 28] [--trees 100] [--depth 6] [--threads 2]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import xgboost
from measuring import say

from opboost import from_xgboost

# XGBoost takes as many times longer for interactions as there are columns.
FEWER_FOR_PAIRS = 500


def main() -> None:
    """Train with XGBoost, explain with both, and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 100_000), ("columns", 28), ("trees", 100), ("depth", 6), ("threads", 2)):
        parser.add_argument(f"--{name}", type=int, default=default)
    options = parser.parse_args()
    numba.set_num_threads(options.threads)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(options.rows, options.columns)).astype(np.float32)
    labels = rows[:, 0] * rows[:, 1] + rows[:, 2:8].sum(axis=1) + rng.normal(size=options.rows) > 0
    rows[rng.random(rows.shape) < 0.05] = np.nan
    settings = {"objective": "binary:logistic", "max_depth": options.depth, "nthread": options.threads}
    matrix = xgboost.DMatrix(rows, labels, nthread=options.threads)
    booster = xgboost.train(settings, matrix, options.trees)
    model, wide = from_xgboost(booster), rows.astype(np.float64)
    model.contributions(wide[:1], in_pairs=True)
    n_few = max(options.rows // FEWER_FOR_PAIRS, 1)
    few = xgboost.DMatrix(rows[:n_few], nthread=options.threads)
    for case, n_rows, ours, theirs in (
        (
            "contributions",
            options.rows,
            lambda: model.contributions(wide)[:, 0],
            lambda: booster.predict(matrix, pred_contribs=True),
        ),
        (
            "interactions",
            n_few,
            lambda: model.contributions(wide[:n_few], in_pairs=True)[:, 0],
            lambda: booster.predict(few, pred_interactions=True),
        ),
    ):
        found, seconds, cpu = timed(ours)
        expected, xgboost_seconds, xgboost_cpu = timed(theirs)
        say(
            bench="explain",
            case=case,
            **vars(options) | {"rows": n_rows},
            seconds=round(seconds, 3),
            xgboost_seconds=round(xgboost_seconds, 3),
            ratio_vs_xgboost=round(seconds / xgboost_seconds, 4),
            cpu_ratio_vs_xgboost=round(cpu / xgboost_cpu, 4),
            largest_difference=float(np.abs(found - expected).max()),
        )


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """What work gives, and the seconds that it took, by the clock and of the processor."""
    started, cpu_started = time.perf_counter(), time.process_time()
    done = work()
    return done, time.perf_counter() - started, time.process_time() - cpu_started


if __name__ == "__main__":
    main()
