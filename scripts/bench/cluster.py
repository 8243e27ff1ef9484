"""What a release, a training and a prediction on Dask cost per value; one JSON line per size and step, then slopes.

Two tables of different length are released, trained on, answered for and scored by a local cluster, after a small one
that starts workers and compiled loops. The slope between them leaves out what does not grow with the rows. Seconds are
CPU seconds of all workers together, which other programs on the machine do not lengthen much; those of `pack_s` are the
driver's, which reads all ranks for their digests before they are sent.

    python scripts/bench/cluster.py [--rows N] [--columns N] [--trees N] [--workers N]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from measuring import peak_bytes, say

from opboost import rng
from opboost.desensitize import ColumnMechanism, exact
from opboost.mechanism_settings import MechanismSettings
from opboost.routing import PackedAnswers, Router, resolve
from opboost.schema import ColumnSchema, TableSchema
from opboost.split_tests import bind, list_tests
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Logistic
from parties.cluster.dask_cluster import cluster
from parties.cluster.file_blocks import encode_partitions, on_cluster
from parties.cluster.partitions import validate_partitions
from parties.cluster.prediction import score_part, write_bits
from parties.cluster.training import train_on_partitions
from parties.cluster.training_partitions import OwnPartitions, RankPartitions
from parties.config.cluster_section import DaskSection
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.tables.data_files import stamp_of
from parties.vertical.release_offer import OfferedRanks, ReleasedTable, rank_columns

N_PARTS = 8
OWN = (ColumnSchema(name="own", lower=0, upper=1),)


def main() -> None:
    """Measure a quarter of the rows, all of them, and print the slopes."""
    parser = argparse.ArgumentParser(description="Measure releases, training and prediction on a local Dask cluster.")
    parser.add_argument("--rows", type=int, default=1_600_000)
    parser.add_argument("--columns", type=int, default=10)
    parser.add_argument("--trees", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    measured = []
    with cluster(DaskSection(workers=options.workers)) as client:
        for n_rows in (20_000, options.rows // 4, options.rows):
            with tempfile.TemporaryDirectory(dir=os.environ.get("BENCH_FOLDER")) as name:
                found = measure(Path(name), n_rows, options.columns, options.trees, client)
            peaks = client.run(peak_bytes)
            say(bench="dask", rows=n_rows, **found, peak_mb_per_worker=round(max(peaks.values()) / 1e6))
            measured.append((n_rows, found))
    (few, before), (many, after) = measured[1:]
    for step in ("ids_s", "pack_s"):
        ns = (after[step] - before[step]) / (many - few) / (options.columns if step == "pack_s" else 1) * 1e9
        say(bench="dask", step=step, **{f"cpu_ns_per_{'value' if step == 'pack_s' else 'row'}": round(ns, 2)})
    values = (many - few) * options.columns
    for step in ("look_s", "release_s", "train_s", "answer_s", "predict_s"):
        # The look at the values reads the ids too.
        grown = [one[step] - (one["ids_s"] if step == "look_s" else 0.0) for one in (before, after)]
        ns = (grown[1] - grown[0]) / values * 1e9 / (options.trees if step == "train_s" else 1)
        say(bench="dask", step=step, cpu_ns_per_value=round(ns, 2))


def measure(folder: Path, n_rows: int, n_columns: int, n_trees: int, client: Any) -> dict[str, float]:
    """Seconds of every step, and bytes of what it leaves."""
    parts = [generate(folder / f"{p}.parquet", p, n_rows // N_PARTS, n_columns) for p in range(N_PARTS)]
    settings = MechanismSettings(epsilon=0.1)
    mechanisms = [
        ColumnMechanism(ColumnSchema(name=f"x{c}", lower=-4, upper=4, outside="clip"), settings)
        for c in range(n_columns)
    ]
    schema = TableSchema(columns=tuple(mechanism.schema for mechanism in mechanisms))
    paths = [part.resolve() for part in parts]
    _, ids_s = timed(client, lambda: validate_partitions(paths, schema, (), folder, client=client))
    _, look_s = timed(client, lambda: validate_partitions(paths, schema, schema.names, folder, client=client))
    with Ledger(folder / "ledger.sqlite") as ledger:
        account = Account(
            ledger=ledger, budget=Budget(), occasion=Occasion(run_id="bench", task="train", peer="a"), rng=rng.secure()
        )

        def release() -> ReleasedTable:
            stamps = [stamp_of(part) for part in parts]
            table, _ = encode_partitions(
                paths, mechanisms, folder / "blocks", id_columns=["id"], stamps=stamps, client=client
            )
            account.release(mechanisms, table.blocks, run_blocks=on_cluster(client))
            return ReleasedTable(tuple(mechanisms), table.blocks)

        released, release_s = timed(client, release)
    start = time.process_time()
    columns = list(rank_columns(released))
    pack_s = round(time.process_time() - start, 2)
    ranks = write_ranks(columns, n_rows // N_PARTS, folder)
    own = OwnPartitions(tuple(parts), OWN, "label")
    parameters = BoostingParameters(n_estimators=n_trees, max_depth=6)
    trained, train_s = timed(
        client,
        lambda: train_on_partitions(own, [ranks], loss=Logistic(), parameters=parameters, client=client, wait_s=60),
    )
    tests = list_tests(trained)
    wanted = tests["b"]
    router = Router(
        tuple(mechanisms),
        resolve([column.ranking for column in columns], wanted.columns, wanted.ranks, wanted.missing_left),
    )
    bits = [folder / f"bits{part}.parquet" for part in range(N_PARTS)]
    _, answer_s = timed(client, lambda: client.gather(client.map(partial(answer, router), paths, bits, pure=False)))
    model = bind(trained, tests)
    answers = [{"b": one} for one in bits]
    score = partial(score_part, model, OWN)
    _, predict_s = timed(client, lambda: client.gather(client.map(score, parts, answers, pure=False)))
    return {
        "ids_s": ids_s,
        "look_s": look_s,
        "pack_s": pack_s,
        "release_s": release_s,
        "train_s": train_s,
        "answer_s": answer_s,
        "predict_s": predict_s,
        "tests": len(wanted.ranks),
        "raw_bytes_per_value": size(parts) / n_rows / n_columns,
        "ledger_bytes_per_row": size([folder / "ledger.sqlite"]) / n_rows,
    }


def answer(router: Router, part: Path, target: Path) -> None:
    """Write the exact answers about a partition."""
    raw = pd.read_parquet(part)
    coded = {mechanism.schema.name: exact(mechanism, column) for mechanism, column in router.encode(raw)}
    write_bits(target, PackedAnswers(router).of(coded, len(raw)))


def write_ranks(columns: list[OfferedRanks], n_rows_each: int, folder: Path) -> RankPartitions:
    """The ranks as the active party has them, in partitions of so many rows."""
    paths = tuple(folder / f"ranks{part}.parquet" for part in range(N_PARTS))
    for part, path in enumerate(paths):
        start, end = part * n_rows_each, (part + 1) * n_rows_each
        pd.DataFrame(
            {f"c{i}": np.concatenate(list(column.ranks(start, end))) for i, column in enumerate(columns)}
        ).to_parquet(path, index=False)
    missing = tuple(column.ranking.has_missing for column in columns)
    nothing = (None,) * len(columns)
    return RankPartitions(
        "b", paths, tuple(column.ranking.table.n_ranks for column in columns), missing, nothing, nothing
    )


def generate(path: Path, seed: int, n_rows: int, n_columns: int) -> Path:
    """Normal columns, an id, a column of A's and a label that follows the first column."""
    draw = np.random.default_rng(seed)
    columns = {f"x{c}": draw.standard_normal(n_rows) for c in range(n_columns)}
    label = (columns["x0"] + draw.standard_normal(n_rows) > 0).astype(float)
    ids = [f"{number:012d}" for number in range(seed * n_rows, (seed + 1) * n_rows)]
    pd.DataFrame({"id": ids, "own": draw.random(n_rows), "label": label, **columns}).to_parquet(path)
    return path


def timed(client: Any, step: Callable[[], Any]) -> tuple[Any, float]:
    """What a step returns, and the CPU seconds of all workers."""
    before = client.run(time.process_time)
    found = step()
    after = client.run(time.process_time)
    return found, round(sum(after[worker] - before[worker] for worker in after), 2)


def size(paths: Any) -> int:
    """Bytes of some files."""
    return sum(path.stat().st_size for path in paths)


if __name__ == "__main__":
    main()
