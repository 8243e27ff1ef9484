"""What a tree costs a worker on one table, on partitions, and on Dask; one JSON line per kind and number of rows.

S-GBDT of depth 3 on 10 columns, questions and answers in one process, without channels. Every measurement is a process
of its own; `peak_mb` is of that process, or of the largest Dask worker. `load_s` has the start of a cluster in it,
`first_tree_s` that of compiled loops.

    python scripts/bench/worker_rows.py [--rows N] [--trees N]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import yaml
from measuring import peak_bytes, say

from opboost.rng import seeded
from parties.cluster.dask_cluster import cluster
from parties.cluster.rows import PartsOnDask
from parties.config.cluster_section import DaskSection
from parties.config.reading import read_schema
from parties.config.recipes import make_recipe
from parties.config.training_section import TrainingSection
from parties.horizontal.partition_files import part_files
from parties.horizontal.row_partitions import PartedRows, PartsHere
from parties.horizontal.row_table import OwnerRows

N_PARTS, N_COLUMNS = 8, 10


def main() -> None:
    """Measure a quarter of the rows and all of them."""
    parser = argparse.ArgumentParser(description="Measure what holds a worker's rows.")
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--trees", type=int, default=20)
    options = parser.parse_args()
    for n_rows in (options.rows // 4, options.rows):
        with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
            write(Path(name), n_rows)
            for kind in ("table", "partitions", "dask"):
                with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as alone:
                    found = alone.submit(measure, kind, Path(name), options.trees).result()
                say(bench="worker rows", kind=kind, rows=n_rows, **found)


def measure(kind: str, folder: Path, n_trees: int) -> dict[str, Any]:
    """Seconds and megabytes of one kind of holding the rows."""
    section: dict[str, Any] = {
        "epsilon": 2.0,
        "delta": 1e-6,
        "workers": 3,
        "threshold": 2,
        "honest": 2,
        "sgbdt": {"n_estimators": n_trees},
    }
    schema, ignore = read_schema(folder / "schema.yaml")
    recipe = make_recipe(TrainingSection.model_validate(section), schema)
    start = time.perf_counter()
    with cluster(DaskSection(workers=2)) if kind == "dask" else nullcontext() as client:
        files = part_files(folder / "parts", schema, ignore, n_classes=2)
        if kind == "table":
            rows = OwnerRows.of(folder / "all.parquet", schema, ignore)
            holder = recipe.rows(rows.values, rows.labels, rng=seeded(2))
        else:
            parts = (
                PartsHere(files, recipe, coins=None) if client is None else PartsOnDask(files, recipe, client=client)
            )
            parted = PartedRows(parts, n_bins=recipe.task.grid.axes.n_bins)
            holder = recipe.answering(parted, rng=seeded(2))
        loaded = time.perf_counter()
        times = Timed(holder)
        recipe.train(times, shape_bits=seeded(1), rng=seeded(3))
        peak = peak_bytes() if client is None else max(client.run(peak_bytes).values())
    return {
        "load_s": round(loaded - start, 1),
        "first_tree_s": round(times.answered[0] - loaded, 2),
        "tree_ms": round(1e3 * float(np.median(np.diff(times.answered))), 1),
        "peak_mb": round(peak / 1e6),
        "load": round(os.getloadavg()[0], 1),
    }


class Timed:
    """A holder, and when it answered."""

    def __init__(self, holder: Any) -> None:
        self._holder = holder
        self.answered: list[float] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._holder, name)

    def totals(self, nodes: Any) -> Any:
        found = self._holder.totals(nodes)
        self.answered.append(time.perf_counter())
        return found


def write(folder: Path, n_rows: int) -> None:
    """One table, and the same rows in partitions."""
    X = np.random.default_rng(0).random((n_rows, N_COLUMNS))
    frame = pd.DataFrame(X, columns=[f"c{column}" for column in range(N_COLUMNS)])
    frame = frame.assign(id=np.arange(n_rows), y=(X[:, 0] + X[:, 1] > 1).astype(int))
    frame.to_parquet(folder / "all.parquet")
    (folder / "parts").mkdir()
    size = -(-n_rows // N_PARTS)
    for number in range(N_PARTS):
        frame.iloc[number * size : (number + 1) * size].to_parquet(folder / "parts" / f"{number}.parquet")
    columns = {f"c{column}": {"lower": 0, "upper": 1} for column in range(N_COLUMNS)}
    (folder / "schema.yaml").write_text(yaml.safe_dump({"id": "id", "label": "y", "columns": columns}))


if __name__ == "__main__":
    main()
