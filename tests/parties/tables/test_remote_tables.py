"""Tables of databases and object stores become files that are read like any other, and secrets stay where they are."""

from __future__ import annotations

import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, quote_plus

import numpy as np
import pandas as pd
import pytest

from parties.errors import ConfigError, TableError, notes_on
from parties.tables.parquet_files import read_stored, stored_length
from parties.tables.remote_tables import STORE_RETRY_S, check_uri, connect, fetch, holds_secret, reaching, readable_uri
from tests.support.modes import exposed, open_umask
from tests.support.parquet_folders import in_a_folder
from tests.support.remote_places import PASSWORD

N_ROWS = 3000
SECRET = "a b/é{x"
FRAME = pd.DataFrame({"id": np.arange(N_ROWS), "spend": np.arange(N_ROWS) / 4, "town": ["x", "y", None] * 1000})
ROWS = [(i, s, t) for i, s, t in zip(range(N_ROWS), FRAME["spend"].tolist(), ["x", "y", None] * 1000, strict=True)]


@pytest.fixture
def sqlite_uri(tmp_path: Path) -> str:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE customers (id INTEGER, spend REAL, town TEXT)")
        database.executemany("INSERT INTO customers VALUES (?, ?, ?)", ROWS)
        database.commit()
    return f"sqlite://{tmp_path}/crm.db"


def test_a_query_of_sqlite_is_a_parquet_file(sqlite_uri: str, tmp_path: Path) -> None:
    with open_umask():
        path = fetch(sqlite_uri, tmp_path, query="SELECT * FROM customers ORDER BY id")
    pd.testing.assert_frame_equal(read_stored(path), FRAME, check_dtype=False)
    assert path.stat().st_mode & 0o777 == 0o600


def test_types_of_columns_do_not_follow_from_the_first_rows_alone(sqlite_uri: str, tmp_path: Path) -> None:
    path = fetch(sqlite_uri, tmp_path, query="SELECT CASE WHEN id < 2500 THEN id ELSE 0.5 END AS v FROM customers")
    assert read_stored(path)["v"].iloc[-1] == 0.5


def test_a_query_of_postgresql_goes_through_batch_by_batch(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(connect(postgres, PASSWORD)) as database, database.cursor() as cursor:
        cursor.execute("CREATE TABLE customers (id bigint, spend numeric(10, 2), town text, since date, paid boolean)")
        cursor.execute(
            "INSERT INTO customers SELECT i, i / 4.0, CASE i % 3 WHEN 0 THEN 'x' WHEN 1 THEN 'y' END, "
            "date '2024-05-31', i % 2 = 0 FROM generate_series(0, 2999) AS i"
        )
        database.commit()
    query = "SELECT * FROM customers ORDER BY id"
    path = fetch(postgres, tmp_path, query=query, password=PASSWORD)
    found = read_stored(path)
    pd.testing.assert_frame_equal(found[list(FRAME)], FRAME, check_dtype=False)
    assert found["paid"].sum() == N_ROWS / 2
    # Nothing that a query does stays.
    fetch(postgres, tmp_path, query="DELETE FROM customers RETURNING id", password=PASSWORD)
    assert stored_length(fetch(postgres, tmp_path, query=query, password=PASSWORD)) == N_ROWS
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    assert stored_length(fetch(postgres, tmp_path, query=query)) == N_ROWS


@pytest.mark.parametrize(
    ("query", "password", "words"),
    [
        ("SELECT 'k17'::int", PASSWORD, "SQLSTATE 22P02"),
        ("SELECT * FROM absent", PASSWORD, "SQLSTATE 42P01"),
        ("SELECT 1", "wrong horse", "OperationalError"),
    ],
    ids=["a cell", "no table", "a wrong password"],
)
def test_what_a_database_says_is_told_to_its_owner_alone(
    postgres: str, tmp_path: Path, query: str, password: str, words: str
) -> None:
    with pytest.raises(TableError, match=words) as found:
        fetch(postgres, tmp_path, query=query, password=password)
    sentence, notes = str(found.value), "".join(notes_on(found.value))
    assert "k17" not in sentence
    assert password not in sentence + notes
    assert notes


def put(query: str, name: str, path: Path) -> None:
    from pyarrow import fs

    store, place = fs.FileSystem.from_uri(f"s3://tables/{name}?{query}")
    fs.copy_files(str(path), place, destination_filesystem=store)


def test_a_database_that_takes_the_connection_and_does_not_answer_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command waited without end, and nothing but SIGKILL ended it."""
    pytest.importorskip("adbc_driver_postgresql", reason="needs opboost[sql]")
    monkeypatch.setattr("parties.tables.remote_tables.CONNECT_S", 2)
    told: list[str] = []

    def ask(uri: str) -> None:
        try:
            fetch(uri, tmp_path, query="SELECT 1")
        except TableError as error:
            told.append(str(error))

    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/crm"
        asking = threading.Thread(target=ask, args=(uri,), daemon=True)
        asking.start()
        asking.join(30)
    assert told == [f"{readable_uri(uri)} cannot be read (OperationalError). Nothing was sent"]


def test_files_and_folders_of_a_store_are_copied(bucket: str, tmp_path: Path) -> None:
    FRAME.to_csv(tmp_path / "c.csv", index=False)
    folder = in_a_folder(FRAME, tmp_path / "parts", 3)
    (folder / "readme.txt").write_text("no part")
    for path in (tmp_path / "c.csv", *folder.iterdir()):
        put(bucket, str(path.relative_to(tmp_path)), path)
    own = tmp_path / "own"
    own.mkdir()
    assert fetch(f"s3://tables/c.csv?{bucket}", own).read_bytes() == (tmp_path / "c.csv").read_bytes()
    with open_umask():
        found = fetch(f"s3://tables/parts?{bucket}", own)
    pd.testing.assert_frame_equal(read_stored(found), FRAME)
    assert exposed(found) == set()
    with pytest.raises(TableError, match=r"s3://tables/absent\.csv is not there"):
        fetch(f"s3://tables/absent.csv?{bucket}", own)


@pytest.mark.parametrize("name", ["c.csv", "moving"])
def test_what_changes_while_it_is_copied_is_no_table(
    bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A store serves each piece as it is then: the table was half of one version and half of the next."""
    FRAME.to_csv(tmp_path / "old", index=False)
    FRAME.assign(spend=1.5).to_csv(tmp_path / "new", index=False)
    key = name if name == "c.csv" else f"{name}/c.parquet"
    put(bucket, key, tmp_path / "old")

    def copy(source: BinaryIO, file: BinaryIO, n_bytes: int) -> None:
        file.write(source.read(100))
        put(bucket, key, tmp_path / "new")
        file.write(source.read())

    monkeypatch.setattr(shutil, "copyfileobj", copy)
    (own := tmp_path / "own").mkdir()
    with pytest.raises(TableError, match=rf"^s3://tables/{name} was changed while it was copied\. Nothing was sent$"):
        fetch(f"s3://tables/{name}?{bucket}", own)


def test_a_driver_that_is_not_installed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "adbc_driver_sqlite", None)
    with pytest.raises(ConfigError, match=r"needs adbc_driver_sqlite, .*`pip install 'opboost\[sql\]'"):
        fetch(f"sqlite://{tmp_path}/crm.db", tmp_path, query="SELECT 1")


@pytest.mark.parametrize(("make", "words"), [(os.mkfifo, "is a named pipe"), (os.mkdir, "is a folder")])
def test_what_is_no_file_is_no_database(tmp_path: Path, make: Callable[[Path], None], words: str) -> None:
    """A database waited for somebody to write into a pipe."""
    make(tmp_path / "crm.db")
    with pytest.raises(TableError, match=f"^sqlite://.*/crm.db {words}, and no database. Nothing was sent"):
        fetch(f"sqlite://{tmp_path}/crm.db", tmp_path, query="SELECT 1")


def test_columns_of_one_name_are_refused(sqlite_uri: str, tmp_path: Path) -> None:
    with pytest.raises(TableError, match="several columns of one name"):
        fetch(sqlite_uri, tmp_path, query="SELECT id, id FROM customers")


@pytest.mark.parametrize(
    ("uri", "holds"),
    [
        ("postgresql://me:s3cret@host/crm", True),
        ("postgresql:///crm?user=me&password=s3cret", True),
        ("s3://KEY@bucket/x.csv", True),
        ("s3://bucket/x.csv?secret_key=s3cret", True),
        ("odbc:DSN=crm;UID=me; pwd = s3cret", True),
        ("odbc:DSN=crm;ClientSecret=s3cret", True),
        ("odbc:DSN=crm;Auth_AccessToken=s3cret", True),
        ("abfs://box@host/x.csv?Account-Key=s3cret", True),
        ("postgresql://me@host/crm?sslmode=require", False),
        ("s3://bucket/x.csv?region=eu-west-1", False),
        ("odbc:DSN=crm;UID=me;PRIV_KEY_FILE=/srv/me.pem", False),
    ],
)
def test_a_password_is_found_wherever_it_stands_and_never_shown(uri: str, holds: bool) -> None:
    assert holds_secret(uri) is holds
    assert "s3cret" not in readable_uri(uri)


@pytest.mark.parametrize("uri", ["postgresql://me:s3cret@[host/crm", "s3://s3cret\u2100/lake.csv"])
def test_what_is_no_uri_is_refused_without_showing_it(uri: str) -> None:
    with pytest.raises(ConfigError, match="its host is malformed") as found:
        check_uri(uri, ("postgresql", "s3"))
    assert "s3cret" not in "".join(traceback.format_exception(found.value))


def test_a_query_of_duckdb_is_a_parquet_file(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect(str(tmp_path / "crm.duckdb")) as database:
        database.execute("CREATE TABLE t AS SELECT range AS i FROM range(9)")
    assert stored_length(fetch(f"duckdb://{tmp_path}/crm.duckdb", tmp_path, query="SELECT * FROM t")) == 9


def test_a_query_by_odbc_is_a_parquet_file(sqlite_uri: str, tmp_path: Path) -> None:
    pytest.importorskip("arrow_odbc", exc_type=ImportError)
    libraries = sorted(Path("/usr/lib").glob("*/odbc/libsqlite3odbc.so"))
    if not libraries:
        pytest.skip("no ODBC driver is installed")
    uri = f"odbc:Driver={libraries[0]};Database={sqlite_uri.removeprefix('sqlite://')}"
    path = fetch(uri, tmp_path, query="SELECT * FROM customers ORDER BY id")
    pd.testing.assert_frame_equal(read_stored(path), FRAME, check_dtype=False)


@pytest.mark.parametrize("uri", ["sqlite:///absent/crm.db", "duckdb:///absent/crm.duckdb"])
def test_no_database_is_made_where_one_is_to_be_read(uri: str, tmp_path: Path) -> None:
    if uri.startswith("duckdb"):
        pytest.importorskip("duckdb")
    place = uri.replace("/absent", str(tmp_path))
    with pytest.raises(TableError, match="cannot be read"):
        fetch(place, tmp_path, query="SELECT 1")
    assert not list(tmp_path.glob("crm*"))


@pytest.mark.parametrize(
    "uri", ["gs://lake/a/x.csv", "gs://lake/a/x.csv?endpoint_override=host", "hdfs://nn:8020/a/x.csv"]
)
def test_other_stores_are_read_by_arrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    from pyarrow import fs

    asked: list[str] = []
    (tmp_path / "x.csv").write_text("id\n1\n")

    class Stores:
        @staticmethod
        def from_uri(place: str) -> tuple[fs.FileSystem, str]:
            asked.append(place)
            return fs.LocalFileSystem(), str(tmp_path / "x.csv")

    monkeypatch.setattr(fs, "FileSystem", Stores)
    (own := tmp_path / "own").mkdir()
    assert fetch(uri, own).read_text() == "id\n1\n"
    limit = f"{'&' if '?' in uri else '?'}retry_limit_seconds={STORE_RETRY_S}" if uri.startswith("gs") else ""
    assert asked == [uri + limit]


def test_a_store_without_its_library_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ARROW_LIBHDFS_DIR", str(tmp_path))
    with pytest.raises(TableError) as found:
        fetch("hdfs://nn:8020/x.csv", tmp_path)
    assert str(found.value) == "hdfs://nn/x.csv cannot be read (OSError). Nothing was sent"
    assert "Unable to load" in "".join(notes_on(found.value))


@pytest.mark.parametrize(
    ("uri", "module"),
    [
        ("grpc+tls://host:443", "adbc_driver_flightsql"),
        ("duckdb:///crm.duckdb", "adbc_driver_duckdb"),
        ("odbc:DSN=crm", "arrow_odbc"),
        ("postgresql://host/crm", "adbc_driver_postgresql"),
    ],
)
def test_each_scheme_asks_for_its_own_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uri: str, module: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=f"needs {module}, which is not installed"):
        fetch(uri, tmp_path, query="SELECT 1")


# In a process of its own: the driver brings a runtime that handles signals.
FLIGHT = """
import sys
import traceback
from pathlib import Path
import pyarrow as pa
import pyarrow.flight as flight
from parties.tables.parquet_files import read_stored
from parties.tables.remote_tables import fetch

rows = pa.table({"id": [1, 2, 3], "spend": [0.5, 1.5, None]})
kinds = {"text": pa.utf8(), "truth": pa.bool_(), "number": pa.int64(), "bits": pa.int32(), "texts": pa.list_(pa.utf8()),
         "lists": pa.map_(pa.int32(), pa.list_(pa.int32()))}
parts = [pa.array([], kind) for kind in kinds.values()]
values = pa.UnionArray.from_dense(pa.array([], pa.int8()), pa.array([], pa.int32()), parts, list(kinds))
about = pa.table([pa.array([], pa.uint32()), values], ["info_name", "value"])

class Server(flight.FlightServerBase):
    def get_flight_info(self, context, descriptor):
        name = b"about" if b"GetSqlInfo" in descriptor.command else descriptor.command
        table = about if name == b"about" else rows
        return flight.FlightInfo(table.schema, descriptor, [flight.FlightEndpoint(name, [])], -1, -1)
    def do_get(self, context, ticket):
        assert ticket.ticket == b"about" or b"SELECT * FROM t" in ticket.ticket
        return flight.RecordBatchStream(about if ticket.ticket == b"about" else rows)
    def do_action(self, context, action):
        raise NotImplementedError(action.type)

with Server("grpc://127.0.0.1:0") as server:
    path = fetch(f"grpc://127.0.0.1:{server.port}", Path(sys.argv[1]), query="SELECT * FROM t")
    assert read_stored(path).equals(rows.to_pandas())
"""


def test_a_query_of_flight_sql_is_a_parquet_file(tmp_path: Path) -> None:
    pytest.importorskip("adbc_driver_flightsql")
    words = [sys.executable, "-W", "error", "-c", FLIGHT, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("shown", [quote(SECRET, safe=""), quote_plus(SECRET), quote(SECRET).lower(), "a b/%C3%a9{x"])
def test_a_password_is_hidden_in_whatever_form_a_driver_shows_it(shown: str) -> None:
    with pytest.raises(TableError) as failed, reaching("postgresql://host/crm", "read", password=SECRET):
        raise ValueError(f"invalid dsn: 'postgresql://host/crm?password={shown}'")
    assert notes_on(failed.value) == ["invalid dsn: 'postgresql://host/crm?password=***'"]
