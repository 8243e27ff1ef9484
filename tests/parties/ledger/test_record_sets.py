"""Sets of records in the ledger's file: written once, read by slices, never changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parties.ledger.record_sets import SET_TABLES, StoredKeys, keep_records
from parties.tables import key_sets

KEYS = np.array([0, 3, 7, 2**63, 2**64 - 1], np.uint64)


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
    keep_records(database, "d", KEYS)
    stored = StoredKeys(database, 1, len(KEYS))
    assert len(stored) == len(KEYS)
    np.testing.assert_array_equal(stored[start:stop], KEYS[start:stop])


def test_a_set_is_kept_once_and_in_windows_of_any_size(
    database: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(key_sets, "WINDOW_ROWS", 2)
    for _ in range(2):
        keep_records(database, "d", KEYS)
    assert database.execute("SELECT records FROM record_sets").fetchall() == [(KEYS.astype("<u8").tobytes(),)]


@pytest.mark.parametrize("statement", ["UPDATE record_sets SET records = x'00'", "DELETE FROM record_sets"])
def test_a_set_is_not_changed_by_accident(database: sqlite3.Connection, statement: str) -> None:
    keep_records(database, "d", KEYS)
    with pytest.raises(sqlite3.IntegrityError):
        database.execute(statement)
