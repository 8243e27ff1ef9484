"""The ledger: every release is charged here before a bit of it is drawn.

===========================  ==============================================================================
``ledger.sqlite``            append-only lines, each sealing those before it (`parties.ledger.hash_chain` tells the
                             files beside it); and which records each charges
``ledger.releases.sqlite``   what was drawn (`parties.ledger.release_store`); names the ledger it belongs to
===========================  ==============================================================================
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from parties.ledger.budget import Balances, Budget
from parties.ledger.hash_chain import SealedLines, only_added
from parties.ledger.ledger_lines import (
    Fields,
    Occasion,
    Release,
    Reuse,
    cells_fields,
    charge_fields,
    charged,
    packed,
    records_digest,
    reuse_fields,
    stored_fields,
    unpacked,
)
from parties.storage.spool import WINDOW_ROWS
from parties.tables.key_sets import KeySet, RecordKeys, windows

_TABLES = (
    "CREATE TABLE IF NOT EXISTS record_sets (digest TEXT PRIMARY KEY, records BLOB NOT NULL)",
    *only_added("record_sets"),
)


class Ledger:
    """What one party released, in all its runs. Verified when it is opened, and whatever is new before every charge.

    Parameters
    ----------
    path : Path
    create : bool
        Whether a ledger that is not there yet is begun.

    Raises
    ------
    LedgerError
        If a line was changed or lost, if the ledger was replaced, or if it cannot be read.
    """

    def __init__(self, path: Path, *, create: bool = True) -> None:
        self.path = path
        self.balances = Balances()
        self.n_releases: Counter[str] = Counter()
        self.n_reuses: Counter[str] = Counter()
        self.peers: set[str] = set()
        self._charges: dict[str, list[int]] = {}
        self._contents: dict[int, str] = {}
        self._lines = SealedLines(
            path, count=self._count, tables=_TABLES, create=create, sums=self._sums, take_up=self._take_up
        )
        try:
            self._lines.refresh(is_opening=True)
        except BaseException:
            self._lines.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    @property
    def name(self) -> str:
        """Tells this ledger from every other one."""
        return self._lines.name

    @property
    def n_lines(self) -> int:
        """How many lines were verified."""
        return self._lines.n_lines

    def charge(
        self, releases: Sequence[Release], reuses: Mapping[str, Reuse], occasion: Occasion, budget: Budget
    ) -> list[int]:
        """Enter what is about to be drawn, and what is used again; all of it or, over budget, nothing.

        Parameters
        ----------
        releases : sequence of Release
        reuses : mapping of str to Reuse
            By column.
        occasion : Occasion
        budget : Budget

        Returns
        -------
        numbers : list of int
            Of the lines that charge the releases.
        """
        with self._lines.adding() as add:
            self.balances.check([release.cost for release in releases], budget)
            for column, reuse in reuses.items():
                add(reuse_fields(column, reuse, occasion))
            return [self._enter(add, release, occasion) for release in releases]

    def note_stored(self, contents: Mapping[int, str]) -> None:
        """Enter the digests of what was drawn, by charge."""
        with self._lines.adding() as add:
            for charge, content in contents.items():
                add(stored_fields(charge, content))

    def stored(self, key: str) -> dict[int, str]:
        """Charges for releases of this key for which something was drawn and stored, with its digest."""
        return {number: self._contents[number] for number in self._charges.get(key, []) if number in self._contents}

    def content(self, charge: int) -> str | None:
        """The digest of what was drawn for a charge, or None if that never reached the store."""
        return self._contents.get(charge)

    def refresh(self) -> None:
        """Read and verify what other processes have added."""
        self._lines.refresh()

    def _enter(self, add: Callable[[Fields], int], release: Release, occasion: Occasion) -> int:
        """Enter a release's charge and, of a Local-Map, its cells; returns the number of the charge."""
        charge = self.balances.charge_of(release.cost)
        line = charge_fields(release, charge, occasion)
        self._keep_records(line["records"], charge.records)
        number = add(line)
        if release.cost.cells is not None:
            add(cells_fields(charge.column, release.cost.cells, line, occasion))
        return number

    def _keep_records(self, digest: str, keys: KeySet) -> None:
        """Write a set of records in pieces, unless it is there: given as a whole, SQLite would copy it twice."""
        database = self._lines.database
        if database.execute("SELECT 1 FROM record_sets WHERE digest = ?", (digest,)).fetchone():
            return
        place = database.execute("INSERT INTO record_sets VALUES (?, zeroblob(?))", (digest, 8 * len(keys))).lastrowid
        assert place is not None
        with database.blobopen("record_sets", "records", place) as blob:
            for window in windows(keys):
                blob.write(packed(window))

    def _count(self, line: dict[str, Any]) -> None:
        """Take a verified line into the sums."""
        match line["kind"]:
            case "charge":
                self._charges.setdefault(line["key"], []).append(line["number"])
                self._count_charge(line)
                self.n_releases[line["column"]] += 1
                self.peers.add(line["peer"])
            case "cells":
                self._count_charge(line)
            case "stored":
                self._contents[line["charge"]] = line["content"]
            case "reuse":
                self.n_reuses[line["column"]] += 1
                self.peers.add(line["peer"])
            case _:
                raise ValueError("a kind of line that this version does not know")

    def _count_charge(self, line: dict[str, Any]) -> None:
        self.balances.add(charged(line, self._records_once(line["records"])), line["records"])

    def _sums(self) -> dict[str, Any]:
        """Everything that was counted, as plain values."""
        return {
            "balances": self.balances.to_dict(),
            "releases": self.n_releases,
            "reuses": self.n_reuses,
            "peers": sorted(self.peers),
            "charges": self._charges,
            "contents": [list(self._contents), list(self._contents.values())],
        }

    def _take_up(self, sums: dict[str, Any]) -> None:
        """The inverse of `_sums`; the records are verified as ever."""
        self.balances.take_up(sums["balances"], self._records)
        self.n_releases, self.n_reuses = Counter(sums["releases"]), Counter(sums["reuses"])
        self.peers, self._charges = set(sums["peers"]), sums["charges"]
        self._contents = dict(zip(*sums["contents"], strict=True))

    def _records_once(self, digest: str) -> KeySet:
        """The records that a line charges; none if they were read for an earlier line."""
        return unpacked(b"") if self.balances.knows(digest) else self._records(digest)

    def _records(self, digest: str) -> KeySet:
        """A set of records, verified; a large one stays where it is."""
        question = "SELECT rowid, length(records) FROM record_sets WHERE digest = ?"
        row = self._lines.database.execute(question, (digest,)).fetchone()
        keys = None if row is None or row[1] % 8 else _StoredKeys(self._lines.database, row[0], row[1] // 8)
        if keys is None or records_digest(keys) != digest:
            raise self._lines.tampered(f"the records of line {self.n_lines + 1} were changed or removed")
        return keys if len(keys) > WINDOW_ROWS else keys[:]


@dataclass(frozen=True, slots=True)
class _StoredKeys:
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
