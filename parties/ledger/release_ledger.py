"""The ledger: every release is charged here before a bit of it is drawn.

``ledger.sqlite`` has append-only lines, each sealing those before it (`parties.ledger.hash_chain` tells the files
beside it); which records each charges; and the cells that were drawn (`parties.ledger.cell_store`).

An earlier version kept what was drawn in ``ledger.releases.sqlite``; such a ledger is refused until it is migrated
(`parties.ledger.migration`).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np

from parties.errors import LedgerError
from parties.ledger import ledger_lines as lines
from parties.ledger.budget import Budget, SpentBudgets
from parties.ledger.cell_store import CELL_TABLES, CellStore
from parties.ledger.hash_chain import HashChain
from parties.ledger.ledger_lines import ChargedColumn, Fields, GridKey, Occasion, ResolvedTest, Reuse
from parties.ledger.record_sets import SET_TABLES, keep_records, stored_records
from parties.tables.key_sets import NAME, KeySet


class Ledger:
    """What one party released, in all its runs. Verified when it is opened, and whatever is new before every charge.

    Parameters
    ----------
    path : Path
    create : bool
        Whether a ledger that is not there yet is begun.
    migrates : bool
        Whether one of an earlier version is opened nevertheless.

    Raises
    ------
    LedgerError
        If a line was changed or lost, if the ledger was replaced, or if it cannot be read.
    """

    def __init__(self, path: Path, *, create: bool = True, migrates: bool = False) -> None:
        self.path = path
        self.balances = SpentBudgets()
        self.n_releases, self.n_reuses, self.n_answered = (Counter[str]() for _ in range(3))
        self.peers: set[str] = set()
        self.old_contents: dict[int, str] = {}
        self.is_migrated = False
        self._contents: dict[int, dict[str, str]] = {}
        self.families: dict[str, str] = {}
        self._tests: dict[tuple[str, str], set[ResolvedTest]] = {}
        self.grids: dict[GridKey, list[float]] = {}
        self._trained: dict[tuple[str, bool], set[str]] = {}
        self._add: Callable[[Fields], int] | None = None
        tables = (*SET_TABLES, *CELL_TABLES)
        self._lines = HashChain(
            path, count=self._count, tables=tables, create=create, sums=self._sums, take_up=self._take_up
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
        """Tells this ledger from every other one."""
        return self._lines.name

    @property
    def n_lines(self) -> int:
        """How many lines were verified."""
        return self._lines.n_lines

    def charge(
        self, releases: Sequence[ChargedColumn], reuses: Mapping[str, Reuse], occasion: Occasion, budget: Budget
    ) -> list[int]:
        """Enter what is about to be drawn, and what is used again; all of it or, over budget, nothing.

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
            self.balances.check([release.cost for release in releases], budget)
            for column, reuse in reuses.items():
                add(lines.reuse_fields(column, reuse, occasion))
            return [self._enter(add, release, occasion) for release in releases]

    @contextmanager
    def changing(self, *, always_writes: bool = False) -> Iterator[Callable[[Fields], int]]:
        """One process at a time reads and adds; what the block adds, here and in `cells`, is kept as a whole."""
        if self._add is not None:
            yield self._add
            return
        with self._lines.adding(always_writes=always_writes) as self._add:
            try:
                yield self._add
            finally:
                self._add = None

    def undone(self) -> AbstractContextManager[None]:
        """Undo what a block adds within `changing`, here and in `cells`; it takes as long as if it stayed."""
        return self._lines.undone()

    def note_stored(self, charge: int, names: str, content: str) -> None:
        """Enter the digest of what was drawn at a charge for a set of records."""
        with self.changing() as add:
            add(lines.stored_fields(charge, names, content))

    def note_released(self, records: KeySet, occasion: Occasion, *, held_out: bool = False) -> None:
        """Enter the records that a run releases to a peer or holds out, unless they are those of an earlier one."""
        with self.changing() as add:
            line = lines.records_fields("held_out" if held_out else "released", records, occasion)
            if line["records"] not in self._trained.get((occasion.peer, held_out), ()):
                keep_records(self._lines.database, line["records"], records)
                add(line)

    def trained(self, peer: str, *, held_out: bool = False) -> list[KeySet]:
        """The records of all releases for training to a peer, or of what runs with it held out."""
        return [self._records(digest) for digest in self.trained_digests(peer, held_out=held_out)]

    def trained_digests(self, peer: str, *, held_out: bool = False) -> list[str]:
        """What tells these sets of records, without reading them."""
        return sorted(self._trained.get((peer, held_out), ()))

    def note_tests(self, tests: Sequence[ResolvedTest], occasion: Occasion) -> None:
        """Enter tests whose thresholds are about to be resolved."""
        with self.changing() as add:
            add(lines.tests_fields(tests, occasion))

    def tests(self, peer: str, run_id: str | None = None) -> set[ResolvedTest]:
        """What a peer had resolved in one run or in all."""
        return set().union(*(t for key, t in self._tests.items() if key[0] == peer and run_id in (None, key[1])))

    def n_tests(self, column: str) -> int:
        """How many tests on a column were resolved in all runs, each peer's counted by itself."""
        peers = {peer for peer, _ in self._tests}
        return sum(self.families.get(test[0]) == column for peer in peers for test in self.tests(peer))

    @property
    def n_stored(self) -> int:
        """How many sets of cells were stored."""
        return sum(map(len, self._contents.values()))

    def content(self, charge: int, names: str) -> str | None:
        """The digest of what was drawn at a charge for a set of records, or None if that never reached the store."""
        return self._contents.get(charge, {}).get(names)

    def records_of(self, charge: int) -> KeySet:
        """The records that a line charges."""
        return self._records(self.line(charge)["records"])

    def line(self, number: int) -> Fields:
        """A line that was verified."""
        return self._lines.line(number)

    def verify(self) -> None:
        """Read everything that was drawn and compare it with the lines; a `LedgerError` if it differs."""
        with self.changing():
            for digest in set().union(*self._trained.values()):
                self._records(digest)
            self.cells.verify()

    def checkpoint(self) -> None:
        """Move what was committed from the write-ahead log, where removed keys may stand, to the file."""
        with self._lines.reading():
            self._lines.database.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def backup(self, target: sqlite3.Connection) -> None:
        """Copy the ledger's file as it is at one moment, whoever uses it."""
        with self._lines.reading():
            self._lines.database.backup(target)

    def refresh(self) -> None:
        """Read and verify what other processes have added."""
        self._lines.refresh()

    def _enter(self, add: Callable[[Fields], int], release: ChargedColumn, occasion: Occasion) -> int:
        """Enter a release's charge and, of a Local-Map, its cells; returns the number of the charge."""
        charge = self.balances.charge_of(release.cost)
        line = lines.charge_fields(release, charge, occasion)
        keep_records(self._lines.database, line["records"], charge.records)
        number = add(line)
        if release.cost.cells is not None:
            add(lines.cells_fields(charge.column, release.cost.cells, line, occasion))
        return number

    def _count(self, line: dict[str, Any]) -> None:
        """Take a verified line into the sums."""
        match line["kind"]:
            case "charge":
                self.families[line.get("family", "")] = line["column"]
                self._count_charge(line)
                self.n_releases[line["column"]] += 1
                self._count_answered(line)
            case "released" | "held_out":
                self._count_answered(line)
            case "cells":
                self._count_charge(line)
            case "stored" if "names" in line:
                self._contents.setdefault(line["charge"], {})[line["names"]] = line["content"]
            case "stored":
                self.old_contents[line["charge"]] = line["content"]
            case "reuse":
                self.n_reuses[line["column"]] += 1
                self._count_answered(line)
            case "tests":
                key = line["peer"], line["run_id"]
                self._tests.setdefault(key, set()).update(tuple(test) for test in line["tests"])
            case "grid":
                self.grids[lines.grid_key(line)] = line["thresholds"]
            case "migrated":
                self.is_migrated = True
            case _:
                raise ValueError("a kind of line that this version does not know")

    def _count_charge(self, line: dict[str, Any]) -> None:
        digest = line["records"]
        # Records that were read for an earlier line are known by their digest.
        records = np.empty(0, NAME) if self.balances.knows(digest) else self._records(digest)
        self.balances.add(lines.charged(line, records), digest)

    def _count_answered(self, line: dict[str, Any]) -> None:
        self.peers.add(line["peer"])
        if line["task"] == "train" and "records" in line:
            self._trained.setdefault((line["peer"], line["kind"] == "held_out"), set()).add(line["records"])
        if line["task"] == "predict":
            self.n_answered[line["column"]] += line["n_records"]

    def _refuse_earlier_version(self) -> None:
        if self.old_contents and not self.is_migrated:
            store = self.path.with_suffix(".releases.sqlite")
            lost = "" if store.exists() else f" {store.name}, which belongs to it, is not there: restore it first."
            raise LedgerError(
                f"{self.path} is of an earlier version, which kept what was drawn in {store.name}.{lost} "
                "`opboost ledger RUN.yaml --migrate` takes it over. Nothing was released"
            )

    def _sums(self) -> dict[str, Any]:
        """Everything that was counted, as plain values."""
        return {
            "balances": self.balances.to_dict(),
            "releases": self.n_releases,
            "reuses": self.n_reuses,
            "answered": self.n_answered,
            "peers": sorted(self.peers),
            "families": self.families,
            "contents": [list(self._contents), list(self._contents.values())],
            "old_contents": [list(self.old_contents), list(self.old_contents.values())],
            "is_migrated": self.is_migrated,
            "trained": [[*key, sorted(found)] for key, found in self._trained.items()],
            "grids": [list(self.grids), list(self.grids.values())],
            "tests": [[*key, sorted(map(list, tests), key=str)] for key, tests in self._tests.items()],
        }

    def _take_up(self, sums: dict[str, Any]) -> None:
        """The inverse of `_sums`; the records are verified as ever."""
        self.balances.take_up(sums["balances"], self._records)
        self.n_releases, self.n_reuses = Counter(sums["releases"]), Counter(sums["reuses"])
        self.n_answered, self.families = Counter(sums["answered"]), sums["families"]
        self.peers, self.is_migrated = set(sums["peers"]), sums["is_migrated"]
        self._contents = dict(zip(*sums["contents"], strict=True))
        self.old_contents = dict(zip(*sums["old_contents"], strict=True))
        self._trained = {(peer, held_out): set(found) for peer, held_out, found in sums["trained"]}
        self.grids = {tuple(key): cuts for key, cuts in zip(*sums["grids"], strict=True)}
        self._tests = {(peer, run): {tuple(test) for test in tests} for peer, run, tests in sums["tests"]}

    def _records(self, digest: str) -> KeySet:
        """A set of records, verified; a large one stays where it is."""
        found = stored_records(self._lines.database, digest)
        if found is None:
            raise self._lines.tampered("the records of a line were changed or removed")
        return found
