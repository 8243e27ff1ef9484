"""The privacy ledger: every release is charged here before any of it is drawn.

``ledger.sqlite`` has append-only lines, each sealing those before it (`parties.ledger.hash_chain` lists the files
beside it); the records that each charges; and the drawn cells (`parties.ledger.cell_store`).

An earlier version kept drawn cells in ``ledger.releases.sqlite``; such a ledger is refused until it is migrated
(`parties.ledger.migration`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Self

from parties.errors import LedgerError
from parties.ledger import ledger_lines as lines
from parties.ledger.budget import Budget
from parties.ledger.cell_store import CELL_TABLES, CellStore
from parties.ledger.hash_chain import HashChain
from parties.ledger.ledger_lines import ChargedColumn, Fields, Occasion, ResolvedTest, Reuse
from parties.ledger.ledger_sums import LedgerSums
from parties.ledger.record_sets import SET_TABLES, keep_records, stored_records
from parties.storage.sqlite import beside
from parties.tables.key_sets import KeySet


class Ledger:
    """One party's privacy ledger for all its runs. Verified when it is opened; new lines are verified before a charge.

    Parameters
    ----------
    path : Path
    create : bool
        Whether to begin a ledger if the file does not exist.
    migrates : bool
        Whether to open a ledger of an earlier version.

    Raises
    ------
    LedgerError
        If a line was changed or lost, if the ledger was replaced, or if it cannot be read.
    """

    def __init__(self, path: Path, *, create: bool = True, migrates: bool = False) -> None:
        self.path = path
        self.sums = LedgerSums(self._records)
        self._add: Callable[[Fields], int] | None = None
        self._lines = HashChain(
            path,
            count=self.sums.count,
            tables=(*SET_TABLES, *CELL_TABLES),
            create=create,
            sums=self.sums.to_dict,
            take_up=self.sums.take_up,
            mark=self.sums.trained_digest,
        )
        self.cells = CellStore(self, self._lines.database)
        try:
            self._lines.refresh(is_opening=True)
            if not migrates:
                self._refuse_earlier_version()
            with self.changing():
                self.cells.check()
        except BaseException:
            self._lines.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()

    @property
    def name(self) -> str:
        """A random name that identifies this ledger."""
        return self._lines.name

    @property
    def n_lines(self) -> int:
        """Number of verified lines."""
        return self._lines.n_lines

    def charge(
        self, releases: Sequence[ChargedColumn], reuses: Mapping[str, Reuse], occasion: Occasion, budget: Budget
    ) -> list[int]:
        """Charge releases that are about to be drawn, and enter reuses; all of it or, over budget, nothing.

        Parameters
        ----------
        releases : sequence of ChargedColumn
        reuses : mapping of str to Reuse
            By column.
        occasion : Occasion
        budget : Budget

        Returns
        -------
        numbers : list of int
            Of the lines that charge the releases.
        """
        with self.changing() as add:
            self.sums.balances.check([release.cost for release in releases], budget)
            for column, reuse in reuses.items():
                add(lines.reuse_fields(column, reuse, occasion))
            return [self._enter(add, release, occasion) for release in releases]

    @contextmanager
    def changing(self, *, always_writes: bool = False) -> Iterator[Callable[[Fields], int]]:
        """A transaction: one process at a time; all that the block adds, here and in `cells`, is committed or none."""
        if self._add is not None:
            yield self._add
            return
        with self._lines.adding(always_writes=always_writes) as self._add:
            try:
                yield self._add
            finally:
                self._add = None

    def undone(self) -> AbstractContextManager[None]:
        """Roll back what a block adds within `changing`, here and in `cells`; takes as long as a commit would."""
        return self._lines.undone()

    def note_stored(self, charge: int, names: str, content: str) -> None:
        """Enter the digest of the draws of a charge for a set of records."""
        with self.changing() as add:
            add(lines.stored_fields(charge, names, content))

    def note_released(self, records: KeySet, occasion: Occasion, *, held_out: bool = False) -> None:
        """Enter the records that a run releases to a peer or holds out, unless an earlier run entered the same."""
        with self.changing() as add:
            line = lines.records_fields("held_out" if held_out else "released", records, occasion)
            if line["records"] not in self.sums.trained(occasion.peer, held_out=held_out):
                keep_records(self._lines.database, line["records"], records)
                add(line)

    def trained(self, peer: str, *, held_out: bool = False) -> list[KeySet]:
        """The sets of records of all releases for training to a peer, or the sets that runs with it held out."""
        return [self._records(digest) for digest in self.sums.trained(peer, held_out=held_out)]

    def note_tests(self, tests: Sequence[ResolvedTest], occasion: Occasion) -> None:
        """Enter tests whose thresholds are about to be resolved."""
        with self.changing() as add:
            add(lines.tests_fields(tests, occasion))

    @property
    def n_stored(self) -> int:
        """Number of stored sets of cells."""
        return sum(map(len, self.sums.contents.values()))

    def content(self, charge: int, names: str) -> str | None:
        """The digest of the draws of a charge for a set of records, or None if they were not stored."""
        return self.sums.contents.get(charge, {}).get(names)

    def records_of(self, charge: int) -> KeySet:
        """The records that a line charges."""
        return self._records(self.line(charge)["records"])

    def line(self, number: int) -> Fields:
        """A line that was verified."""
        return self._lines.line(number)

    def verify(self) -> None:
        """Read all stored draws and compare them with the lines; raises `LedgerError` if they differ."""
        with self.changing():
            for digest in self.sums.all_trained():
                self._records(digest)
            self.cells.verify()

    def checkpoint(self) -> None:
        """Move commits from the write-ahead log, which may still hold removed keys, to the file."""
        with self._lines.reading():
            self._lines.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, target: sqlite3.Connection) -> None:
        """Copy a consistent state of the ledger's file, also while other processes use it."""
        with self._lines.reading():
            self._lines.database.backup(target)

    def refresh_trained(self) -> None:
        """Read and verify lines that other processes have added, if a release for training is among them.

        Privacy: otherwise none are read, so the duration reveals nothing about releases for predictions.
        """
        if self._lines.has_new_mark():
            self._lines.refresh()

    def _enter(self, add: Callable[[Fields], int], release: ChargedColumn, occasion: Occasion) -> int:
        """Enter a release's charge and, of a Local-Map, its cells; returns the number of the charge."""
        charge = self.sums.balances.charge_of(release.cost)
        line = lines.charge_fields(release, charge, occasion)
        keep_records(self._lines.database, line["records"], charge.records)
        number = add(line)
        if release.cost.cells is not None:
            add(lines.cells_fields(charge.column, release.cost.cells, line, occasion))
        return number

    def _refuse_earlier_version(self) -> None:
        if self.sums.old_contents and not self.sums.is_migrated:
            store = beside(self.path, ".releases.sqlite")
            lost = "" if store.exists() else f" {store.name}, which belongs to it, is not there: restore it first."
            raise LedgerError(
                f"{self.path} is of an earlier version, which kept what was drawn in {store.name}.{lost} "
                "`opboost ledger RUN.yaml --migrate` takes it over. Nothing was released"
            )

    def _records(self, digest: str) -> KeySet:
        """A set of records, verified; a large one stays where it is."""
        found = stored_records(self._lines.database, digest)
        if found is None:
            raise self._lines.tampered("the records of a line were changed or removed")
        return found
