"""Sets of records' keys in the ledger's file: written in pieces, and read a slice at a time."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from parties.ledger.hash_chain import only_added
from parties.ledger.ledger_lines import packed, unpacked
from parties.tables.key_sets import KeySet, RecordKeys, windows

SET_TABLES = (
    "CREATE TABLE IF NOT EXISTS record_sets (digest TEXT PRIMARY KEY, records BLOB NOT NULL)",
    *only_added("record_sets"),
)


def keep_records(database: sqlite3.Connection, digest: str, keys: KeySet) -> None:
    """Write a set of records in pieces, unless it is there: given as a whole, SQLite would copy it twice."""
    if database.execute("SELECT 1 FROM record_sets WHERE digest = ?", (digest,)).fetchone():
        return
    place = database.execute("INSERT INTO record_sets VALUES (?, zeroblob(?))", (digest, 8 * len(keys))).lastrowid
    assert place is not None
    with database.blobopen("record_sets", "records", place) as blob:
        for window in windows(keys):
            blob.write(packed(window))


@dataclass(frozen=True, slots=True)
class StoredKeys:
    """A set of records in the ledger's file, of which slices are read; lines are only added, so it stays the same."""

    database: sqlite3.Connection
    place: int
    length: int

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, rows: slice, /) -> RecordKeys:
        start, end, _ = rows.indices(self.length)
        with self.database.blobopen("record_sets", "records", self.place, readonly=True) as blob:
            blob.seek(8 * start)
            return unpacked(blob.read(8 * max(0, end - start)))
