"""Sets of records' names in the ledger's file: written in rows of `ROW_NAMES`, and read a slice at a time.

A set's first row is named by its digest; a number follows in the names of the others. SQLite takes no value of 10^9
bytes, and a slice at the end of a long one is found slowly.

An earlier version wrote half names, ascending as little-endian numbers; they are read as ever, and no new ones written.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from parties.ledger.ledger_lines import packed, records_digest
from parties.storage.spool import WINDOW_ROWS
from parties.storage.sqlite import only_added
from parties.tables.key_sets import HALF_NAME, NAME, KeySet, Names, kept_set, windows

ROW_NAMES = 1 << 20

SET_TABLES = (
    "CREATE TABLE IF NOT EXISTS record_sets (digest TEXT PRIMARY KEY, records BLOB NOT NULL)",
    *only_added("record_sets"),
)


def keep_records(database: sqlite3.Connection, digest: str, records: KeySet) -> None:
    """Write a set of records, a window at a time, unless it is there: given as a whole, SQLite would copy it twice."""
    if database.execute("SELECT 1 FROM record_sets WHERE digest = ?", (digest,)).fetchone():
        return
    for first in range(0, max(1, len(records)), ROW_NAMES):
        end = min(first + ROW_NAMES, len(records))
        name = f"{digest}.{first // ROW_NAMES}" if first else digest
        size = records.dtype.itemsize * (end - first)
        place = database.execute("INSERT INTO record_sets VALUES (?, zeroblob(?))", (name, size)).lastrowid
        assert place is not None
        with database.blobopen("record_sets", "records", place) as blob:
            for start in range(first, end, WINDOW_ROWS):
                blob.write(packed(records[start : min(start + WINDOW_ROWS, end)]))


def stored_records(database: sqlite3.Connection, digest: str) -> KeySet | None:
    """A set of records, verified; None if it is not there or was changed. A large one stays where it is."""
    question = "SELECT rowid, length(records) FROM record_sets WHERE digest >= ? AND digest < ? ORDER BY rowid"
    rows = database.execute(question, (digest, f"{digest}/")).fetchall()
    ends = tuple(accumulate(n_bytes for _, n_bytes in rows))
    for kind in (NAME, HALF_NAME):
        if not rows or any(end % kind.itemsize for end in ends):
            continue
        found = StoredNames(database, tuple(place for place, _ in rows), ends, kind)
        if records_digest(found) == digest:
            if kind == HALF_NAME:
                return kept_set(windows(found), len(found), kind=kind)
            return found if len(found) > WINDOW_ROWS else found[:]
    return None


@dataclass(frozen=True, slots=True)
class StoredNames:
    """A set of records in the ledger's file, of which slices are read; lines are only added, so it stays the same.

    Attributes
    ----------
    database : sqlite3.Connection
    places : tuple of int
        Row ids of the set's rows, in order.
    ends : tuple of int
        Bytes of the set up to the end of each row.
    dtype : dtype
    """

    database: sqlite3.Connection
    places: tuple[int, ...]
    ends: tuple[int, ...]
    dtype: np.dtype[Any] = NAME

    def __len__(self) -> int:
        return self.ends[-1] // self.dtype.itemsize

    def __getitem__(self, rows: slice, /) -> Names:
        start, end, _ = (self.dtype.itemsize * place for place in rows.indices(len(self)))
        found, row = bytearray(), bisect_right(self.ends, start)
        while start < end:
            first = self.ends[row - 1] if row else 0
            with self.database.blobopen("record_sets", "records", self.places[row], readonly=True) as blob:
                blob.seek(start - first)
                found += blob.read(min(end, self.ends[row]) - start)
            start, row = self.ends[row], row + 1
        return np.frombuffer(bytes(found), self.dtype)
