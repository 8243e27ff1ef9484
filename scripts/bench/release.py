"""What a passive party's release costs until the offer: a first run, a second one on the same data, a grown table.

Every run is a process of its own, which reads and encodes the table, releases it on the ledger, and ranks it. A JSON
line each: seconds and those of the processor, growth of the process's memory, cells charged; then bytes of the stored
cells beside the records' names.

    python scripts/bench/release.py [--rows N] [--columns N]
"""

from __future__ import annotations

import argparse
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import peak_bytes, say

from opboost import rng
from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, TableSchema
from parties.jobs.warm_up import warm_drawing
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.storage.spool import ArraySpool
from parties.tables.blocks import encode_table
from parties.tables.party_table import read_table
from parties.vertical.release_offer import ReleasedTable, rank_columns


def main() -> None:
    """Run the three releases, each in a process of its own."""
    parser = argparse.ArgumentParser(description="Measure a passive party's release on its ledger.")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=40)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--run")
    options = parser.parse_args()
    if options.folder is not None:
        release(options.folder, options.run, options.columns)
        return
    with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
        folder = Path(name)
        generate(folder / "data.parquet", options.rows, options.columns)
        generate(folder / "grown.parquet", options.rows + options.rows // 100, options.columns)
        call = [sys.executable, __file__, "--columns", str(options.columns), "--folder", name, "--run"]
        for run in ("first", "second", "grown"):
            subprocess.run([*call, run], check=True)
            if run == "first":
                report_store(folder / "ledger.sqlite", options.rows * options.columns)


def release(folder: Path, run: str, n_columns: int) -> None:
    """One run until the offer could be sent."""
    schema = TableSchema(id="id", columns=[ColumnSchema(name=f"x{c}", lower=-4, upper=4) for c in range(n_columns)])
    mechanisms = tuple(ColumnMechanism(column, MechanismSettings(epsilon=0.1)) for column in schema.columns)
    data = folder / ("grown.parquet" if run == "grown" else "data.parquet")
    warm_drawing(mechanisms)
    start, start_cpu = time.perf_counter(), time.process_time()
    table = read_table(data, schema, needs_label=False, by_column=True, cache=folder / "encoded")
    before = peak_bytes(reset=True)
    with closing(ArraySpool()) as spool, Ledger(folder / "ledger.sqlite") as ledger:
        occasion = Occasion(run_id=run, task="train", peer="a")
        account = Account(ledger=ledger, budget=Budget(), occasion=occasion, rng=rng.secure())
        encoded = encode_table(table.features, mechanisms, spool)
        encoded.named(table.ids)
        encoded_s = time.perf_counter() - start
        cells = account.release(mechanisms, encoded.blocks)
        released_s = time.perf_counter() - start - encoded_s
        columns = list(rank_columns(ReleasedTable(mechanisms, encoded.blocks)))
    say(
        run=run,
        rows=table.n_rows,
        columns=len(columns),
        seconds=round(time.perf_counter() - start, 2),
        cpu_s=round(time.process_time() - start_cpu, 2),
        encode_s=round(encoded_s, 2),
        release_s=round(released_s, 2),
        grown_mb=round((peak_bytes() - before) / 1e6),
        cells_charged=sum(one.n_new for one in cells),
    )


def report_store(path: Path, n_cells: int) -> None:
    """Bytes of released and exact codes, and of everything, by cell."""
    with closing(sqlite3.connect(path)) as database:
        names = "SELECT COALESCE(SUM(length), 0) FROM name_sets"
        (n_names,) = database.execute(names).fetchone()
        (n_bytes,) = database.execute("SELECT SUM(LENGTH(content)) FROM pieces").fetchone()
    say(
        cells=n_cells,
        bytes_per_cell_beside_ids=round((n_bytes - 16 * n_names) / n_cells, 3),
        file_bytes_per_cell_beside_ids=round((path.stat().st_size - 24 * n_names) / n_cells, 3),
    )


def generate(path: Path, n_rows: int, n_columns: int) -> None:
    """Normal columns whose first rows are those of every other table."""
    drawn = (np.random.default_rng(c).standard_normal(n_rows).clip(-4, 4) for c in range(n_columns))
    columns = {"id": np.arange(n_rows), **{f"x{c}": column for c, column in enumerate(drawn)}}
    pq.write_table(pa.table(columns), path, row_group_size=1 << 16)


if __name__ == "__main__":
    main()
