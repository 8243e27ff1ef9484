"""The HTTP service under load: A with `opboost serve`, B with `party-b --serve`, and `hey` on one machine, JSON lines.

`hey` (Debian's package of that name) must be installed. Cases: single records at a steady rate, requests of many
records as fast as they are answered, and a long time of the first with the memory of both processes. The machine's
load average is printed beside each. The callers within one `hey` keep step, so that requests would come as many at once
as there are callers; a steady rate comes from as many processes of it, which do not.

    python scripts/bench/serve.py [--seconds 30] [--rate 200] [--batch 500] [--soak 600] [--columns] [--in-step]
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from measuring import free_ports, say
from predict import make_sites, run_all, start

# Columns of each party.
N_COLUMNS = 10

# Callers of single records, each with a connection of its own.
N_CALLERS = 8


def main() -> None:
    """Train, serve, load and print."""
    parser = argparse.ArgumentParser(description="Measure the HTTP service under load.")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--answers", choices=("tests", "cells"), default="tests")
    parser.add_argument("--seconds", type=int, default=30, help="of each case")
    parser.add_argument("--rate", type=int, default=200, help="requests of one record a second")
    parser.add_argument("--batch", type=int, default=500, help="records of a large request")
    parser.add_argument("--soak", type=int, default=0, help="seconds of single records with a look at memory")
    parser.add_argument("--in-step", action="store_true", help="all callers of single records come at once")
    parser.add_argument("--columns", action="store_true", help="requests bring A's columns, too")
    options = parser.parse_args()
    if shutil.which("hey") is None:
        raise SystemExit("the load generator `hey` is not installed")
    with tempfile.TemporaryDirectory() as folder:
        table = make_sites(
            Path(folder), columns=N_COLUMNS, trees=options.trees, depth=options.depth, answers=options.answers
        )
        run_all(start(folder, "bank", "party-a"), start(folder, "shop", "party-b"))
        with serving(Path(folder)) as (url, token, processes):
            load = Load(Path(folder) / "body.json", url, token, processes, in_step=options.in_step)
            one, many = (bodies(table, n, with_columns=options.columns) for n in (1, options.batch))
            facts = {"trees": options.trees, "depth": options.depth, "cores": os.cpu_count()}
            load.run(one, seconds=3, rate=options.rate)
            say(bench="serve", case="single", **load.run(one, seconds=options.seconds, rate=options.rate), **facts)
            found = load.run(many, seconds=options.seconds, callers=2)
            records = round(found["requests_per_second"] * options.batch)
            say(bench="serve", case="batched", batch=options.batch, **found, records_per_second=records, **facts)
            if options.soak:
                soak(load, one, options)


def bodies(table: pd.DataFrame, n_records: int, *, with_columns: bool) -> dict[str, Any]:
    """A request about the first records of the table."""
    mine = [name for name in table.columns if name.startswith("bank")]
    rows = table.head(n_records)
    own = rows[mine].to_dict("records")
    columns = [{"columns": cells} for cells in own] if with_columns else [{}] * len(rows)
    records = [{"id": record_id, **cells} for record_id, cells in zip(rows["id"], columns, strict=True)]
    return {"records": records}


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str, list[subprocess.Popen[str]]]]:
    """Both services; yields the address, a token and the processes."""
    token = secrets.token_urlsafe(32)
    home = folder / "bank"
    tokens = home / "tokens.txt"
    tokens.touch(0o600)
    tokens.write_text(f"bench {token}\n")
    run = yaml.safe_load((home / "run.yaml").read_text())
    place = f"127.0.0.1:{free_ports(1)[0]}"
    run["http"] = {"listen": place, "tokens": "tokens.txt"}
    (home / "run.yaml").write_text(yaml.safe_dump(run))
    processes = [start(str(folder), "shop", "party-b", "--serve"), start(str(folder), "bank", "serve")]
    try:
        deadline = time.monotonic() + 60
        while not is_ready(f"http://{place}/ready"):
            if time.monotonic() > deadline:
                raise SystemExit("the service was not ready within 60 s")
            time.sleep(0.1)
        yield f"http://{place}/v1/scores", token, processes
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        run_all(*processes)


def is_ready(url: str) -> bool:
    """Whether the service would score a request."""
    with suppress(OSError), urllib.request.urlopen(url, timeout=1) as answer:
        return bool(answer.status == 200)
    return False


class Load:
    """Runs the load generator."""

    def __init__(
        self, body: Path, url: str, token: str, processes: list[subprocess.Popen[str]], *, in_step: bool = False
    ) -> None:
        self._body, self._url, self._token, self._in_step = body, url, token, in_step
        self.processes = processes

    def run(self, body: dict[str, Any], *, seconds: int, rate: int = 0, callers: int = N_CALLERS) -> dict[str, float]:
        """Latencies and rates; `rate` requests a second, or as many as are answered."""
        self._body.write_text(json.dumps(body))
        n_processes = callers if rate and not self._in_step else 1
        limit = ["-q", str(rate / callers)] if rate else []
        headers = ["-T", "application/json", "-H", f"Authorization: Bearer {self._token}"]
        call = ["hey", "-z", f"{seconds}s", "-c", str(callers // n_processes), *limit, "-m", "POST", *headers]
        call += ["-D", str(self._body), "-o", "csv", self._url]
        cpu = [cpu_seconds(process.pid) for process in self.processes]
        started = []
        for _ in range(n_processes):
            started.append(subprocess.Popen(call, stdout=subprocess.PIPE, text=True))
            time.sleep(1 / rate if rate else 0)
        found = [row for one in started for row in csv.DictReader(io.StringIO(one.communicate()[0]))]
        b, a = (cpu_seconds(p.pid) - before for p, before in zip(self.processes, cpu, strict=True))
        taken = np.array([float(row["response-time"]) for row in found]) * 1000
        p50, p99 = np.percentile(taken, [50, 99])
        return {
            "requests": len(found),
            "failed": sum(row["status-code"] != "200" for row in found),
            "requests_per_second": round(len(found) / seconds, 1),
            "p50_ms": round(float(p50), 2),
            "p99_ms": round(float(p99), 2),
            "most_ms": round(float(taken.max()), 1),
            "cpu_of_a": round(a / seconds, 3),
            "cpu_of_b": round(b / seconds, 3),
            "cpu_ms_per_request": round(1000 * (a + b) / len(found), 2),
            "load_average": round(os.getloadavg()[0], 1),
        }


def soak(load: Load, body: dict[str, Any], options: argparse.Namespace) -> None:
    """Single records for long, with the memory of both processes every tenth of the time."""
    for part in range(10):
        found = load.run(body, seconds=options.soak // 10, rate=options.rate)
        b, a = (resident_mb(process.pid) for process in load.processes)
        say(bench="serve", case="soak", part=part + 1, a_mb=a, b_mb=b, **found)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far (Linux)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident_mb(pid: int) -> float:
    """Resident memory of a process (Linux)."""
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(status.partition("VmRSS:")[2].split()[0]) / 1024, 1)


if __name__ == "__main__":
    main()
