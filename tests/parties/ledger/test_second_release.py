"""A second release of a file: nothing is encoded or drawn again, unless a single byte of the file is another."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opboost import rng
from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, TableSchema
from parties.errors import TableError
from parties.ledger.budget import Budget
from parties.ledger.charged_release import Account
from parties.ledger.ledger_lines import Occasion
from parties.ledger.release_ledger import Ledger
from parties.storage.spool import ArraySpool
from parties.tables import blocks, data_files, parquet, party_table
from parties.tables.blocks import encode_table
from parties.tables.parquet import StoredColumns
from parties.tables.party_table import read_table

N_ROWS = 1_000_000

SCHEMA = TableSchema(id="id", columns=[ColumnSchema(name="x", lower=0, upper=1)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.parquet"


def write(path: Path, values: Any) -> None:
    """The same size and time of change, whatever the values are."""
    pq.write_table(
        pa.table({"id": np.arange(len(values)), "x": values}), path, compression="none", use_dictionary=False
    )
    os.utime(path, (1, 1))


def release(path: Path, meanwhile: Callable[[], None] = lambda: None) -> tuple[int, int]:
    """Cells that are charged, and values out of bounds; what happens between hashing and encoding."""
    mechanism = ColumnMechanism(SCHEMA.columns[0], MechanismSettings(epsilon=0.1))
    with closing(ArraySpool()) as spool, Ledger(path.with_name("ledger.sqlite")) as ledger:
        occasion = Occasion(run_id="run", task="train", peer="a")
        account = Account(ledger=ledger, budget=Budget(), occasion=occasion, rng=rng.seeded(1))
        cache = path.with_name("encoded")
        table = read_table(path, SCHEMA, needs_label=False, by_column=True, cache=cache)
        meanwhile()
        encoded = encode_table(table.features, [mechanism], spool)
        encoded.named(table.ids)
        (cells,) = account.release([mechanism], encoded.blocks)
    return cells.n_new, sum(encoded.n_clipped.values())


def test_one_changed_cell_in_a_million_is_found_though_size_and_time_of_the_file_stay(path: Path) -> None:
    values = np.random.default_rng(0).uniform(0, 1, N_ROWS)
    write(path, values)
    before = data_files.stamp_of(path)
    assert release(path) == (N_ROWS, 0)
    values[777_777] = 1 - values[777_777]
    write(path, values)
    assert data_files.stamp_of(path) == before
    assert release(path) == (1, 0)


def test_were_files_told_by_size_and_time_the_changed_cell_would_be_missed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (party_table, parquet):
        monkeypatch.setattr(module, "file_digest", lambda path: str(data_files.stamp_of(path)))
    for value, n_charged in ((0.0, 100), (1.0, 0)):
        write(path, np.r_[value, np.linspace(0, 1, 99)])
        assert release(path)[0] == n_charged


def altered_between_hashing_and_encoding(path: Path) -> int:
    """Cells that are charged for a file which was another only while it was encoded the first time."""
    first, other = np.linspace(0, 0.4, 100), np.linspace(0.5, 1, 100)
    write(path, first)
    release(path, lambda: write(path, other))
    write(path, first)
    return release(path)[0]


def test_a_file_altered_between_hashing_and_encoding_is_not_kept_under_its_first_digest(path: Path) -> None:
    assert altered_between_hashing_and_encoding(path) == 100
    assert not list(path.with_name("encoded").glob(".*"))


def test_were_it_hashed_only_once_codes_of_other_bytes_would_be_taken_for_its_own(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StoredColumns, "settle", lambda columns: columns.cache.settle())
    assert altered_between_hashing_and_encoding(path) == 0


def test_a_file_replaced_between_its_ids_and_its_digest_is_refused_though_its_codes_are_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = np.linspace(0, 1, 100)
    write(path, values)
    release(path)

    def replaced_before(path: Path) -> str:
        os.utime(path, (2, 2))
        return data_files.file_digest(path)

    monkeypatch.setattr(party_table, "file_digest", replaced_before)
    with pytest.raises(TableError, match="was changed while it was in use"):
        release(path)


def test_the_second_time_nothing_is_encoded_or_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(path, np.linspace(-1, 1, 100))
    assert release(path) == (100, 50)

    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError

    with monkeypatch.context() as broken:
        broken.setattr(blocks, "encode_column", fail)
        broken.setattr(blocks, "named_records", fail)
        assert release(path) == (0, 50)
        write(path, np.linspace(-1, 0.9, 100))
        with pytest.raises(AssertionError):
            release(path)


def test_without_what_was_kept_the_same_is_found(path: Path) -> None:
    write(path, np.linspace(0, 1, 100))
    release(path)
    for kept in path.with_name("encoded").glob("*/*"):
        kept.write_bytes(b"damaged")
    assert release(path) == (0, 0)
    assert all(kept.read_bytes() != b"damaged" for kept in path.with_name("encoded").glob("*/*"))
