"""Sets of records' names in the ledger's file: written in pieces, and read a slice at a time.

An earlier version wrote half names, ascending as little-endian numbers; they are read as ever, and no new ones written.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from typing import Any

import numpy as np

from parties.ledger.hash_chain import only_added
from parties.ledger.ledger_lines import packed, records_digest
from parties.storage.spool import WINDOW_ROWS
from parties.tables.key_sets import HALF_NAME, NAME, KeySet, Names, kept_set, windows

SET_TABLES = (
    "CREATE TABLE IF NOT EXISTS record_sets (digest TEXT PRIMARY KEY, records BLOB NOT NULL)",
    *only_added("record_sets"),
)


def keep_records(database: sqlite3.Connection, digest: str, records: KeySet) -> None:
    """Write a set of records in pieces, unless it is there: given as a whole, SQLite would copy it twice."""
    if database.execute("SELECT 1 FROM record_sets WHERE digest = ?", (digest,)).fetchone():
        return
    insert = "INSERT INTO record_sets VALUES (?, zeroblob(?))"
    place = database.execute(insert, (digest, records.dtype.itemsize * len(records))).lastrowid
    assert place is not None
    with database.blobopen("record_sets", "records", place) as blob:
        for window in windows(records):
            blob.write(packed(window))


def stored_records(database: sqlite3.Connection, digest: str) -> KeySet | None:
    """A set of records, verified; None if it is not there or was changed. A large one stays where it is."""
    question = "SELECT rowid, length(records) FROM record_sets WHERE digest = ?"
    place, n_bytes = database.execute(question, (digest,)).fetchone() or (0, 0)
    for kind in (NAME, HALF_NAME):
        found = StoredNames(database, place, n_bytes // kind.itemsize, kind)
        if place and n_bytes % kind.itemsize == 0 and records_digest(found) == digest:
            if kind == HALF_NAME:
                return kept_set(windows(found), len(found), kind=kind)
            return found if len(found) > WINDOW_ROWS else found[:]
    return None


@dataclass(frozen=True, slots=True)
class StoredNames:
    """A set of records in the ledger's file, of which slices are read; lines are only added, so it stays the same."""

    database: sqlite3.Connection
    place: int
    length: int
    dtype: np.dtype[Any] = NAME

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, rows: slice, /) -> Names:
        start, end, _ = rows.indices(self.length)
        size = self.dtype.itemsize
        with self.database.blobopen("record_sets", "records", self.place, readonly=True) as blob:
            blob.seek(size * start)
            return np.frombuffer(blob.read(size * max(0, end - start)), self.dtype)
