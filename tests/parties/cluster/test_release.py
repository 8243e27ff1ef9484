"""Partitions on workers give the release of one machine, once, whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.cluster.dask_cluster import cluster
from parties.cluster.file_blocks import encode_partitions, on_cluster
from parties.config.cluster_section import DaskSection
from parties.errors import OverBudget, TableError, WorkersLost
from parties.ledger.budget import Budget, Limit
from parties.ledger.charged_release import Account
from parties.ledger.due_cells import run_in_process
from parties.ledger.release_ledger import Ledger
from parties.tables.data_files import stamp_of
from parties.vertical.release_offer import ReleasedTable, rank_columns
from tests.support.ranked_columns import RankedColumn, rank
from tests.support.released_partitions import OCCASION, encoded, release

pytest.importorskip("distributed", reason="Dask is not installed: pip install 'opboost[dask]'")

if TYPE_CHECKING:
    from distributed import Client

N_PARTS, N_ROWS = 6, 500
TOWNS = ("north", "south", "east", "west")
MECHANISMS = tuple(
    ColumnMechanism(schema, MechanismSettings())
    for schema in (
        ColumnSchema(name="spend", lower=0, upper=100),
        ColumnSchema(name="visits", lower=0, upper=50, missing=Missing.CATEGORY),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=TOWNS),
    )
)


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with cluster(DaskSection(workers=2)) as found:
        yield found


@pytest.fixture
def parts(tmp_path: Path) -> list[Path]:
    draw = np.random.default_rng(6)
    paths = [tmp_path / f"part{p}.parquet" for p in range(N_PARTS)]
    for p, path in enumerate(paths):
        visits = pd.Series(draw.integers(0, 51, N_ROWS) * 1.0).where(draw.random(N_ROWS) > 0.1)
        pd.DataFrame(
            {
                "id": np.arange(p * N_ROWS, (p + 1) * N_ROWS),
                "spend": draw.uniform(0, 100, N_ROWS),
                "visits": visits,
                "town": draw.choice(TOWNS[:3], N_ROWS),
            }
        ).to_parquet(path)
    return paths


def codes_of(found: ReleasedTable, *, rows: slice = slice(None)) -> list[list[int]]:
    """What was drawn, by column, a missing cell as -1."""
    columns = range(len(found.mechanisms))
    return [np.concatenate([piece.marked for piece in found.pieces(c)])[rows].tolist() for c in columns]


def charges(folder: Path) -> list[int]:
    """How many records each charge was for."""
    database = sqlite3.connect(folder / "ledger.sqlite")
    rows = database.execute("SELECT fields FROM lines").fetchall()
    database.close()
    return [line["n_records"] for (text,) in rows if (line := json.loads(text))["kind"] == "charge"]


def in_memory(parts: list[Path], folder: Path) -> tuple[list[list[int]], list[RankedColumn]]:
    """The same release of one table in memory, on the same ledger."""
    whole = pd.concat([pd.read_parquet(part) for part in parts], ignore_index=True)
    columns = [encode(whole[m.schema.name], m.schema, domain=m.settings.domain) for m in MECHANISMS]
    ids = pd.Index(whole["id"].astype(str), dtype=object)
    with Ledger(folder / "ledger.sqlite") as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=OCCASION, rng=rng.secure())
        found, _ = account.records(MECHANISMS, columns, ids)
    return [column.marked.tolist() for column in found], [one for column in found for one in rank(column)]


def test_partitions_and_one_table_have_one_release_and_one_rank_algorithm(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    found = release(parts, MECHANISMS, tmp_path / "blocks", client)
    codes, whole = in_memory(parts, tmp_path)
    assert codes_of(found) == codes
    assert charges(tmp_path) == [N_PARTS * N_ROWS] * 3
    columns = list(rank_columns(found))
    for mine, column in zip(columns, whole, strict=True):
        ranking = mine.ranking
        assert (ranking.source, ranking.category, ranking.has_missing) == (
            column.source,
            column.category,
            column.has_missing,
        )
        np.testing.assert_array_equal(ranking.table.codes, column.table.codes)
        np.testing.assert_array_equal(np.concatenate(list(mine.ranks())), column.ranks)
        np.testing.assert_array_equal(np.concatenate(list(mine.ranks(499, 1502))), column.ranks[499:1502])


def test_new_partitions_and_records_alone_are_charged_whatever_the_division(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    first = release(parts[:2], MECHANISMS, tmp_path / "first", client)
    whole = pd.concat([pd.read_parquet(part) for part in parts[:3]], ignore_index=True)
    cut = [tmp_path / "cut0.parquet", tmp_path / "cut1.parquet"]
    whole[:730].to_parquet(cut[0])
    whole[730:1010].to_parquet(cut[1])
    second = release(cut, MECHANISMS, tmp_path / "second", client)
    assert codes_of(second, rows=slice(2 * N_ROWS)) == codes_of(first)
    assert charges(tmp_path) == [2 * N_ROWS] * 3 + [10] * 3
    codes, _ = in_memory(parts[:3], tmp_path)
    assert [column[:1010] for column in codes] == codes_of(second)
    assert charges(tmp_path)[6:] == [490] * 3


def test_a_cluster_process_killed_in_mid_release_changes_no_code_and_costs_nothing(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    folder, killed = tmp_path / "blocks", threading.Event()

    def kill_one(pid: int) -> None:
        while not killed.is_set() and not any(folder.glob("*/0.codes.npy")):
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
        killed.set()

    victim = next(iter(client.run(os.getpid).values()))
    thread = threading.Thread(target=kill_one, args=(victim,), daemon=True)
    thread.start()
    found = release(parts, MECHANISMS, folder, client)
    thread.join(10)
    client.wait_for_workers(2, timeout=30)
    assert killed.is_set()
    assert charges(tmp_path) == [N_PARTS * N_ROWS] * 3
    assert in_memory(parts, tmp_path)[0] == codes_of(found)
    assert [path.name for path in tmp_path.rglob("*.orders.npy")] == []


def test_tasks_that_run_again_write_the_same_codes(tmp_path: Path, parts: list[Path], client: Client) -> None:
    table, drawn = encoded(parts[:2], MECHANISMS, tmp_path / "blocks", client), []

    def twice(draw: Any, blocks: Any) -> None:
        for run_blocks in (run_in_process, on_cluster(client)):
            run_blocks(draw, blocks)
            drawn.append([[block[f"{c}.codes"].tolist() for c in range(3)] for block in blocks])

    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=OCCASION, rng=rng.secure())
        account.release(MECHANISMS, table.blocks, run_blocks=twice)
    assert drawn[0] == drawn[1]


def test_a_driver_that_is_started_again_draws_the_same_and_pays_nothing(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    drawn = []

    def stop(draw: Any, blocks: Any) -> None:
        run_in_process(draw, blocks)
        drawn.extend([np.concatenate([block[f"{c}.codes"] for block in blocks]).tolist() for c in range(3)])
        raise KeyboardInterrupt

    table = encoded(parts[:2], MECHANISMS, tmp_path / "first", client)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        account = Account(ledger=ledger, budget=Budget(), occasion=OCCASION, rng=rng.secure())
        with pytest.raises(KeyboardInterrupt):
            account.release(MECHANISMS, table.blocks, run_blocks=stop)
    found = release(parts[:2], MECHANISMS, tmp_path / "second", client)
    assert codes_of(found) == drawn
    assert charges(tmp_path) == [2 * N_ROWS] * 3


def test_equal_partitions_get_different_noise(tmp_path: Path, parts: list[Path], client: Client) -> None:
    frame = pd.read_parquet(parts[0])
    frame.assign(id=frame["id"] + 10_000).to_parquet(parts[1])
    found = release(parts[:2], MECHANISMS, tmp_path / "blocks", client)
    for column in codes_of(found):
        assert column[:N_ROWS] != column[N_ROWS:]


def test_nothing_is_drawn_over_budget_or_from_data_that_changed(
    tmp_path: Path, parts: list[Path], client: Client
) -> None:
    with pytest.raises(OverBudget):
        release(parts[:2], MECHANISMS, tmp_path / "blocks", client, budget=Budget(Limit(epsilon=0.01)))
    assert charges(tmp_path) == []
    assert [path.name for path in (tmp_path / "blocks").rglob("*.codes.npy")] == []
    stamps = [stamp_of(part) for part in parts[:2]]
    pd.read_parquet(parts[0]).assign(spend=50.0).to_parquet(parts[0])
    with pytest.raises(TableError, match="was changed while it was in use"):
        encode_partitions(parts[:2], MECHANISMS, tmp_path / "b", id_columns=["id"], stamps=stamps, client=client)


def test_a_scheduler_that_does_not_answer_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.cluster.dask_cluster.START_WAIT_S", 0.2)
    with (
        pytest.raises(WorkersLost, match="no scheduler answers at"),
        cluster(DaskSection(scheduler="tcp://127.0.0.1:1")),
    ):
        pass
