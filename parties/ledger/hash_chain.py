"""Hash chain: append-only lines, each with a digest over all before it. Every ledger is built on one.

===========================  ==============================================================================
``ledger.sqlite``            the lines, each with a digest that covers the digest before it
``ledger.head.json``         number and digest of the last line: a ledger that lost lines at its end differs
``ledger.sums.json``         sums of many lines, so that they need not be added up at every opening
===========================  ==============================================================================

A line is committed first and the head follows, both while no other process may write. A crash in between leaves a head
that is behind, never one that is ahead; the next user moves it on. Whoever can rewrite *all* of the files can forge
a consistent account: the seals reveal damage and tampering to the owner, and do not bind the owner.

Every opening reads every line. Those that were verified one by one before are compared as a whole: the head holds one
digest of all their bytes and one of the file with their sums. That is as strong as their seals, which rest on the head,
too. If the digests differ, the lines are verified one by one, which finds the wrong one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from secrets import token_bytes
from typing import Any

from parties.errors import LedgerError, RunFolderError
from parties.ledger.chain_head import Head, Verified, is_chain_begun, read_head, write_private
from parties.ledger.ledger_lines import BEGINNING, Fields, canonical, opened_fields, seal
from parties.storage.paths import read_file
from parties.storage.sqlite import beside, connect, file_at, only_added, reporting, transaction

# Of the file with sums; one of another format is not used, and every line is added up again.
_SUMS_FORMAT = 5

# Sums are kept at an opening that finds so many lines more than the last time.
LINES_PER_SUMS = 2000

# Lines that are read at a time when they are compared as a whole.
_LINES_AT_ONCE = 1000

_TABLES = ("CREATE TABLE IF NOT EXISTS lines (number INTEGER PRIMARY KEY, fields TEXT NOT NULL, digest TEXT NOT NULL)",)


class HashChain:
    """The lines of one ledger. Verified when it is opened; new lines are verified before every addition.

    Parameters
    ----------
    path : Path
    count : callable
        Adds every verified line to the owner's sums, once. Raises KeyError, TypeError or ValueError for a line that
        this version does not write.
    tables : sequence of str
        Statements that create the owner's own tables in the database.
    create : bool
        Whether to begin a ledger if the file does not exist; never through a symbolic link.
    sums, take_up : callable, optional
        The owner's sums as plain values, and the inverse, into an owner that has counted nothing.
    mark : callable, optional
        A digest of some of the owner's sums, kept in the head.

    Raises
    ------
    LedgerError
        If a line was changed or lost, if the ledger was replaced, or if it cannot be read.
    """

    def __init__(
        self,
        path: Path,
        *,
        count: Callable[[dict[str, Any]], None],
        tables: Sequence[str] = (),
        create: bool = True,
        sums: Callable[[], dict[str, Any]] | None = None,
        take_up: Callable[[dict[str, Any]], None] | None = None,
        mark: Callable[[], str] | None = None,
    ) -> None:
        self.path = path
        self.head_path, self.sums_path = beside(path, ".head.json"), beside(path, ".sums.json")
        if not is_chain_begun(path) and not create:
            raise LedgerError(f"{path} is not there. Nothing was released")
        with reporting(path):
            found = file_at(path)
        self.name = ""
        self.n_lines = 0
        self._last = (0, BEGINNING)
        self._count, self._sums, self._take_up, self._mark = count, sums, take_up, mark
        self._may_begin = create
        self._digest = BEGINNING
        self._verified: Verified | None = None
        self.database = connect(path, (*_TABLES, *only_added("lines"), *tables))
        self._file = found or file_at(path)

    def close(self) -> None:
        """Close the database."""
        self.database.close()

    def refresh(self, *, is_opening: bool = False, always_writes: bool = False) -> None:
        """Verify new lines and move the head to the last one, in one transaction; begins an empty ledger.

        Sums are stored only when a ledger is opened, since that takes time. With `always_writes`, the head is written
        even if it stays the same.
        """
        with reporting(self.path), transaction(self.database):
            self._read_new_lines()
            if self.n_lines == 0:
                self._begin()
            head = self._head()
            if is_opening and self._sums is not None and self.n_lines - self._n_summed >= LINES_PER_SUMS:
                with suppress(OSError):
                    self._verified = self._keep_sums(self._sums())
            new_head = Head(self.n_lines, self._digest, self._verified, self._mark and self._mark())
            if head != new_head or always_writes:
                self._write_head(new_head)

    @contextmanager
    def adding(self, *, always_writes: bool = False) -> Iterator[Callable[[Fields], int]]:
        """A transaction that appends lines, all or none.

        With `always_writes`, the head is written also where no line was added.
        """
        with reporting(self.path):
            with transaction(self.database):
                self._read_new_lines()
                self._last = (self.n_lines, self._digest)

                def add(fields: Fields) -> int:
                    number, before = self._last[0] + 1, self._last[1]
                    text = canonical({"number": number, **fields})
                    self._last = (number, seal(before, text))
                    self.database.execute("INSERT INTO lines VALUES (?, ?, ?)", (number, text, self._last[1]))
                    return number

                yield add
            self.refresh(always_writes=always_writes)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Roll back what the block adds, after the same work as for a commit: added lines are read and sealed."""
        before = self._last
        self.database.execute("SAVEPOINT undone")
        yield
        added = self.database.execute("SELECT fields, digest FROM lines WHERE number > ?", before[:1]).fetchall()
        for text, digest in added:
            seal(digest, canonical(json.loads(text)))
        self.database.execute("ROLLBACK TO undone")
        self.database.execute("RELEASE undone")
        self._last = before

    def has_new_mark(self) -> bool:
        """Whether the mark in the head differs from that of the lines that were read, without reading new ones.

        A head of an earlier version has none, and counts as one that differs.
        """
        with reporting(self.path):
            self._check_place()
            head = self._head()
        return head is None or head.mark is None or self._mark is None or head.mark != self._mark()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn errors of SQLite and the file system within the block into one sentence."""
        with reporting(self.path):
            yield

    def line(self, number: int) -> Fields:
        """A line that was verified."""
        (text,) = self.database.execute("SELECT fields FROM lines WHERE number = ?", (number,)).fetchone()
        found: Fields = json.loads(text)
        return found

    def tampered(self, what: str) -> LedgerError:
        """The error for content that differs from what was written."""
        return LedgerError(
            f"{self.path} cannot be trusted: {what}. Restore the ledger and its head from the same backup. Nothing was "
            "released"
        )

    @property
    def _n_summed(self) -> int:
        return 0 if self._verified is None else self._verified.lines

    def _begin(self) -> None:
        """The first line. Its head goes first: without a head, a ledger is never taken for a new one."""
        if not self._may_begin:
            raise LedgerError(f"{self.path} holds no ledger")
        text = canonical({"number": 1, **opened_fields(token_bytes(16).hex())})
        self._write_head(Head(1, seal(BEGINNING, text)))
        self.database.execute("INSERT INTO lines VALUES (1, ?, ?)", (text, seal(BEGINNING, text)))
        self._read_new_lines()

    def _read_new_lines(self) -> None:
        """Verify and count every line since the last look, and compare the whole with the head."""
        self._check_place()
        if self.n_lines == 0:
            self._take_up_sums()
        elif self._digest_at(self.n_lines) != self._digest:
            raise self.tampered(f"line {self.n_lines} is no longer what it was")
        rows = self.database.execute(
            "SELECT number, fields, digest FROM lines WHERE number > ? ORDER BY number", (self.n_lines,)
        )
        for number, text, digest in rows:
            if number != self.n_lines + 1 or digest != seal(self._digest, text):
                raise self.tampered(f"line {self.n_lines + 1} was changed or removed")
            self._count_line(text)
            self.n_lines, self._digest = number, digest
        self._compare_with_head()

    def _check_place(self) -> None:
        """Refuse to use a file that was replaced at its path: the head there belongs to the new one."""
        if file_at(self.path) != self._file:
            raise LedgerError(
                f"{self.path} was replaced or removed since this process opened it: start this process again. Nothing "
                "was released"
            )

    def _count_line(self, text: str) -> None:
        try:
            line = json.loads(text)
            if line["kind"] == "opened":
                self.name = str(line["name"])
            else:
                self._count(line)
        except (KeyError, TypeError, ValueError):
            raise LedgerError(
                f"{self.path}: line {self.n_lines + 1} is not one that this version writes. Nothing was released"
            ) from None

    def _take_up_sums(self) -> None:
        """Start from the stored sums, if they and their lines have the digests that the head holds."""
        head = self._head()
        if head is None or head.verified is None or self._take_up is None:
            return
        known = head.verified
        try:
            kept = read_file(self.sums_path)
        except RunFolderError:
            return
        if hashlib.sha256(kept).hexdigest() != known.sums or self._content(known.lines) != known.content:
            return
        document = json.loads(kept)
        if self._digest_at(known.lines) != known.digest or document["format"] != _SUMS_FORMAT:
            return
        self._take_up(document["sums"])
        self.name, self.n_lines, self._digest, self._verified = document["name"], known.lines, known.digest, known

    def _keep_sums(self, sums: dict[str, Any]) -> Verified:
        """Store the sums of all lines. The file is used only once the head, which is written later, has its digest."""
        kept = json.dumps({"format": _SUMS_FORMAT, "name": self.name, "sums": sums}).encode()
        write_private(self.sums_path, kept)
        return Verified(self.n_lines, self._digest, self._content(self.n_lines), hashlib.sha256(kept).hexdigest())

    def _content(self, n_lines: int) -> str:
        """One digest over the first `n_lines` lines and their own digests; empty if some are missing."""
        digest, n_found = hashlib.sha256(), 0
        for start in range(0, n_lines, _LINES_AT_ONCE):
            rows = self.database.execute(
                "SELECT fields, digest FROM lines WHERE number > ? AND number <= ? ORDER BY number",
                (start, min(start + _LINES_AT_ONCE, n_lines)),
            ).fetchall()
            n_found += len(rows)
            digest.update("\n".join(chain.from_iterable(rows)).encode())
        return digest.hexdigest() if n_found == n_lines else ""

    def _compare_with_head(self) -> None:
        head = self._head()
        if self.n_lines == 0 and (head is None or head.lines <= 1):
            return
        if head is None:
            raise self.tampered(f"{self.head_path.name}, which tells how many lines there must be, is not there")
        if head.lines > self.n_lines:
            raise self.tampered(f"it has {self.n_lines} lines where {self.head_path.name} says {head.lines}")
        if self._digest_at(head.lines) != head.digest:
            raise self.tampered(f"it is not the ledger of {self.head_path.name}")

    def _digest_at(self, number: int) -> str | None:
        row = self.database.execute("SELECT digest FROM lines WHERE number = ?", (number,)).fetchone()
        return None if row is None else str(row[0])

    def _head(self) -> Head | None:
        try:
            return read_head(self.head_path)
        except FileNotFoundError:
            return None
        except ValueError:
            raise self.tampered(f"{self.head_path.name} cannot be read as the head of a ledger") from None

    def _write_head(self, head: Head) -> None:
        write_private(self.head_path, json.dumps(asdict(head)).encode())
