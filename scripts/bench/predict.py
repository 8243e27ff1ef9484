"""Latency of joint prediction against a serving B: two processes over ZeroMQ with CURVE on loopback, JSON lines.

A small model is trained by `opboost party-a` and `party-b` on files that are made for it, `--columns` of each party.
Then B serves (`party-b --serve`), and A, this process, asks over one open connection. A request takes from A's ids and
own columns in memory to its scores; with desensitized records that includes the ledger and the store on disk. XGBoost,
with the same number of trees of the same depth on all columns in one process, predicts the same records beside it.

    python scripts/bench/predict.py [--answers cells] [--columns 10] [--trees 100] [--depth 6] [--requests 500]
        [--large-requests 40]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xgboost
import yaml
from measuring import free_ports, say

from opboost.split_tests import n_answer_bits
from parties.config.reading import read_run, read_schema
from parties.config.vertical import ActiveRun
from parties.jobs.life_cycle import Terminal, logged
from parties.runs.run_folder import RunFolder
from parties.session.connections import open_connections
from parties.tables.party_table import own_columns, read_table
from parties.vertical.prediction_client import Session, session
from protocols.messages.prediction import RecordStatus
from protocols.transport.channel import Channel
from protocols.transport.keys import generate

N_ROWS, LARGE = 20_000, 10_000
PARTIES = ("bank", "shop")


def main() -> None:
    """Train, serve, measure and print."""
    parser = argparse.ArgumentParser(description="Measure joint prediction against a serving passive party.")
    parser.add_argument("--answers", choices=("tests", "cells"), default="tests")
    parser.add_argument("--columns", type=int, default=10, help="columns of each party")
    parser.add_argument("--trees", type=int, default=100)
    parser.add_argument("--depth", type=int, default=6)
    parser.add_argument("--requests", type=int, default=500, help="requests of one record")
    parser.add_argument("--large-requests", type=int, default=40, help="requests of 10,000 records")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = make_sites(
            Path(folder), columns=options.columns, trees=options.trees, depth=options.depth, answers=options.answers
        )
        run_all(start(folder, "bank", "party-a"), start(folder, "shop", "party-b"))
        b = start(folder, "shop", "party-b", "--serve")
        try:
            measure(Path(folder), table, options)
        finally:
            b.send_signal(signal.SIGTERM)
            run_all(b)


def make_sites(folder: Path, *, columns: int, trees: int, depth: int, answers: str) -> pd.DataFrame:
    """Both parties' files; returns all columns, with the ids and labels."""
    draw = np.random.default_rng(1)
    values = draw.uniform(0, 100, (N_ROWS, 2 * columns)).round(4)
    score = values @ draw.normal(0, 1, 2 * columns) / 100 + np.sin(values[:, 0] / 9) + (values[:, -1] > 60)
    names = [f"{party}{i}" for party in PARTIES for i in range(columns)]
    table = pd.DataFrame(values, columns=names)
    table.insert(0, "id", [f"customer-{i:08}" for i in range(N_ROWS)])
    table["y"] = (score + draw.normal(0, 0.5, N_ROWS) > np.median(score)).astype(int)
    address = f"tcp://127.0.0.1:{free_ports(1)[0]}"
    for party, peer in (PARTIES, PARTIES[::-1]):
        home = folder / party
        generate(home / "keys", party)
        mine = [name for name in names if name.startswith(party)]
        schema: dict[str, Any] = {"id": "id", "columns": {name: {"lower": 0, "upper": 100} for name in mine}}
        run: dict[str, Any] = {
            "party": party,
            "run_id": "bench",
            "data": "data.csv",
            "schema": "schema.yaml",
            "align": {"method": "prealigned"},
            "held_out": 0,
            "secret_key": f"keys/{party}.secret",
            "answers": answers,
        }
        known = {"name": peer, "public_key": f"../{peer}/keys/{peer}.public"}
        if party == "bank":
            schema["label"] = "y"
            model = {"n_estimators": trees, "max_depth": depth}
            run |= {"role": "active", "listen": address, "passive": [known], "model": model}
        else:
            run |= {"role": "passive", "connect": address, "active": known, "desensitize": {"epsilon": 0.5}}
            # The records that are asked for are those of training.
            run["allow_routed"] = {"training_records": True}
        table[["id", *mine, *(["y"] if party == "bank" else [])]].to_csv(home / "data.csv", index=False)
        (home / "schema.yaml").write_text(yaml.safe_dump(schema, sort_keys=False))
        (home / "run.yaml").write_text(yaml.safe_dump(run))
    return table


def start(folder: str, party: str, command: str, *options: str) -> subprocess.Popen[str]:
    """A party's command as a process."""
    call = [sys.executable, "-m", "parties.cli", command, str(Path(folder) / party / "run.yaml"), *options]
    return subprocess.Popen(call, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def run_all(*processes: subprocess.Popen[str]) -> None:
    """Wait for processes, none of which may fail."""
    for process in processes:
        _, said = process.communicate(timeout=300)
        if process.returncode:
            raise SystemExit(said)


def measure(folder: Path, table: pd.DataFrame, options: argparse.Namespace) -> None:
    """Ask the serving party, and XGBoost, for the same records."""
    run = read_run(folder / "bank" / "run.yaml", ActiveRun)
    runs = RunFolder(run.run_folder)
    model, schema = runs.load_joint_model(), read_schema(run.table_schema)[0]
    mine = read_table(run.data, schema, needs_label=False)
    own = {column.name: column.values for column in own_columns(mine, schema)}
    with logged(runs, Terminal()) as log, open_connections(run, False) as open_channels:
        channels = list(open_channels(log).values())
        with session(model, channels, party=run.party, run_id=run.run_id) as asking:
            bits = n_answer_bits(model.ensemble, "shop")
            facts = {
                "trees": options.trees,
                "depth": options.depth,
                "bits_per_record": bits,
                "cores": os.cpu_count(),
                "answers": options.answers,
            }
            ask = Asker(asking, channels[0], list(mine.ids), own, desensitized=False)
            booster, columns = reference(table, options)
            for n_rows, n_requests in ((1, options.requests), (LARGE, options.large_requests)):
                found = ask.measure(n_rows, n_requests)
                # One record is not worth a second thread.
                booster.set_param({"nthread": 1 if n_rows == 1 else os.cpu_count()})
                alone = latencies(
                    lambda first, n=n_rows: booster.inplace_predict(columns[first : first + n]), n_rows, n_requests
                )
                beside = {f"xgboost_{name}": alone[name] for name in ("p50_ms", "p99_ms", "cpu_ms")}
                ratio = round(found["p50_ms"] / alone["p50_ms"], 2)
                say(bench="predict", case="routed", batch=n_rows, **found, **facts, **beside, ratio_vs_xgboost=ratio)
            drawn = Asker(asking, channels[0], list(mine.ids), own, desensitized=True)
            n_requests = min(200, options.requests)
            say(bench="predict", case="desensitized, drawn", batch=1, **drawn.measure(1, n_requests, n_warm=0), **facts)
            say(
                bench="predict",
                case="desensitized, drawn before",
                batch=1,
                **drawn.measure(1, n_requests, n_warm=0),
                **facts,
            )


class Asker:
    """Asks for records from the first on, and notes time and bytes."""

    def __init__(
        self, asking: Session, channel: Channel, ids: list[str], own: dict[str, np.ndarray], *, desensitized: bool
    ) -> None:
        self._asking, self._channel, self._ids, self._own = asking, channel, ids, own
        self._desensitized = desensitized

    def __call__(self, first: int, n_rows: int) -> None:
        rows = slice(first, first + n_rows)
        own = {name: values[rows] for name, values in self._own.items()}
        _, status = self._asking.predict(self._ids[rows], own, desensitized=self._desensitized)
        if (status != RecordStatus.ANSWERED).any():
            raise SystemExit("some records were not answered")

    def measure(self, n_rows: int, n_requests: int, *, n_warm: int = 5) -> dict[str, float]:
        """Latencies, and bytes per record in both directions."""
        for _ in range(n_warm):
            self(0, n_rows)
        before = self._bytes()
        found = latencies(lambda first: self(first, n_rows), n_rows, n_requests)
        return {**found, "bytes_per_record": round((self._bytes() - before) / (n_rows * n_requests), 1)}

    def _bytes(self) -> int:
        return self._channel.traffic.sent_bytes + self._channel.traffic.received_bytes


def reference(table: pd.DataFrame, options: argparse.Namespace) -> tuple[xgboost.Booster, np.ndarray]:
    """XGBoost trained on all columns in the clear, and these columns."""
    columns = table.drop(columns=["id", "y"]).to_numpy()
    booster = xgboost.train(
        {"objective": "binary:logistic", "max_depth": options.depth, "tree_method": "hist"},
        xgboost.DMatrix(columns, table["y"]),
        options.trees,
    )
    return booster, columns


def latencies(request: Callable[[int], object], n_rows: int, n_requests: int) -> dict[str, float]:
    """Median and 99th percentile in milliseconds, records per second, and this process's own mean of CPU time."""
    taken: list[float] = []
    cpu_before = time.process_time()
    for i in range(n_requests):
        first = i * n_rows % (N_ROWS - n_rows + 1)
        started = time.perf_counter()
        request(first)
        taken.append(time.perf_counter() - started)
    cpu_ms = 1000 * (time.process_time() - cpu_before) / n_requests
    return {
        **percentiles(taken),
        "cpu_ms": round(cpu_ms, 3),
        "records_per_second": round(n_rows * n_requests / sum(taken)),
    }


def percentiles(seconds: Sequence[float]) -> dict[str, float]:
    """Of a list of durations, in milliseconds."""
    p50, p99 = np.percentile(seconds, [50, 99]) * 1000
    return {"p50_ms": round(float(p50), 3), "p99_ms": round(float(p99), 3)}


if __name__ == "__main__":
    main()
