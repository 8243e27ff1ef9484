"""Training beside processes that keep cores busy: all threads against one, and against XGBoost's, as JSON lines.

python scripts/bench/busy.py [--rows 10000] [--columns 20] [--trees 100] [--busy 0,1,2,4,8] [--turns 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import xgboost
from measuring import say

from opboost import OpBoostClassifier


def main() -> None:
    """Measure by turns under each load, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, default in (("rows", 10_000), ("columns", 20), ("trees", 100), ("turns", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--busy", default="0,1,2,4,8", help="numbers of busy processes")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(options.rows, options.columns))
    labels = (rows[:, 0] + rows[:, 1] * rows[:, 2] + rng.normal(size=options.rows) > 0).astype(int)
    ours = {
        name: OpBoostClassifier(n_estimators=options.trees, n_jobs=n_jobs)
        for name, n_jobs in (("one", 1), ("all", None))
    }
    theirs = xgboost.XGBClassifier(n_estimators=options.trees, tree_method="hist")
    fits = {name: model.fit for name, model in {**ours, "xgboost": theirs}.items()}
    for fit in fits.values():
        fit(rows, labels)
    for n_busy in map(int, options.busy.split(",")):
        with busy(n_busy):
            found = {name: [] for name in fits}
            for _ in range(options.turns):
                for name, fit in fits.items():
                    found[name].append(seconds(lambda fit=fit: fit(rows, labels)))
        medians = {name: statistics.median(times) for name, times in found.items()}
        say(
            bench="busy",
            case=f"{options.rows} x {options.columns}, {n_busy} busy processes",
            seconds=medians["all"],
            one_thread=medians["one"],
            xgboost=medians["xgboost"],
            ratio_to_one_thread=medians["all"] / medians["one"],
            ratio_to_xgboost=medians["all"] / medians["xgboost"],
        )


@contextmanager
def busy(n: int) -> Iterator[None]:
    """Run processes that never rest."""
    processes = [multiprocessing.Process(target=spin, daemon=True) for _ in range(n)]
    for process in processes:
        process.start()
    time.sleep(0.2)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def spin() -> None:
    """Keep a core busy."""
    while True:
        pass


def seconds(work: Callable[[], object]) -> float:
    """How long some work takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
