"""Rows are added to a table only if its columns keep every text and every number as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.errors import TableError
from parties.tables.column_types import affinity, check_column_types
from parties.tables.destinations import Destination
from parties.tables.remote_tables import connect
from tests.support.remote_places import PASSWORD, make_table

pytest.importorskip("adbc_driver_sqlite")

IDS = ["007", "7", "0x10", "1e3", "12345678901234567890"]
NUMBERS = [1.0, 1 / 3, 1e300, np.nan, 2.0]
SCORES = pd.DataFrame({"id": IDS, "prediction": NUMBERS, "status": ["ok"] * len(IDS)})

WORDS = ["INT", "CHAR", "CLOB", "TEXT", "BLOB", "REAL", "FLOA", "DOUB", "NUM", "ANY", "x", " ", "", "(10)", "\ufb02oat"]


def made(folder: Path, columns: str, name: str = "scores") -> Path:
    """A database with one table."""
    file, quoted = folder / "scores.db", name.replace('"', '""')
    with closing(sqlite3.connect(file)) as database, database:
        database.execute(f'CREATE TABLE "{quoted}" {columns}')
    return file


def append(file: Path, name: str = "scores", rows: pd.DataFrame = SCORES) -> None:
    spare = file.parent / "predictions.csv"
    Destination.of(f"sqlite://{file}#{name}", spare, overwrite=False, append=True).write(rows)


def stored(file: Path, name: str = "scores") -> list[tuple[object, ...]]:
    quoted = name.replace('"', '""')
    with closing(sqlite3.connect(file)) as database:
        return database.execute(f'SELECT id, prediction, status FROM "{quoted}"').fetchall()


WHOLE = [(id_, None if np.isnan(p) else p, "ok") for id_, p in zip(IDS, NUMBERS, strict=True)]


@pytest.mark.parametrize(
    "columns",
    [
        "(id TEXT, prediction REAL, status TEXT)",
        "(ID varchar(20), Prediction double precision, status nchar(5))",
        "(id, prediction, status)",
        "(id BLOB, prediction BLOB, status CLOB)",
        "(id TEXT PRIMARY KEY, prediction FLOAT, status TEXT, at INTEGER DEFAULT 7)",
        "(id TEXT, prediction REAL, status ANY) STRICT",
        "(id ANY, prediction ANY, status TEXT) STRICT",
    ],
)
@pytest.mark.parametrize("name", ["scores", 'my "own" scores'])
def test_columns_of_sqlite_that_keep_what_is_written(tmp_path: Path, columns: str, name: str) -> None:
    file = made(tmp_path, columns, name)
    append(file, name)
    found = stored(file, name)
    assert found == WHOLE
    assert {type(cell) for _, cell, _ in found} == {float, type(None)}


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ("(id INTEGER, prediction REAL, status TEXT)", r"'id' .* is of type INTEGER, and texts .* need TEXT"),
        ("(ID INT PRIMARY KEY, prediction REAL, status TEXT)", r"'id' .* is of type INT, and texts .* need TEXT"),
        ("(id NUMERIC(20), prediction REAL, status TEXT)", r"'id' .* is of type NUMERIC\(20\), and texts .* need TEXT"),
        ("(id STRING, prediction REAL, status TEXT)", r"'id' .* is of type STRING, and texts .* need TEXT"),
        ("(id REAL, prediction REAL, status TEXT)", r"'id' .* is of type REAL, and texts .* need TEXT"),
        ("(id ANY, prediction REAL, status TEXT)", r"'id' .* is of type ANY, and texts .* need TEXT"),
        ("(id TEXT, prediction TEXT, status TEXT)", r"'prediction' .* is of type TEXT, and numbers .* need REAL"),
        ("(id TEXT, prediction INTEGER, status TEXT)", r"'prediction' .* is of type INTEGER, and numbers .* need REAL"),
        # 1.0 would become the integer 1, and half of it 0.
        ("(id TEXT, prediction DECIMAL, status TEXT)", r"'prediction' .* is of type DECIMAL, and numbers .* need REAL"),
        ("(id TEXT, prediction REAL, status DATE)", r"'status' .* is of type DATE, and texts .* need TEXT"),
        ("(id INT, prediction REAL, status TEXT) STRICT", r"'id' .* is of type INT, and texts .* need TEXT"),
        ("(id BLOB, prediction REAL, status TEXT) STRICT", r"'id' .* is of type BLOB, and texts .* need TEXT"),
        ("(id TEXT, prediction BLOB, status TEXT) STRICT", r"'prediction' .* is of type BLOB, and numbers .* need"),
    ],
)
def test_columns_of_sqlite_that_change_what_is_written_get_no_row(tmp_path: Path, columns: str, words: str) -> None:
    """'007' and '7' of two records became 7, and 12345678901234567890 a number with 16 of its digits."""
    file = made(tmp_path, columns)
    with pytest.raises(TableError, match=f"^no row was added: column {words}") as told:
        append(file, "Scores")
    assert "The predictions are in " in str(told.value)
    assert "Nothing was sent" not in str(told.value)
    assert stored(file) == []
    (kept,) = tmp_path.glob("predictions.*.csv")
    assert pd.read_csv(kept, dtype={"id": str})["id"].tolist() == IDS


@given(st.lists(st.sampled_from(WORDS), max_size=3).map("".join), st.booleans())
def test_a_type_is_accepted_exactly_where_sqlite_changes_nothing(declared: str, is_small: bool) -> None:
    declared = declared.lower() if is_small else declared
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute(f"CREATE TABLE t (x {declared})")
        except sqlite3.OperationalError:
            return
        (kept,) = database.execute("SELECT type FROM pragma_table_xinfo('t')").fetchone()
        found = affinity(kept, is_strict=False)
        written = ("007", "7", "1e3", 1.0, 0.1 + 0.2, 7, 2**53 + 1)
        database.executemany("INSERT INTO t VALUES (?)", [(one,) for one in written])
        cells = [cell for (cell,) in database.execute("SELECT x FROM t ORDER BY rowid")]
    assert ([(cell, type(cell)) for cell in cells[:3]] == [(one, str) for one in ("007", "7", "1e3")]) is (
        found in ("TEXT", "BLOB")
    )
    assert ([(cell, type(cell)) for cell in cells[3:5]] == [(one, float) for one in (1.0, 0.1 + 0.2)]) is (
        found in ("REAL", "BLOB")
    )
    assert ([(cell, type(cell)) for cell in cells[5:]] == [(one, int) for one in (7, 2**53 + 1)]) is (
        found in ("INTEGER", "NUMERIC", "BLOB")
    )


def test_numbers_that_are_no_doubles_are_added_nowhere(tmp_path: Path) -> None:
    """PostgreSQL's driver writes the bytes of an integer; what no prediction holds is refused."""
    file = made(tmp_path, "(id TEXT, prediction REAL, status TEXT)")
    with pytest.raises(TableError, match="column 'prediction'"):
        append(file, rows=SCORES.assign(prediction=1))
    append(file, rows=SCORES.assign(prediction=None))
    assert [cell for _, cell, _ in stored(file)] == [None] * len(IDS)


RANKED = SCORES.assign(rank=range(1, len(IDS) + 1))


@pytest.mark.parametrize(
    "columns",
    [
        "(id TEXT, prediction REAL, status TEXT, rank INTEGER)",
        "(id TEXT, prediction REAL, status TEXT, rank bigint)",
        "(id TEXT, prediction REAL, status TEXT, rank NUMERIC(10))",
        "(id TEXT, prediction REAL, status TEXT, rank)",
        "(id TEXT, prediction REAL, status TEXT, rank INT) STRICT",
        "(id TEXT, prediction REAL, status TEXT, rank ANY) STRICT",
    ],
)
def test_columns_of_sqlite_that_keep_integers_take_ranks(tmp_path: Path, columns: str) -> None:
    """A list of the best records was added to no table, not even to one that such a list had made."""
    file = made(tmp_path, columns)
    append(file, rows=RANKED)
    with closing(sqlite3.connect(file)) as database:
        found = [rank for (rank,) in database.execute("SELECT rank FROM scores")]
    assert [(rank, type(rank)) for rank in found] == [(rank, int) for rank in RANKED["rank"]]


@pytest.mark.parametrize(
    "columns",
    [
        "(id TEXT, prediction REAL, status TEXT, rank REAL)",
        "(id TEXT, prediction REAL, status TEXT, rank TEXT)",
        "(id TEXT, prediction REAL, status TEXT, rank BLOB) STRICT",
    ],
)
def test_columns_of_sqlite_that_change_integers_take_no_ranks(tmp_path: Path, columns: str) -> None:
    file = made(tmp_path, columns)
    with pytest.raises(TableError, match=r"'rank' .*, and integers of the predictions need INTEGER, NUMERIC or no"):
        append(file, rows=RANKED)
    assert stored(file) == []


def test_a_table_without_a_column_of_the_predictions_gets_no_row(tmp_path: Path) -> None:
    """Reasons are asked for of which the table has no columns, or more of them than it has."""
    file = tmp_path / "scores.db"
    append(file)
    words = r"^no row was added: column 'reason_1' cannot be written, .*scores\.db has none of that name in 'scores'; "
    with pytest.raises(TableError, match=words) as told:
        append(file, rows=SCORES.assign(reason_1=None))
    assert "Nothing was sent" not in str(told.value)
    assert stored(file) == WHOLE


def test_a_table_that_a_list_of_the_best_records_made_takes_another(tmp_path: Path) -> None:
    file = tmp_path / "scores.db"
    append(file, rows=RANKED)
    append(file, rows=RANKED.iloc[:0])
    append(file, rows=RANKED)
    assert stored(file) == WHOLE * 2


def test_a_table_that_predictions_made_takes_more_of_them(tmp_path: Path) -> None:
    file = tmp_path / "scores.db"
    append(file, rows=SCORES.assign(reason_1=None))
    append(file, rows=SCORES.assign(reason_1="spend"))
    assert stored(file) == WHOLE * 2


_LONG = "4000123412341234"


@pytest.mark.parametrize(
    ("declared", "id_"),
    [
        ("uuid", _LONG),
        ("macaddr", "123456"),
        ("macaddr8", "12345678"),
        ("point", _LONG),
        ("box", _LONG * 2),
        ("timetz", "\x00\x00\x00\x01abcd\x01\x01\x01a"),
        ("xid", "1234"),
        ("xid8", "12345678"),
        ("cid", "1234"),
        ("pg_lsn", "12345678"),
        ("int4range", "7"),
        ("bytea", "7"),
        ("json", "7"),
        ("jsonb", '\x01{"a":1}'),
    ],
)
def test_columns_of_postgresql_that_take_the_bytes_of_an_id_get_no_row(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str, id_: str
) -> None:
    """An id of sixteen characters became the uuid that has the same bytes."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    make_table(postgres, "own_bytes", f"id {declared}, prediction double precision, status text")
    to = Destination.of(f"{postgres}#own_bytes", tmp_path / "predictions.csv", overwrite=False, append=True)
    words = (
        "no row was added: column 'id' of .* is of type .*, and texts of the predictions need text, varchar or char;"
    )
    with pytest.raises(TableError, match=f"^{words}.*The predictions are in {tmp_path}") as told:
        to.write(pd.DataFrame({"id": [id_], "prediction": [0.5], "status": ["ok"]}))
    # The driver knows no names of ranges.
    assert f"is of type {declared}," in str(told.value) or declared == "int4range"
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM own_bytes")
        assert cursor.fetchall() == [(0,)]


@pytest.mark.parametrize("declared", ["text", "varchar", "varchar(20)", "char(3)", "name", "code"])
def test_columns_of_postgresql_that_hold_texts_take_ids(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("DROP DOMAIN IF EXISTS code CASCADE")
        cursor.execute("CREATE DOMAIN code AS text CHECK (VALUE <> '')")
        database.commit()
    make_table(postgres, "own_texts", f"id {declared}, prediction double precision, status text")
    to = Destination.of(f"{postgres}#own_texts", tmp_path / "predictions.csv", overwrite=False, append=True)
    to.write(pd.DataFrame({"id": ["007", "700"], "prediction": [0.5, 1.0], "status": ["ok", "ok"]}))
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("SELECT id, prediction FROM own_texts ORDER BY 1")
        assert cursor.fetchall() == [("007", 0.5), ("700", 1.0)]


@pytest.mark.parametrize("declared", ["bigint", "bigserial"])
def test_columns_of_postgresql_that_hold_64_bits_take_ranks(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    make_table(postgres, "own_ranks", f"id text, rank {declared}")
    to = Destination.of(f"{postgres}#own_ranks", tmp_path / "predictions.csv", overwrite=False, append=True)
    to.write(pd.DataFrame({"id": ["007", "700"], "rank": [1, 2**53 + 1]}))
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("SELECT id, rank FROM own_ranks ORDER BY 1")
        assert cursor.fetchall() == [("007", 1), ("700", 2**53 + 1)]


@pytest.mark.parametrize("declared", ["integer", "double precision", "money", "amount", "xid8", "timestamp", "bytea"])
def test_columns_of_postgresql_that_take_the_bytes_of_an_integer_get_no_rank(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, declared: str
) -> None:
    """The driver calls amounts of money, and domains over them, integers: a rank of 1 would be a hundredth."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("DROP DOMAIN IF EXISTS amount CASCADE")
        cursor.execute("CREATE DOMAIN amount AS money")
        database.commit()
    make_table(postgres, "no_ranks", f"id text, rank {declared}")
    to = Destination.of(f"{postgres}#no_ranks", tmp_path / "predictions.csv", overwrite=False, append=True)
    with pytest.raises(
        TableError, match=r"^no row was added: column 'rank' .*integers of the predictions need bigint;"
    ):
        to.write(pd.DataFrame({"id": ["007"], "rank": [1]}))
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM no_ranks")
        assert cursor.fetchall() == [(0,)]


def test_columns_that_the_predictions_lack_are_of_any_type(tmp_path: Path) -> None:
    file = made(tmp_path, "(id INTEGER, other TEXT)")
    with closing(connect(f"sqlite://{file}")) as database:
        place = f"sqlite://{file}#scores"
        check_column_types(database, pa.schema({"other": pa.string()}), place=place, schema=None, name="scores")
        with pytest.raises(TableError, match="column 'id'"):
            check_column_types(database, pa.schema({"id": pa.string()}), place=place, schema=None, name="scores")
