"""Time, bytes and memory of whole vertical runs: two processes over ZeroMQ with CURVE, one JSON line per run.

Each party's table is generated as Parquet beforehand and its records are aligned already (`--align psi` finds them in
the run; `alignment.py` tells what that costs by itself). The parties are what users start: `opboost party-a` and
`opboost party-b`, each from a folder of its own. Seconds count from the start of both processes to the end of the later
one; `ready_seconds` from the moment that both are there, A's log says when. Memory is each process's peak, imports
included; `growth_mb` leaves out the peak of the same run on 2,000 rows. `ratio_vs_packed_ranks` compares the bytes of
both sides with the ranks alone, in the smallest type that holds them; `ratio_vs_loopback_copy` the seconds until all
ranks are there with those of a plain copy of as many bytes; `ratio_vs_xgboost` the whole run with XGBoost, which reads
and trains in one process on the raw columns of both parties.

    python scripts/bench/vertical.py [--case NAME] [--rows N] [--repeat N] [--link MBIT:MS] [--align psi] [--plain]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from measuring import free_ports, say

from protocols.transport.keys import generate

# Rows per row group of the generated files.
GROUP_ROWS = 1 << 18

# Rows of the run whose peak stands for imports and compiled loops.
BASE_ROWS = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One run: how much data, and how it is trained on."""

    name: str
    n_rows: int
    n_own: int
    n_passive: int
    model: dict[str, Any]
    repeat: int = 3
    n_parties: int = 1

    @property
    def passive(self) -> list[str]:
        """Names of the passive parties, each of which has `n_passive` columns."""
        return ["b", *(f"b{i}" for i in range(1, self.n_parties))]


CASES = (
    Case(
        name="small",
        n_rows=20_000,
        n_own=10,
        n_passive=10,
        repeat=5,
        model={"n_estimators": 10, "max_depth": 5, "max_bin": 32},
    ),
    Case(name="bank", n_rows=45_000, n_own=8, n_passive=8, model={"n_estimators": 100, "max_depth": 6}),
    Case(name="million", n_rows=1_000_000, n_own=10, n_passive=40, model={"n_estimators": 100, "max_depth": 6}),
)


def main() -> None:
    """Measure the chosen cases; by default all."""
    parser = argparse.ArgumentParser(description="Measure whole vertical training runs.")
    parser.add_argument("--case", choices=[case.name for case in CASES], help="one case only")
    parser.add_argument("--rows", type=int, help="another number of rows")
    parser.add_argument("--repeat", type=int, help="runs per case")
    parser.add_argument("--link", default="", metavar="MBIT:MS", help="a slow link, such as 100:10")
    parser.add_argument("--align", default="prealigned", choices=["prealigned", "psi", "hashed"])
    parser.add_argument("--plain", action="store_true", help="leave XGBoost out")
    options = parser.parse_args()
    for case in CASES:
        if options.case in (None, case.name):
            chosen = replace(case, n_rows=options.rows or case.n_rows, repeat=options.repeat or case.repeat)
            measure(chosen, link=options.link, align=options.align, is_plain=options.plain)


def measure(case: Case, *, link: str, align: str, is_plain: bool) -> None:
    """Run a case as often as it says, and XGBoost beside it; print a line per run and one of medians."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        root = Path(name)
        small = prepare(root / "base", replace(case, n_rows=BASE_ROWS), align)
        base = [run_once(small, f"warm{i}", link="") for i in range(2)][-1]
        folders = prepare(root / "data", case, align)
        runs = []
        for i in range(case.repeat):
            result = run_once(folders, f"run{i}", link=link)
            for party in ("a", "b"):
                result[f"growth_mb_{party}"] = round(result[f"peak_mb_{party}"] - base[f"peak_mb_{party}"], 1)
            if not is_plain:
                result |= xgboost_beside(folders, case)
                plain = result["xgboost_read_seconds"] + result["xgboost_seconds"]
                result["ratio_vs_xgboost"] = round(result["seconds"] / plain, 3)
            runs.append(result)
            tell(case, link, align, result)
        if len(runs) > 1:
            medians = {key: round(statistics.median(run[key] for run in runs), 3) for key in runs[0]}
            tell(case, link, align, {"median_of": len(runs), **medians})


def prepare(root: Path, case: Case, align: str) -> dict[str, Path]:
    """Both parties' folders with tables, keys and schemas."""
    folders = {party: root / party for party in ("a", *case.passive)}
    for party, folder in folders.items():
        folder.mkdir(parents=True)
        generate(folder, party)
    for party in folders:
        for peer in case.passive if party == "a" else ["a"]:
            (folders[party] / f"{peer}.public").write_bytes((folders[peer] / f"{peer}.public").read_bytes())
        names = columns_of(party, case)
        schema: dict[str, Any] = {"id": "id", "columns": {name: {"lower": -4, "upper": 4} for name in names}}
        if party == "a":
            schema["label"] = "y"
        (folders[party] / "schema.yaml").write_text(yaml.safe_dump(schema))
        write_table(folders[party] / "data.parquet", case, party)
    for party in folders:
        (folders[party] / "run.json").write_text(json.dumps(run_file(party, case, align)))
    return folders


def run_file(party: str, case: Case, align: str) -> dict[str, Any]:
    """A party's run file but for the run and the address."""
    common = {
        "party": party,
        "data": "data.parquet",
        "schema": "schema.yaml",
        "secret_key": f"{party}.secret",
        "align": {"method": align},
        # XGBoost beside it trains on all records.
        "held_out": 0,
        "timeout": 30,
        # The larger tables are read for minutes before their owner connects.
        "wait": 900,
        "report": False,
    }
    if party == "a":
        # More than a thousand columns are taken only where their number was agreed on.
        agreed = {"columns": case.n_passive}
        passive = [{"name": name, "public_key": f"{name}.public", "agreed": agreed} for name in case.passive]
        return {**common, "role": "active", "passive": passive, "model": case.model}
    return {
        **common,
        "role": "passive",
        "active": {"name": "a", "public_key": "a.public"},
        "desensitize": {"epsilon": 0.1},
    }


def columns_of(party: str, case: Case) -> list[str]:
    """Names of a party's columns."""
    return [f"{party}_{i}" for i in range(case.n_own if party == "a" else case.n_passive)]


def write_table(path: Path, case: Case, party: str) -> None:
    """Normal columns, one group of rows at a time; labels depend on the first two columns of `a` and of `b`."""
    names = columns_of(party, case)
    writer = None
    for group, start in enumerate(range(0, case.n_rows, GROUP_ROWS)):
        n_rows = min(GROUP_ROWS, case.n_rows - start)
        drawn = {owner: np.random.default_rng([group, i]) for i, owner in enumerate(["a", "b", "y", *case.passive[1:]])}
        leading = {owner: drawn[owner].normal(size=(n_rows, 2)) for owner in "ab"}
        columns: dict[str, Any] = {"id": np.arange(start, start + n_rows)}
        for i, name in enumerate(names):
            is_leading = i < 2 and party in leading
            columns[name] = (leading[party][:, i] if is_leading else drawn[party].normal(size=n_rows)).round(4)
        if party == "a":
            score = leading["a"].sum(axis=1) + leading["b"][:, 0] * leading["b"][:, 1] + leading["b"][:, 0]
            columns["y"] = (score + drawn["y"].normal(size=n_rows) > 0).astype(np.int8)
        table = pa.table(columns)
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    assert writer is not None
    writer.close()


def run_once(folders: dict[str, Path], run_id: str, *, link: str) -> dict[str, Any]:
    """One run of both parties, from the start of the processes to the end of the later one."""
    ports = free_ports(2)
    at_a, at_b = ports[0], ports[1] if link else ports[0]
    relay = start_link(link, at_b, at_a) if link else None
    for party, folder in folders.items():
        document = json.loads((folder / "run.json").read_text())
        document |= {"run_id": run_id, "listen" if party == "a" else "connect": address(at_a if party == "a" else at_b)}
        if party != "a":
            document["ledger"] = {"path": f"{run_id}.sqlite"}
        (folder / "run.yaml").write_text(yaml.safe_dump(document))
    load = os.getloadavg()[0]
    started = time.monotonic()
    processes = {
        party: subprocess.Popen(
            [sys.executable, "-m", "parties.cli", f"party-{party[0]}", str(folder / "run.yaml")],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        for party, folder in folders.items()
    }
    found = {
        "load": round(load, 2),
        **{key: value for party in processes for key, value in ended(party, processes[party])},
    }
    found["seconds"] = round(time.monotonic() - started, 3)
    if relay is not None:
        relay.terminate()
        relay.wait()
    return found | from_logs(folders, run_id)


def environment() -> dict[str, str]:
    """A party's environment: Python keeps compiled modules in it, as it does for users, and later starts find them."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def ended(party: str, process: subprocess.Popen[str]) -> Iterator[tuple[str, float]]:
    """What the kernel says of a party's process when it is over."""
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise SystemExit(f"party {party} failed: {errors}")
    yield f"peak_mb_{party}", round(usage.ru_maxrss * 1024 / 1e6, 1)
    yield f"cpu_seconds_{party}", round(usage.ru_utime + usage.ru_stime, 2)


def from_logs(folders: dict[str, Path], run_id: str) -> dict[str, float]:
    """Bytes and times as the parties' own logs have them."""
    lines = [json.loads(line) for line in (folders["a"] / "runs" / run_id / "log.jsonl").read_text().splitlines()]
    passive = [folder for party, folder in folders.items() if party != "a"]
    logs = [(folder / "runs" / run_id / "log.jsonl").read_text().splitlines() for folder in passive]
    of_b = sorted((json.loads(line) for log in logs for line in log), key=lambda line: line["time"])
    times = {
        word: moment(lines, *word.split(" ", 1)) for word in ("received hello", "received offer", "sent split ranks")
    }
    ready, offered, grown = times.values()
    chunks = [line for line in lines if line["event"] == "received" and line["kind"] == "rank chunk"]
    collected = datetime.fromisoformat(chunks[-1]["time"]).timestamp()
    end = max(datetime.fromisoformat(lines_of_party[-1]["time"]).timestamp() for lines_of_party in (lines, of_b))
    sent = sum(line["bytes"] for line in of_b if line["event"] == "sent")
    both = sent + sum(line["bytes"] for line in lines if line["event"] == "sent")
    document = json.loads((folders["b"] / "runs" / run_id / "meta.json").read_text())
    # Every generated column has more than 256 ranks and fewer than 65,536.
    schemas = [yaml.safe_load((folder / "schema.yaml").read_text()) for folder in passive]
    packed = 2 * document["n_rows"] * sum(len(schema["columns"]) for schema in schemas)
    return {
        "ready_seconds": round(end - ready, 3),
        "until_offer": round(offered - ready, 3),
        "until_ranks": round(collected - ready, 3),
        "until_trees": round(grown - ready, 3),
        "bytes": both,
        "ratio_vs_packed_ranks": round(both / packed, 4),
        "ratio_vs_loopback_copy": round((collected - ready) / loopback_copy_seconds(both), 2),
    }


def loopback_copy_seconds(n_bytes: int) -> float:
    """How long so many bytes take through a plain socket to a thread that throws them away."""
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as other,
        socket.create_connection(server.getsockname()) as line,
    ):
        there, _ = server.accept()
        started = time.perf_counter()
        drained = other.submit(_drain, there, n_bytes)
        line.sendall(bytes(n_bytes))
        drained.result()
        return time.perf_counter() - started


def _drain(line: socket.socket, n_bytes: int) -> None:
    with line:
        while n_bytes > 0 and (read := len(line.recv(1 << 20))):
            n_bytes -= read


def moment(lines: list[dict[str, Any]], event: str, kind: str) -> float:
    """When a message first passed, by a party's log."""
    line = next(line for line in lines if line["event"] == event and line["kind"] == kind)
    return datetime.fromisoformat(line["time"]).timestamp()


def start_link(link: str, listen: int, target: int) -> subprocess.Popen[bytes]:
    """A process between both parties that lets bytes through as a slow link would."""
    mbit, delay_ms = link.split(":")
    script = Path(__file__).with_name("slow_link.py")
    call = [sys.executable, str(script), str(listen), str(target), "--mbit", mbit, "--delay-ms", delay_ms]
    return subprocess.Popen(call)


def xgboost_beside(folders: dict[str, Path], case: Case) -> dict[str, float]:
    """XGBoost on the raw columns of both, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    started = time.monotonic()
    process = context.Process(target=plain_xgboost, args=(folders, case.model, theirs))
    process.start()
    found: dict[str, float] = mine.recv()
    process.join()
    return {**found, "xgboost_process_seconds": round(time.monotonic() - started, 3)}


def plain_xgboost(folders: dict[str, Path], model: dict[str, Any], pipe: Connection) -> None:
    """Read both tables, quantise, train; tell how long these took, and the area under the curve."""
    import pandas as pd
    import xgboost

    started = time.monotonic()
    tables = [pd.read_parquet(folder / "data.parquet").drop(columns="id") for folder in folders.values()]
    rows = pd.concat(tables, axis=1)
    labels = rows.pop("y")
    read = time.monotonic()
    matrix = xgboost.QuantileDMatrix(rows, labels, max_bin=model.get("max_bin", 256))
    settings = {"objective": "binary:logistic", "tree_method": "hist", "eta": 0.3, "max_depth": model["max_depth"]}
    xgboost.train(settings | {"max_bin": model.get("max_bin", 256)}, matrix, num_boost_round=model["n_estimators"])
    done = time.monotonic()
    pipe.send({"xgboost_read_seconds": round(read - started, 3), "xgboost_seconds": round(done - read, 3)})


def address(port: int) -> str:
    """A port on loopback."""
    return f"tcp://127.0.0.1:{port}"


def tell(case: Case, link: str, align: str, found: dict[str, Any]) -> None:
    """Print one JSON line."""
    facts = {"bench": "vertical", "case": case.name, "rows": case.n_rows, "columns_a": case.n_own}
    more = {"columns_b": case.n_passive, "align": align, "link": link or "loopback", "cores": os.cpu_count()}
    say(**facts, **more, **found)


if __name__ == "__main__":
    main()
