"""Every benchmark, one after the other: JSON lines in `bench/`, and one table of the ratios.

Each benchmark of `scripts/bench` prints JSON lines. This runs them all as often as asked for, keeps every line with the
machine, the versions and the load in `bench/<date>-<commit>.jsonl`, and prints the ratios (ours against XGBoost,
LightGBM, numpy and so on; below 1 ours is the faster or smaller one) with their medians and spreads.
`scripts/bench/compare.py` compares two such files.

    python scripts/bench/run.py [--repeats 1] [--only core,vertical] [--out FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from compare import describe, runs_by_line
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
NOT_BENCHMARKS = {"compare", "headlines", "measuring", "run", "slow_link"}
PACKAGES = ("numpy", "numba", "scipy", "pyzmq", "xgboost-cpu", "lightgbm", "scikit-learn", "opendp")


def main() -> int:
    """Run, keep, print; 1 if a benchmark failed."""
    arguments = _arguments()
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    lines, failed = [], []
    with arguments.out.open("a", encoding="utf-8") as out:
        for name in arguments.only:
            for repeat in range(arguments.repeats):
                print(f"{name}: run {repeat + 1} of {arguments.repeats}", file=sys.stderr, flush=True)
                for line in run(name):
                    if "failed" in line:
                        failed.append(name)
                    lines.append(line)
                    out.write(json.dumps({**line, "repeat": repeat, "machine": machine()}) + "\n")
                    out.flush()
    show(lines)
    print(f"kept in {arguments.out}", file=sys.stderr)
    return 1 if failed else 0


def run(name: str) -> Iterator[dict[str, Any]]:
    """The lines of one benchmark, as they come; a failure is a line, too."""
    process = subprocess.Popen([sys.executable, HERE / f"{name}.py"], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for text in process.stdout:
        if text.startswith("{"):
            yield json.loads(text)
    if process.wait():
        yield {"bench": name, "failed": process.returncode}


def machine() -> dict[str, Any]:
    """What the figures depend on, and how busy it is."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _processor(),
        "python": platform.python_version(),
        "load": round(os.getloadavg()[0], 2),
        "versions": versions,
    }


def show(lines: list[dict[str, Any]]) -> None:
    """One row per ratio: the median of its runs, and their spread."""
    table = Table(title="ratios (below 1: ours is faster or smaller)")
    for heading in ("case", "against", "median", "spread", "runs"):
        table.add_column(heading, justify="right" if heading in ("median", "spread", "runs") else "left")
    for of, figures in runs_by_line(line for line in lines if "median_of" not in line).items():
        for name, runs in figures.items():
            if "ratio" in name:
                against = name.removeprefix("ratio_vs_").replace("_", " ")
                spread = f"{min(runs):.3f}-{max(runs):.3f}" if len(runs) > 1 else ""
                table.add_row(describe(of), against, f"{statistics.median(runs):.3f}", spread, str(len(runs)))
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _arguments() -> argparse.Namespace:
    known = sorted(path.stem for path in HERE.glob("*.py"))
    names = [name for name in known if name not in NOT_BENCHMARKS]
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False, cwd=HERE
    )
    stamp = f"{time.strftime('%Y%m%dT%H%M%S')}-{commit.stdout.strip() or 'unknown'}"
    parser = argparse.ArgumentParser(description="Run every benchmark and print one table of ratios.")
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--only", type=lambda text: text.split(","), default=names, help=f"of {', '.join(names)}")
    parser.add_argument("--out", type=Path, default=HERE.parents[1] / "bench" / f"{stamp}.jsonl")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(names):
        parser.error(f"there is no benchmark {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return arguments


if __name__ == "__main__":
    sys.exit(main())
