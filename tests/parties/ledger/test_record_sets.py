"""Sets of records in the ledger's file: written once, read by slices, never changed."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parties.ledger import record_sets
from parties.ledger.ledger_lines import records_digest
from parties.ledger.record_sets import SET_TABLES, StoredNames, keep_records, stored_records
from parties.tables.key_sets import HALF_NAME, NAME
from tests.support.numbered_names import names

KEYS = names([0, 3, 7, 2**63, 2**64 - 1])


@pytest.fixture
def database() -> Iterator[sqlite3.Connection]:
    found = sqlite3.connect(":memory:", isolation_level=None)
    for table in SET_TABLES:
        found.execute(table)
    yield found
    found.close()


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(start=st.integers(-7, 7), stop=st.one_of(st.none(), st.integers(-7, 7)))
def test_slices_are_those_of_the_array(database: sqlite3.Connection, start: int, stop: int | None) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_sets, "ROW_NAMES", 2)
        keep_records(database, "d", KEYS)
    stored = StoredNames(database, (1, 2, 3), (32, 64, 80))
    assert len(stored) == len(KEYS)
    np.testing.assert_array_equal(stored[start:stop], KEYS[start:stop])


@pytest.mark.parametrize("row_names", [1, 2, 5, 6])
def test_a_set_is_kept_once_and_in_rows_of_any_length(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, row_names: int
) -> None:
    monkeypatch.setattr(record_sets, "ROW_NAMES", row_names)
    digest = records_digest(KEYS)
    keep_records(database, "another", KEYS)
    for _ in range(2):
        keep_records(database, digest, KEYS)
    rows = database.execute("SELECT records FROM record_sets WHERE digest GLOB ?", (f"{digest}*",)).fetchall()
    assert b"".join(records for (records,) in rows) == KEYS.tobytes()
    assert max(len(records) for (records,) in rows) == min(row_names, len(KEYS)) * NAME.itemsize
    found = stored_records(database, digest)
    assert found is not None
    np.testing.assert_array_equal(found[:], KEYS)
    assert stored_records(database, digest[:-1]) is None


def test_a_set_of_no_records_is_kept(database: sqlite3.Connection) -> None:
    keep_records(database, digest := records_digest(KEYS[:0]), KEYS[:0])
    found = stored_records(database, digest)
    assert found is not None
    assert not len(found[:])


@pytest.mark.parametrize("window", [1, 1 << 16])
def test_sets_are_read_as_they_were_written_also_by_an_earlier_version(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch, window: int
) -> None:
    """That wrote half names, as little-endian numbers in their order."""
    for module in ("ledger.record_sets", "tables.key_sets"):
        monkeypatch.setattr(f"parties.{module}.WINDOW_ROWS", window)
    keep_records(database, records_digest(KEYS), KEYS)
    numbers = np.sort(np.random.default_rng(0).integers(0, 2**64, 4, np.uint64)).astype("<u8").tobytes()
    earlier = hashlib.sha256(numbers).hexdigest()
    database.execute("INSERT INTO record_sets VALUES (?, ?)", (earlier, numbers))
    for digest, expected in (records_digest(KEYS), KEYS), (earlier, np.sort(np.frombuffer(numbers, HALF_NAME))):
        found = stored_records(database, digest)
        assert found is not None
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found[:], expected)
    assert stored_records(database, "unknown") is None
    database.execute("INSERT INTO record_sets VALUES ('changed', ?)", (numbers,))
    assert stored_records(database, "changed") is None


def test_half_names_are_never_read_as_half_as_many_names(monkeypatch: pytest.MonkeyPatch) -> None:
    """The digests differ, though the bytes are the same; were they the same, two halves would be taken for a name."""
    halves = np.frombuffer(KEYS.tobytes(), HALF_NAME)
    with pytest.raises(KeyError):
        records_digest(np.arange(3))
    assert records_digest(KEYS) != records_digest(halves)
    monkeypatch.setattr("parties.ledger.ledger_lines._SET_MARKS", {NAME: b"", HALF_NAME: b""})
    assert records_digest(KEYS) == records_digest(halves)


@pytest.mark.parametrize("statement", ["UPDATE record_sets SET records = x'00'", "DELETE FROM record_sets"])
def test_a_set_is_not_changed_by_accident(database: sqlite3.Connection, statement: str) -> None:
    keep_records(database, "d", KEYS)
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(statement)
