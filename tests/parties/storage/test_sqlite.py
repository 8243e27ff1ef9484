"""SQLite databases: private, written through, and changed as a whole or not at all."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from parties.errors import LedgerError
from parties.storage.sqlite import check_place, connect, first_row, is_begun, reporting, transaction
from tests.support.modes import exposed

TABLES = ("CREATE TABLE IF NOT EXISTS numbers (n INTEGER)",)


@pytest.fixture
def database(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    found = connect(tmp_path / "new" / "books.sqlite", TABLES)
    yield found
    found.close()


def numbers(database: sqlite3.Connection) -> list[int]:
    return [n for (n,) in database.execute("SELECT n FROM numbers")]


def test_a_database_is_private_written_through_and_forgets_what_is_deleted(
    database: sqlite3.Connection, tmp_path: Path
) -> None:
    with transaction(database):
        database.execute("INSERT INTO numbers VALUES (1)")
    assert exposed(tmp_path) == set()
    pragmas = [database.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    assert pragmas == ["wal", 2]
    assert database.execute("PRAGMA secure_delete").fetchone() == (1,)


def test_what_is_no_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, kind in (("pipe", "a named pipe"), (".", "a folder")):
        with pytest.raises(LedgerError, match=f"it is {kind}, and a database is a file. Nothing was released"):
            connect(tmp_path / name, TABLES)


def test_a_place_for_a_database_is_checked_and_nothing_is_made(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("id,age\n1,2\n")
    for name, mode, words in (
        ("data.csv", 0o644, "has mode 0644"),
        ("data.csv", 0o600, "file is not a database"),
        ("data.csv/below", 0o600, "cannot be used: .*data.csv is no folder"),
        (".", 0o700, "it is a folder"),
    ):
        (tmp_path / "data.csv").chmod(mode)
        with pytest.raises(LedgerError, match=f"{words}.* Nothing was released"):
            check_place(tmp_path / name)
    (tmp_path / "empty").touch(0o600)
    connect(tmp_path / "books.sqlite", TABLES).close()
    before = sorted(tmp_path.iterdir())
    for name in ("empty", "books.sqlite", "a/b/c.sqlite"):
        check_place(tmp_path / name)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("link", "leads_to", "below"),
    [
        ("runs", "nowhere", "books.sqlite"),
        ("runs", "runs", "a/books.sqlite"),
        ("books.sqlite", "none/books.sqlite", ""),
        ("books.sqlite", "books.sqlite", ""),
        ("books.sqlite", "elsewhere/books.sqlite", ""),
    ],
)
def test_no_database_is_made_where_a_link_leads_nowhere(tmp_path: Path, link: str, leads_to: str, below: str) -> None:
    """The folder of a disk that is not mounted is there and empty."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / link).symlink_to(leads_to)
    words = r"is no folder, or may not be written to" if below else r"is a link to .*, which is not there: bring .*"
    for refuse in (check_place, lambda path: connect(path, TABLES)):
        with pytest.raises(LedgerError, match=words + r"\. Nothing was released"):
            refuse(tmp_path / link / below)
    assert not list((tmp_path / "elsewhere").iterdir())


def test_a_link_leads_to_a_database_and_a_folder_behind_a_link_takes_one(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to("elsewhere")
    (tmp_path / "linked.sqlite").symlink_to("elsewhere/books.sqlite")
    for name in ("runs/books.sqlite", "linked.sqlite"):
        check_place(tmp_path / name)
        connect(tmp_path / name, TABLES).close()
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {"books.sqlite"}


def test_a_file_with_two_names_is_refused_under_both(tmp_path: Path) -> None:
    """SQLite keeps a log for each name, and processes that used two of them lost each other's lines."""
    connect(tmp_path / "books.sqlite", TABLES).close()
    (other := tmp_path / "others.sqlite").hardlink_to(tmp_path / "books.sqlite")
    for path in (tmp_path / "books.sqlite", other):
        for refuse in (check_place, lambda path: connect(path, TABLES)):
            with pytest.raises(LedgerError, match=r"2 names \(hard links\).* symbolic links .*\. Nothing was released"):
                refuse(path)
    other.unlink()
    connect(tmp_path / "books.sqlite", TABLES).close()


def test_a_row_is_looked_up_and_nothing_is_made_or_written(database: sqlite3.Connection, tmp_path: Path) -> None:
    """Also beside a process that has not written its log into the file."""
    question = "numbers", "SELECT n FROM numbers WHERE n > ?", "1"
    path = tmp_path / "new" / "books.sqlite"
    assert first_row(path, *question) is None
    database.execute("INSERT INTO numbers VALUES (2)")
    assert first_row(path, *question) == (2,)
    database.close()
    before = {one: one.read_bytes() for one in path.parent.iterdir()}
    assert first_row(path, *question) == (2,)
    assert first_row(path, "others", "SELECT n FROM others") is None
    assert first_row(path.with_name("none"), *question) is None
    assert {one: one.read_bytes() for one in path.parent.iterdir()} == before
    path.write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises(LedgerError, match="cannot be used"):
        first_row(path, *question)


def test_a_database_is_begun_or_not_and_behind_a_link_that_leads_nowhere_nothing_tells(tmp_path: Path) -> None:
    (link := tmp_path / "linked.sqlite").symlink_to(tmp_path / "books.sqlite")
    assert not is_begun(tmp_path / "books.sqlite")
    with pytest.raises(LedgerError, match="which is not there"):
        is_begun(link)
    connect(tmp_path / "books.sqlite", TABLES).close()
    assert is_begun(link)


def test_a_transaction_that_fails_changes_nothing(database: sqlite3.Connection) -> None:
    def fail() -> None:
        with transaction(database):
            database.execute("INSERT INTO numbers VALUES (1)")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert not database.in_transaction
    with transaction(database):
        database.execute("INSERT INTO numbers VALUES (2)")
    assert numbers(database) == [2]


def test_a_transaction_waits_for_another_one_before_it_reads(database: sqlite3.Connection, tmp_path: Path) -> None:
    has_begun = threading.Event()

    def count() -> None:
        other = connect(tmp_path / "new" / "books.sqlite", TABLES)
        has_begun.set()
        with transaction(other):
            other.execute("INSERT INTO numbers SELECT COUNT(*) FROM numbers")
        other.close()

    with transaction(database):
        thread = threading.Thread(target=count, daemon=True)
        thread.start()
        assert has_begun.wait(10)
        database.execute("INSERT INTO numbers VALUES (7)")
    thread.join(10)
    assert numbers(database) == [7, 1]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_may_use_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "books.sqlite"
    path.touch()
    path.chmod(mode)
    with pytest.raises(LedgerError, match=rf"mode {mode:04o}; it must be readable by its owner alone \(0600\)"):
        connect(path, TABLES)


def test_what_is_no_database_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "books.sqlite"
    path.write_text("no database " * 100)
    path.chmod(0o600)
    with pytest.raises(LedgerError, match=r"books\.sqlite cannot be used: .* Nothing was released"):
        connect(path, TABLES)


@pytest.mark.parametrize(
    ("sound", "damaged", "sentence"),
    [
        (b"name TEXT", b"name T\x05XT", "malformed database schema"),
        (b"CREATE TABLE secrets", b"CR\xd2ATE TABLE secrets", "it is damaged"),
        (b"the key", b"the \x80ey", "Could not decode to UTF-8 column 'name'"),
    ],
)
def test_nothing_of_a_damaged_database_is_quoted(tmp_path: Path, sound: bytes, damaged: bytes, sentence: str) -> None:
    path = tmp_path / "books.sqlite"
    connect(path, ("CREATE TABLE secrets (name TEXT)", "INSERT INTO secrets VALUES ('the key')")).close()
    path.write_bytes(path.read_bytes().replace(sound, damaged))
    with pytest.raises(LedgerError) as found, reporting(path), closing(connect(path, TABLES)) as database:
        database.execute("SELECT name FROM secrets").fetchall()
    assert str(found.value) == f"{path} cannot be used: {sentence}. Nothing was released"


def test_other_errors_keep_their_own_words(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="mine"), reporting(tmp_path):
        raise KeyError("mine")


def test_a_process_keeps_its_locks_whatever_else_looks_at_its_database(tmp_path: Path) -> None:
    """Locks of a file end with any of its descriptors that a process closes; the next one to look took the log away."""
    path = tmp_path / "ledger.sqlite"
    tables = ("CREATE TABLE IF NOT EXISTS lines (number INTEGER)",)
    with closing(connect(path, tables)) as mine:
        mine.execute("INSERT INTO lines VALUES (1)")
        # As the same process does for counts of answers, and a doctor for the place.
        check_place(path)
        connect(path, tables).close()
        count = "sqlite3.connect(sys.argv[1]).execute('SELECT count(*) FROM lines').fetchone()"
        look = [sys.executable, "-c", f"import sqlite3, sys; print({count})", str(path)]
        assert subprocess.run(look, capture_output=True, text=True).stdout == "(1,)\n"
        assert path.with_name("ledger.sqlite-wal").exists()
        mine.execute("INSERT INTO lines VALUES (2)")
        assert subprocess.run(look, capture_output=True, text=True).stdout == "(2,)\n"
