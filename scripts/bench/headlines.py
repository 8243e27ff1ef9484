"""The largest runs, each a case of its own: seconds, memory, bytes and what the processors would cost rented.

A scale below 1 takes so many of the rows, or of the workers, so that a case can be tried; such figures are no
headlines. The data of the largest take some 20 GB of disk at scale 1 (`BENCH_FOLDER`). What a run costs is counted as
processor seconds at a price per core and hour.

    python scripts/bench/headlines.py --case higgs [--scale 1] [--price 0.05] [--processes 10]
"""

from __future__ import annotations

import argparse
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import horizontal
from measuring import say
from run import machine
from vertical import Case, prepare, run_once

from protocols.secure_aggregation.epochs import MAX_WORKERS

MODEL = {"n_estimators": 100, "max_depth": 6}

CASES = {
    # SecretFlow's SGB published 4,177 s for this size, on 32 cores a side.
    "wide": Case(name="wide", n_rows=800_000, n_own=1500, n_passive=1500, model=MODEL),
    "rows": Case(name="rows", n_rows=100_000_000, n_own=2, n_passive=10, model=MODEL),
    "higgs": Case(name="higgs", n_rows=11_000_000, n_own=14, n_passive=14, model=MODEL),
    "parties": Case(name="parties", n_rows=100_000, n_own=5, n_passive=5, n_parties=20, model=MODEL),
}
# As many as secure aggregation takes.
N_WORKERS = MAX_WORKERS
LEAST_ROWS, LEAST_WORKERS = 2000, 3


def main() -> None:
    """Run one case, or all."""
    parser = argparse.ArgumentParser(description="Run the largest cases.")
    parser.add_argument("--case", choices=[*CASES, "workers"], help="one case only")
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, or of the workers")
    parser.add_argument("--price", type=float, default=0.05, help="USD per core and hour")
    parser.add_argument("--processes", type=int, default=10, help="processes that hold the workers")
    options = parser.parse_args()
    for name in [options.case] if options.case else [*CASES, "workers"]:
        found = workers(options.scale, options.processes) if name == "workers" else vertical(CASES[name], options.scale)
        usd = round(options.price * found["cpu_seconds"] / 3600, 4)
        say(bench="headlines", case=name, scale=options.scale, **found, usd=usd, machine=machine())


def vertical(case: Case, scale: float) -> dict[str, Any]:
    """One run of all parties as processes of their own, released for the first time."""
    case = replace(case, n_rows=max(LEAST_ROWS, round(scale * case.n_rows)))
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as folder:
        parties = prepare(Path(folder), case, "prealigned")
        data = sum(one.stat().st_size for one in Path(folder).rglob("data.parquet"))
        found = run_once(parties, "headline", link="")
    passive = {name: [found[f"{name}_{party}"] for party in case.passive] for name in ("peak_mb", "cpu_seconds")}
    return {
        "rows": case.n_rows,
        "columns_a": case.n_own,
        "columns_b": case.n_passive,
        "parties_b": case.n_parties,
        "seconds": found["seconds"],
        "ready_seconds": found["ready_seconds"],
        "cpu_seconds": round(found["cpu_seconds_a"] + sum(passive["cpu_seconds"]), 1),
        "cpu_seconds_a": found["cpu_seconds_a"],
        "peak_mb_a": found["peak_mb_a"],
        "peak_mb_b": max(passive["peak_mb"]),
        "bytes": found["bytes"],
        "data_bytes": data,
    }


def workers(scale: float, n_processes: int) -> dict[str, Any]:
    """Owners of 1,000 rows each, of whom several share a process."""
    n_workers = max(LEAST_WORKERS, round(scale * N_WORKERS))
    found = horizontal.measure(n_workers, min(n_processes, n_workers))
    n_bytes = 1000 * n_workers * (found["kb_to_a_worker"] + found["kb_from_a_worker"])
    kept = ("workers", "processes", "rows_each", "trees", "rounds", "seconds", "from_start_s", "peak_mb_of_a_worker")
    return {name: found[name] for name in kept} | {"cpu_seconds": found["from_start_cpu_s"], "bytes": n_bytes}


if __name__ == "__main__":
    main()
