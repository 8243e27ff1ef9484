"""Rate limits of a passive party's answers: records per minute, and exact routing bits per day (UTC).

An answer is counted before it leaves, in a SQLite file beside the ledger that all processes of this party share, so
neither a restart nor a second process has a budget of its own. It is counted per active party, over all runs that use
the ledger. Every routed record counts with one bit per test whenever it is asked for, a repetition too: that tells
nothing new, but who counts only what is new must keep who was asked for. A day or a minute never begins twice: a clock
that was put back stands still until it has caught up.

The ledger holds the name of this file, which is drawn with it. Where the file is gone, or another one lies in its
place, its counts are unknown: then the day's bits and the minute's records count as spent. So do they for a day after
a copy of the ledger was put back, whichever counts it knows, unless they are there.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from secrets import token_bytes
from typing import Any, Self

from parties.config.serve_section import ServeSection
from parties.ledger import counts_name
from parties.storage.sqlite import beside, check_place, connect, first_row, reporting, transaction

DAY_S = 24 * 3600
MINUTE_S = 60

_TABLES = (
    "CREATE TABLE IF NOT EXISTS latest (peer TEXT PRIMARY KEY, second INTEGER NOT NULL) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS asked (peer TEXT, second INTEGER, records INTEGER NOT NULL, "
    "PRIMARY KEY (peer, second)) WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS routed (peer TEXT, day INTEGER, bits INTEGER NOT NULL, "
    "PRIMARY KEY (peer, day)) WITHOUT ROWID",
    counts_name.NAMES_TABLE,
)

_LATEST = "SELECT second FROM latest WHERE peer = ?"

# More than any limit, and small enough to be added to.
_ALL = 1 << 60


class Allowance:
    """Rate limits of one active party: the records and exact bits that it may still ask for.

    Parameters
    ----------
    ledger : Path
        The ledger, which is there; the counts lie beside it.
    limits : ServeSection
    peer : str
        The active party.
    clock : callable
        Seconds since 1970, UTC.

    Attributes
    ----------
    is_lost : bool
        Whether earlier counts are missing.
    """

    def __init__(
        self, ledger: Path, limits: ServeSection, peer: str, *, clock: Callable[[], float] = time.time
    ) -> None:
        self.path = allowance_path(ledger)
        self._limits = limits
        self._peer = peer
        self._clock = clock
        self._database = connect(self.path, _TABLES)
        self.is_lost = False
        try:
            self._compare_names(ledger)
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    def take_records(self, n_rows: int) -> int:
        """Charge for as many of a request's records as the rate allows, known or not; returns how many.

        It is charged before any of them is looked up: then the time of the answer tells nothing of the others. Whole
        seconds are counted, those that began less than a minute ago and the one before, so never too few.
        """
        with reporting(self.path), transaction(self._database):
            now = self._now()
            if self._limits.records_per_minute is None:
                return n_rows
            self._database.execute("DELETE FROM asked WHERE peer = ? AND second < ?", (self._peer, now - MINUTE_S))
            spent = self._number("SELECT SUM(records) FROM asked WHERE peer = ?", self._peer)
            n_taken = max(0, min(n_rows, self._limits.records_per_minute - spent))
            self._add(
                "INSERT INTO asked VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET records = records + ?", now, n_taken
            )
            return n_taken

    def take_bits(self, n_known: int, *, bits_each: int) -> int:
        """Charge for exact bits of as many of the known records as the day's limit allows; returns how many.

        Parameters
        ----------
        n_known : int
            Of the records that `take_records` allowed; only known ones cost bits.
        bits_each : int
            Exact bits per known record.
        """
        if self._limits.routed_bits_per_day is None or bits_each == 0:
            return n_known
        with reporting(self.path), transaction(self._database):
            day = self._now() // DAY_S
            spent = self._number("SELECT bits FROM routed WHERE peer = ? AND day = ?", self._peer, day)
            n_paid = max(0, min(n_known, (self._limits.routed_bits_per_day - spent) // bits_each))
            self._add(
                "INSERT INTO routed VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET bits = bits + ?", day, n_paid * bits_each
            )
            return n_paid

    def seconds_behind(self) -> int:
        """By how much the clock is behind the last request; until it has caught up, no limit is renewed."""
        with reporting(self.path):
            return max(0, self._latest() - int(self._clock()))

    def _compare_names(self, ledger: Path) -> None:
        """Count everything as spent if this is not the file that the ledger knows."""
        with closing(connect(ledger, [counts_name.NAMES_TABLE])) as known, reporting(self.path):
            with transaction(self._database):
                mine, expected = _name_in(self._database, self._peer), _name_in(known, self._peer)
                self.is_lost = _are_lost(mine, expected, _name_in(known, counts_name.RESTORED), int(self._clock()))
                if mine is None:
                    mine = token_bytes(16).hex()
                    self._database.execute("INSERT INTO served VALUES (?, ?)", (self._peer, mine))
                if self.is_lost:
                    now = self._now()
                    self._database.execute("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", (self._peer, now, _ALL))
                    day = (self._peer, now // DAY_S, _ALL)
                    self._database.execute("INSERT OR REPLACE INTO routed VALUES (?, ?, ?)", day)
            # Afterwards: a crash in between counts everything as spent once more.
            if mine != expected:
                known.execute("INSERT OR REPLACE INTO served VALUES (?, ?)", (self._peer, mine))

    def _now(self) -> int:
        now = max(int(self._clock()), self._latest())
        self._database.execute("INSERT OR REPLACE INTO latest VALUES (?, ?)", (self._peer, now))
        return now

    def _latest(self) -> int:
        return self._number(_LATEST, self._peer)

    def _add(self, statement: str, when: int, amount: int) -> None:
        if amount:
            self._database.execute(statement, (self._peer, when, amount, amount))

    def _number(self, question: str, *values: str | int) -> int:
        row = self._database.execute(question, values).fetchone()
        return 0 if row is None or row[0] is None else int(row[0])


def counts_state(ledger: Path, peer: str, *, clock: Callable[[], float] = time.time) -> tuple[bool, int]:
    """Whether the counts that the ledger knows are lost, and by how many seconds the clock is behind the last request.

    Nothing is written: whoever answers next counts, and tells, what is lost.

    Raises
    ------
    LedgerError
        If the file of counts cannot be used.
    """
    counts = allowance_path(ledger)
    check_place(counts)
    mine, expected, restored = (
        _name(first_row(path, "served", counts_name.NAME_OF_COUNTS, name))
        for path, name in ((counts, peer), (ledger, peer), (ledger, counts_name.RESTORED))
    )
    latest, now = first_row(counts, "latest", _LATEST, peer), int(clock())
    is_lost = _are_lost(mine, expected, restored, now)
    return is_lost, max(0, latest[0] - now) if latest else 0


def _name_in(database: sqlite3.Connection, peer: str) -> str | None:
    return _name(database.execute(counts_name.NAME_OF_COUNTS, (peer,)).fetchone())


def _name(row: tuple[Any, ...] | None) -> str | None:
    return None if row is None else str(row[0])


def _are_lost(mine: str | None, expected: str | None, restored: str | None, now: int) -> bool:
    """Whether a ledger knows other counts than there are, or none where a copy of it was put back within a day."""
    if mine is expected is None and restored is not None:
        return now - int(restored) < DAY_S
    return expected not in (None, mine)


def allowance_path(ledger: Path) -> Path:
    """Path of the file with the counts, beside the ledger."""
    return beside(ledger, ".served.sqlite")
