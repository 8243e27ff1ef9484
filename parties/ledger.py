"""The ledger: every release is charged here before a bit of it is drawn.

Three files lie side by side; only the first is written here, with its seal.

===========================  ==============================================================================
``ledger.sqlite``            append-only lines, each sealing those before it; and which records each charges
``ledger.head.json``         number and digest of the last line: a ledger that lost lines at its end differs
``ledger.releases.sqlite``   what was drawn (`parties.releases`); names the ledger it belongs to
===========================  ==============================================================================

A line is committed first and the head follows, both while no other process may write. A crash in between leaves a head
that is behind, never one that is ahead; the next user moves it on. Whoever can rewrite *all* of the files can forge
an account that agrees with itself: the seals show damage and meddling to B, they do not bind B.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from Crypto.Random import get_random_bytes

from parties.balances import Balances, Budget, RecordKeys
from parties.entries import (
    BEGINNING,
    Fields,
    Occasion,
    Release,
    Reuse,
    canonical,
    charge_fields,
    cost_of,
    opened_fields,
    packed,
    records_digest,
    reuse_fields,
    seal,
    stored_fields,
    unpacked,
)
from parties.errors import LedgerError
from parties.private_database import connect, reporting, transaction

_PIECE_BYTES = 1 << 20

_TABLES = (
    "CREATE TABLE IF NOT EXISTS lines (number INTEGER PRIMARY KEY, fields TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS record_sets (digest TEXT PRIMARY KEY, records BLOB NOT NULL)",
    *(
        f"CREATE TRIGGER IF NOT EXISTS no_{verb}_{table} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'lines are only ever added'); END"
        for table in ("lines", "record_sets")
        for verb in ("UPDATE", "DELETE")
    ),
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
        self.head_path = path.with_suffix(".head.json")
        if not path.exists() and (self.head_path.exists() or not create):
            lost = " although its head is: it was removed" if self.head_path.exists() else ""
            raise LedgerError(f"{path} is not there{lost}. Nothing was released")
        self.balances = Balances()
        self.n_lines = 0
        self._may_begin = create
        self.n_releases: Counter[str] = Counter()
        self.n_reuses: Counter[str] = Counter()
        self.peers: set[str] = set()
        self._digest = BEGINNING
        self._name = ""
        self._charges: dict[str, list[int]] = {}
        self._contents: dict[int, str] = {}
        self._database = connect(path, _TABLES)
        try:
            with reporting(path):
                self._note_head()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    @property
    def name(self) -> str:
        """Tells this ledger from every other one."""
        return self._name

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
        with self._adding() as add:
            self.balances.check([release.cost for release in releases], budget)
            for column, reuse in reuses.items():
                add(reuse_fields(column, reuse, occasion))
            return [add(self._charge(release, occasion)) for release in releases]

    def note_stored(self, contents: Mapping[int, str]) -> None:
        """Enter the digests of what was drawn, by charge."""
        with self._adding() as add:
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
        with reporting(self.path):
            self._note_head()

    def _charge(self, release: Release, occasion: Occasion) -> Fields:
        records, step = release.cost.records, release.cost.step
        self._keep_records(records_digest(records), packed(records))
        unit = self.balances.units.get(release.cost.column, step) if step else 0.0
        return charge_fields(release, occasion, epsilon=self.balances.epsilon_per_unit(release.cost), unit=unit)

    def _keep_records(self, digest: str, keys: memoryview) -> None:
        """Write a set of records in pieces, unless it is there: given as a whole, SQLite would copy it twice."""
        if self._database.execute("SELECT 1 FROM record_sets WHERE digest = ?", (digest,)).fetchone():
            return
        place = self._database.execute("INSERT INTO record_sets VALUES (?, zeroblob(?))", (digest, len(keys))).lastrowid
        assert place is not None
        with self._database.blobopen("record_sets", "records", place) as blob:
            for start in range(0, len(keys), _PIECE_BYTES):
                blob.write(keys[start : start + _PIECE_BYTES])

    @contextmanager
    def _adding(self) -> Iterator[Callable[[Fields], int]]:
        """Add lines at the end, which nobody else can move meanwhile."""
        with reporting(self.path):
            with transaction(self._database):
                self._read_new_lines()
                last = (self.n_lines, self._digest)

                def add(fields: Fields) -> int:
                    nonlocal last
                    number = last[0] + 1
                    text = canonical({"number": number, **fields})
                    last = (number, seal(last[1], text))
                    self._database.execute("INSERT INTO lines VALUES (?, ?, ?)", (number, text, last[1]))
                    return number

                yield add
            self._note_head()

    def _note_head(self) -> None:
        """Move the head to the last line, in the same turn in which that was read."""
        with transaction(self._database):
            self._read_new_lines()
            if self.n_lines == 0:
                self._begin()
            elif self._head() != (self.n_lines, self._digest):
                self._write_head(self.n_lines, self._digest)

    def _begin(self) -> None:
        """The first line. Its head goes first: without a head, a ledger is never taken for a new one."""
        if not self._may_begin:
            raise LedgerError(f"{self.path} holds no ledger")
        text = canonical({"number": 1, **opened_fields(get_random_bytes(16).hex())})
        self._write_head(1, seal(BEGINNING, text))
        self._database.execute("INSERT INTO lines VALUES (1, ?, ?)", (text, seal(BEGINNING, text)))
        self._read_new_lines()

    def _read_new_lines(self) -> None:
        """Verify and count every line since the last look, and compare the whole with the head."""
        if self.n_lines and self._digest_at(self.n_lines) != self._digest:
            raise self._tampered(f"line {self.n_lines} is no longer what it was")
        rows = self._database.execute(
            "SELECT number, fields, digest FROM lines WHERE number > ? ORDER BY number", (self.n_lines,)
        )
        for number, text, digest in rows:
            if number != self.n_lines + 1 or digest != seal(self._digest, text):
                raise self._tampered(f"line {self.n_lines + 1} was changed or removed")
            self._count(text)
            self.n_lines, self._digest = number, digest
        self._compare_with_head()

    def _compare_with_head(self) -> None:
        head = self._head()
        if self.n_lines == 0 and (head is None or head[0] <= 1):
            return
        if head is None:
            raise self._tampered(f"{self.head_path.name}, which tells how many lines there must be, is not there")
        if head[0] > self.n_lines:
            raise self._tampered(f"it has {self.n_lines} lines where {self.head_path.name} says {head[0]}")
        if self._digest_at(head[0]) != head[1]:
            raise self._tampered(f"it is not the ledger of {self.head_path.name}")

    def _digest_at(self, number: int) -> str | None:
        row = self._database.execute("SELECT digest FROM lines WHERE number = ?", (number,)).fetchone()
        return None if row is None else str(row[0])

    def _count(self, text: str) -> None:
        """Take a verified line into the sums."""
        try:
            line = json.loads(text)
            match line["kind"]:
                case "opened":
                    self._name = str(line["name"])
                case "charge":
                    self._charges.setdefault(line["key"], []).append(line["number"])
                    self.balances.add(cost_of(line, self._records(line["records"])), line["records"])
                    self.n_releases[line["column"]] += 1
                    self.peers.add(line["peer"])
                case "stored":
                    self._contents[line["charge"]] = line["content"]
                case "reuse":
                    self.n_reuses[line["column"]] += 1
                    self.peers.add(line["peer"])
                case _:
                    raise ValueError("a kind of line that this version does not know")
        except (KeyError, TypeError, ValueError):
            raise LedgerError(
                f"{self.path}: line {self.n_lines + 1} is not one that this version writes. Nothing was released"
            ) from None

    def _records(self, digest: str) -> RecordKeys:
        """The records that a line charges, verified; none if they were read for an earlier line."""
        if self.balances.knows(digest):
            return unpacked(b"")
        row = self._database.execute("SELECT records FROM record_sets WHERE digest = ?", (digest,)).fetchone()
        if row is None or len(row[0]) % 8 or records_digest(unpacked(row[0])) != digest:
            raise self._tampered(f"the records of line {self.n_lines + 1} were changed or removed")
        return unpacked(row[0])

    def _head(self) -> tuple[int, str] | None:
        try:
            head = json.loads(self.head_path.read_text())
            return int(head["lines"]), str(head["digest"])
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError, RecursionError):
            raise self._tampered(f"{self.head_path.name} cannot be read as the head of a ledger") from None

    def _write_head(self, n_lines: int, digest: str) -> None:
        partial = self.head_path.with_name(f".{self.head_path.name}.partial")
        try:
            descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w") as file:
                json.dump({"lines": n_lines, "digest": digest}, file)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(self.head_path)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    def _tampered(self, what: str) -> LedgerError:
        return LedgerError(
            f"{self.path} cannot be trusted: {what}. Restore the ledger and its head from the same backup. Nothing was "
            "released"
        )
