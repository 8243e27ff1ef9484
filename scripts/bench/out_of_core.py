"""Time and memory of a table that does not fit into memory, on one machine; one JSON line per party.

A Parquet file of the given size is generated (4 GB for 50,000,000 rows of 10 columns). One process desensitizes and
ranks every column into files, another one grows trees on these; each tells its seconds and the peak of its memory,
imports included.

    python scripts/bench/out_of_core.py [--rows N] [--columns N] [--trees N]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import peak_bytes, say

# Rows per row group of the generated file.
GROUP_ROWS = 1 << 20


def main() -> None:
    """Generate, release, train; print what each took."""
    parser = argparse.ArgumentParser(description="Measure a release and a training out of core.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--trees", type=int, default=10)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        folder = Path(name)
        started = time.monotonic()
        generate(folder / "data.parquet", options.rows, options.columns)
        facts = {"bench": "out of core", "rows": options.rows, "columns": options.columns, "cores": os.cpu_count()}
        generated = round(time.monotonic() - started, 1)
        file_mb = round((folder / "data.parquet").stat().st_size / 1e6)
        say(**facts, step="generate", seconds=generated, file_mb=file_mb)
        say(**facts, **in_a_process(release, folder, options.columns))
        say(**facts, **in_a_process(train, folder, options.trees))


def generate(path: Path, n_rows: int, n_columns: int) -> None:
    """Normal columns."""
    with pq.ParquetWriter(path, pa.schema([(f"x{c}", pa.float64()) for c in range(n_columns)])) as writer:
        for group, start in enumerate(range(0, n_rows, GROUP_ROWS)):
            draw = np.random.default_rng(group)
            length = min(GROUP_ROWS, n_rows - start)
            writer.write_table(pa.table({f"x{c}": draw.standard_normal(length) for c in range(n_columns)}))


def in_a_process(step: Callable[[Path, int, Connection], None], folder: Path, number: int) -> dict[str, object]:
    """What a step tells of itself, in a process of its own."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=step, args=(folder, number, theirs))
    load = round(os.getloadavg()[0], 2)
    process.start()
    found: dict[str, object] = mine.recv()
    process.join()
    return {**found, "load": load}


def release(folder: Path, n_columns: int, pipe: Connection) -> None:
    """B: ranks of every column into files."""
    from opboost import rng
    from opboost.desensitize import ColumnMechanism
    from opboost.mechanism_settings import MechanismSettings
    from opboost.schema import ColumnSchema
    from parties.vertical.out_of_core import release_file

    settings = MechanismSettings(epsilon=0.1)
    schemas = [ColumnSchema(name=f"x{c}", lower=-4, upper=4) for c in range(n_columns)]
    started = time.monotonic()
    files = release_file(
        folder / "data.parquet", [ColumnMechanism(schema, settings) for schema in schemas], folder, rng=rng.secure()
    )
    (folder / "n_ranks.json").write_text(json.dumps([file.table.n_ranks for file in files]))
    pipe.send({"step": "release", **cost(started)})


def train(folder: Path, n_trees: int, pipe: Connection) -> None:
    """A: trees on the files of ranks; labels follow the first one."""
    from opboost.trees.boosting import BoostingParameters
    from opboost.trees.losses import Logistic
    from opboost.vertical import RankColumn
    from opboost.vertical import train as grow
    from parties.storage.mapped_ranks import MappedRanks

    n_ranks = json.loads((folder / "n_ranks.json").read_text())
    n_rows = (folder / "0.ranks").stat().st_size // 2
    started = time.monotonic()
    columns = [
        RankColumn("b", i, f"c{i}", MappedRanks(folder / f"{i}.ranks", np.dtype("<u2"), n_rows), n)
        for i, n in enumerate(n_ranks)
    ]
    labels = (columns[0].ranks[:] > n_ranks[0] // 2).astype(np.float64)
    parameters = BoostingParameters(n_estimators=n_trees, max_depth=6, max_bin=64)
    grow(columns, labels, np.ones(len(labels)), loss=Logistic(), parameters=parameters)
    pipe.send({"step": "train", "trees": n_trees, **cost(started)})


def cost(started: float) -> dict[str, float]:
    """Seconds, and the peak of this process; pages of mapped files count in it."""
    return {"seconds": round(time.monotonic() - started, 1), "peak_mb": round(peak_bytes() / 1e6)}


if __name__ == "__main__":
    main()
