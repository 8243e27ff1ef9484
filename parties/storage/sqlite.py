"""SQLite databases with mode 0600, whose commits survive a crash and a power cut."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

from parties.errors import LedgerBusy, LedgerError
from parties.storage.paths import is_there, nearest_there, odd_kind, takes_files
from protocols.private_files import private_folder, private_opener

# How long to wait for another process that draws or charges at the moment.
WAIT_S = 60.0


def check_place(path: Path) -> None:
    """Refuse a file that is no database of this party's alone, and a place at which none can be made.

    Raises
    ------
    LedgerError
    """
    with reporting(path):
        _check_file(path)
        if path.exists():
            with closing(_looked_at(path)) as database:
                database.execute("SELECT 1 FROM sqlite_master")


def _check_file(path: Path) -> None:
    """Check all but the content of the file.

    SQLite alone opens the file: where this process uses the database, closing another descriptor of it would let go of
    all of SQLite's locks, and the next process that looks would take the log away (SQLite, *How to corrupt*, 2.2).
    """
    if not path.exists():
        _refuse_lost_target(path)
        there = nearest_there(path.parent)
        if not takes_files(there):
            raise LedgerError(
                f"{path} cannot be used: {there} is no folder, or may not be written to. Nothing was released"
            )
        return
    if kind := odd_kind(path):
        raise LedgerError(f"{path} cannot be used: it is {kind}, and a database is a file. Nothing was released")
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise LedgerError(
            f"{path} has mode {mode:04o}; it must be readable by its owner alone (0600). Nothing was released"
        )
    check_names(path)
    if not os.access(path, os.R_OK | os.W_OK):
        raise LedgerError(f"{path} cannot be used: it may not be read or written to. Nothing was released")


def check_names(path: Path) -> None:
    """Refuse a file with hard links: SQLite keeps a log for each name, and lines in the one are not seen by the other.

    Raises
    ------
    LedgerError
    """
    if (n_names := path.stat().st_nlink) > 1:
        raise LedgerError(
            f"{path} is a file with {n_names} names (hard links), and what is written by one of them may be lost by "
            "another: end what uses it, keep one name, and make symbolic links for the others. Nothing was released"
        )


def is_begun(path: Path) -> bool:
    """Whether a database is there.

    Raises
    ------
    LedgerError
        If the path is a symbolic link to a file that is not there.
    RunFolderError
        If that may not be known.
    """
    if is_there(path):
        return True
    _refuse_lost_target(path)
    return False


def _refuse_lost_target(path: Path) -> None:
    """No database is begun through a link: the one that it led to may be on a disk that is not mounted."""
    if path.is_symlink():
        raise LedgerError(
            f"{path} is a link to {os.path.realpath(path)}, which is not there: bring that file back; or, if there was "
            "none, begin it under its own path by the run of one folder and link it afterwards. Nothing was released"
        )


def first_row(path: Path, table: str, question: str, *values: str) -> tuple[Any, ...] | None:
    """First row of an answer about one table; None if there is none, or no such file or table.

    No file is made and nothing is written.

    Raises
    ------
    LedgerError
        If the file cannot be used.
    """
    with reporting(path):
        if not path.exists():
            return None
        with closing(_looked_at(path)) as database:
            has_table = "SELECT name FROM sqlite_master WHERE type = 'table' AND name = ?"
            if database.execute(has_table, (table,)).fetchone() is None:
                return None
            found: tuple[Any, ...] | None = database.execute(question, values).fetchone()
            return found


def _looked_at(path: Path) -> sqlite3.Connection:
    """A database that is not made. One that may write takes SQLite's own files away at its end, others leave them."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=rw", timeout=WAIT_S, uri=True)


def beside(path: Path, ending: str) -> Path:
    """A file that belongs to a database; it lies beside that itself, whatever link the path is, as SQLite's own do."""
    return Path(os.path.realpath(path)).with_suffix(ending)


def file_at(path: Path) -> tuple[int, int] | None:
    """Identity of the file, independent of its content."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found.st_dev, found.st_ino


def only_added(table: str) -> tuple[str, ...]:
    """Statements that keep a table's rows from being changed or removed by accident."""
    return tuple(
        f"CREATE TRIGGER IF NOT EXISTS no_{verb}_{table} BEFORE {verb} ON {table} "
        "BEGIN SELECT RAISE(ABORT, 'lines are only ever added'); END"
        for verb in ("UPDATE", "DELETE")
    )


def connect(path: Path, tables: Sequence[str]) -> sqlite3.Connection:
    """Open a database; create it and its tables where they are absent.

    Raises
    ------
    LedgerError
        If the file cannot be made, is not a database, or may be read by others than its owner.
    """
    with reporting(path):
        _check_file(path)
        private_folder(path.parent)
        with suppress(FileExistsError):
            open(path, "xb", opener=private_opener).close()
        database = sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)
        try:
            _write_through(database)
            for table in tables:
                database.execute(table)
        except BaseException:
            database.close()
            raise
        return database


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """Immediate transaction: atomic, and one process at a time; others wait before they read."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
        database.execute("COMMIT")
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise


@contextmanager
def reporting(path: Path) -> Iterator[None]:
    """Turn errors of SQLite or the file system into one sentence."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        kind = LedgerBusy if _is_busy(error) else LedgerError
        raise kind(f"{path} cannot be used: {_reason(error)}. Nothing was released") from None
    except OSError as error:
        raise LedgerError(f"{path} cannot be used: {error.strerror}. Nothing was released") from None


def _reason(error: sqlite3.Error | UnicodeDecodeError) -> str:
    """What SQLite says of an error, without what it quotes of a damaged file, which may be a key or no text at all."""
    if isinstance(error, UnicodeDecodeError):
        return "it is damaged"
    message = str(error)
    return next((message.split(quote)[0] for quote in (" with text ", " (") if quote in message), message)


def _is_busy(error: Exception) -> bool:
    """Whether another connection holds the database; the lowest byte of SQLite's code says so."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _write_through(database: sqlite3.Connection) -> None:
    """Write-ahead log, flushed at every commit. Changing to it needs the file for itself, without SQLite's waiting."""
    deadline = time.monotonic() + WAIT_S
    while True:
        try:
            database.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    database.execute("PRAGMA synchronous = FULL")
    # What is removed, such as a key, is overwritten with zeros.
    database.execute("PRAGMA secure_delete = ON")
