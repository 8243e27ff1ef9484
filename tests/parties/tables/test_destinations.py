"""Predictions go to files, objects of a store and tables of a database, and take nobody's place unasked."""

from __future__ import annotations

import os
import stat
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.config.data_section import DataSource
from parties.errors import ConfigError, PartyError, RunFolderError, TableError
from parties.tables.data_files import file_digest
from parties.tables.destinations import Destination
from parties.tables.parquet_files import read_stored
from parties.tables.remote_tables import connect, fetch
from tests.support.modes import open_umask
from tests.support.remote_places import PASSWORD, make_table

SCORES = pd.DataFrame({"id": ["007", "8"], "prediction": [1 / 3, np.nan], "status": ["ok", "missing"]})


def of(out: Path | str, **options: Any) -> Destination:
    return Destination.of(out, Path("absent", "predictions.csv"), **{"overwrite": False, "append": False, **options})


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet", "run #3? a.b.csv"])
def test_files_are_written_by_their_name_and_replaced_only_if_asked(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    early = of(path)
    assert early.name == name
    early.write(SCORES)
    found = pd.read_parquet(path) if name.endswith("parquet") else pd.read_csv(path, dtype={"id": str})
    pd.testing.assert_frame_equal(found, SCORES, check_dtype=False)
    before = path.read_bytes()
    for attempt in (lambda: of(str(path)), lambda: early.write(SCORES.iloc[:1])):
        with pytest.raises(ConfigError, match=r"exists; give another file with --out, or --overwrite"):
            attempt()
    assert path.read_bytes() == before
    of(path, overwrite=True).write(SCORES.iloc[:1])
    assert path.read_bytes() != before
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_file_is_known_if_it_is_one_that_the_request_wrote_and_replaced_by_nothing(tmp_path: Path) -> None:
    path, noted = tmp_path / "scores.csv", list[str]()
    of(path).write(SCORES, before=lambda digest: noted.append(f"{digest} {path.exists()}"))
    digest = file_digest(path)
    assert noted == [f"{digest} False"]
    own = ("another", digest)
    assert [of(path, own=own, overwrite=overwrite).written for overwrite in (False, True)] == [digest] * 2
    assert of(tmp_path / "absent.csv", own=own).written is None
    for taken in (path.write_bytes, lambda nothing: os.truncate(path, 0)):
        taken(b"of somebody else\n")
        before = path.read_bytes()
        with pytest.raises(ConfigError, match=r"exists; give another file"):
            of(path, own=own)
        assert of(path, own=own, overwrite=True).written is None
        assert path.read_bytes() == before


def test_data_that_is_read_is_never_replaced_or_joined(tmp_path: Path) -> None:
    """With --overwrite, scores took the place of the data file."""
    data, folder, link = tmp_path / "data.csv", tmp_path / "parts", tmp_path / "link.csv"
    data.write_text("id,x\n")
    folder.mkdir()
    for one in (link, folder / "7.parquet"):
        one.symlink_to(data)
    how: dict[str, Any] = {"overwrite": True, "append": False, "inputs": (data, folder, None, ("other",))}
    for out in (data, str(folder / ".." / "data.csv"), link, folder / "part-9.parquet", folder / "7.parquet"):
        with pytest.raises(ConfigError, match="holds data that is read, or lies among it; give another place"):
            Destination.of(out, Path("absent"), **how)
    with pytest.raises(ConfigError, match="holds data that is read, or lies among it; give another place"):
        Destination.of(folder / "1.parquet", Path("absent"), **how | {"inputs": [folder / "*.parquet"]})
    with pytest.raises(ConfigError, match="holds data that is read, or lies among it; give another place"):
        Destination.of(folder / "7.parquet", Path("absent"), **how | {"inputs": [folder / "*.parquet"]})
    assert Destination.of(tmp_path / "scores.csv", Path("absent"), **how).name == "scores.csv"
    # Of a pattern, a * alone is special.
    how["inputs"] = [folder / "[1]*.parquet"]
    with pytest.raises(ConfigError, match="holds data that is read, or lies among it; give another place"):
        Destination.of(folder / "[1]r.parquet", Path("absent"), **how)
    assert Destination.of(folder / "1r.parquet", Path("absent"), **how).name == "1r.parquet"


@pytest.mark.parametrize(
    ("uri", "query", "out", "is_read"),
    [
        ("sqlite:///srv/crm.db", 'SELECT * FROM "Customers"', "sqlite:////srv/../srv/crm.db#customers", True),
        ("sqlite:///srv/crm.db", "SELECT * FROM customers", "sqlite:///srv/crm.db#scores", False),
        ("sqlite:///srv/crm.db", "SELECT * FROM customers", "sqlite:///srv/other.db#customers", False),
        ("sqlite:///srv/crm.db", "SELECT * FROM customers", "sqlite:///srv/crm.db", False),
        ("postgresql://a@db/crm", "SELECT x FROM of.t JOIN u", "postgres://b@db/crm?sslmode=require#of.t", True),
        ("postgresql://a@db/crm", "SELECT x FROM t", "postgresql://a@db2/crm#t", False),
        ("s3://lake/customers.csv?region=x", None, "s3://lake/customers.csv", True),
        ("s3://lake/customers/", None, "s3://lake/customers/scores.parquet", True),
        ("s3://lake/customers/", None, "s3://lake/scores.parquet", False),
        ("s3://lake/customers.csv", None, "gs://lake/customers.csv", False),
        ("s3://lake/customers.csv", None, "sqlite:///lake/customers.csv#t", False),
    ],
)
def test_tables_elsewhere_that_are_read_are_never_replaced_or_joined(
    uri: str, query: str | None, out: str, is_read: bool
) -> None:
    """With --overwrite, scores took the place of the table that `data` names."""
    source = DataSource(uri=uri, query=query)
    assert source.reads(out) is is_read
    if is_read:
        with pytest.raises(ConfigError, match="holds data that is read, or lies among it; give another place"):
            of(out, overwrite=True, inputs=(source,))


def test_where_no_file_can_be_written_nobody_is_asked(tmp_path: Path) -> None:
    """Passive parties had answered, and counted that, before an absent folder or a pipe was noticed."""
    file, pipe, folder, loop = (tmp_path / name for name in ("file", "pipe.csv", "folder.csv", "loop"))
    file.touch()
    os.mkfifo(pipe)
    folder.mkdir()
    loop.symlink_to(loop)
    for where in (tmp_path / "none", file, loop):
        with pytest.raises(RunFolderError, match=r"scores\.csv cannot be written: .*\. Nothing was sent"):
            of(where / "scores.csv")
    for odd, kind in ((pipe, "a named pipe"), (folder, "a folder")):
        with pytest.raises(RunFolderError, match=f"cannot be written: it is {kind}, which no file replaces"):
            of(odd, overwrite=True)


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"append": True}])
def test_where_no_table_can_be_written_nobody_is_asked(tmp_path: Path, options: Any) -> None:
    """With --overwrite or --append, that was noticed when passive parties had answered."""
    pytest.importorskip("adbc_driver_sqlite")
    with pytest.raises(TableError, match=r"none/scores\.db cannot be written \(.*\)\. Nothing was sent"):
        of(f"sqlite://{tmp_path}/none/scores.db#scores", **options)


def test_columns_of_a_table_to_add_to_are_checked_before_there_are_predictions(tmp_path: Path) -> None:
    """Types of its columns were looked at when passive parties had answered."""
    pytest.importorskip("adbc_driver_sqlite")
    place = f"sqlite://{tmp_path}/scores.db#scores"
    of(place, append=True).check_columns(SCORES)
    of(place, append=True).write(SCORES.assign(status=1.0))
    with pytest.raises(TableError, match=r"^no row was added: column 'status' .*\. Nothing was sent$"):
        of(place, append=True).check_columns(SCORES)
    of(place, overwrite=True).check_columns(SCORES)
    of(tmp_path / "scores.csv").check_columns(SCORES)


def test_a_folder_that_is_gone_at_the_end_is_one_sentence(tmp_path: Path) -> None:
    (where := tmp_path / "out").mkdir()
    target = of(where / "scores.csv")
    where.rmdir()
    with pytest.raises(RunFolderError, match=r"scores\.csv cannot be written: No such file"):
        target.write(SCORES)


@pytest.mark.parametrize("place", ["sqlite://{}/scores.db#scores", "{}/out/scores.csv"])
def test_predictions_that_cannot_be_written_are_kept(tmp_path: Path, place: str) -> None:
    """Passive parties had counted their answers, and nobody had them; the sentence said that nothing was sent."""
    pytest.importorskip("adbc_driver_sqlite")
    (folder := tmp_path / "out").mkdir()
    (run_folder := tmp_path / "run").mkdir()
    target = Destination.of(
        place.format(tmp_path), run_folder / "predictions.csv", overwrite=False, append=False, inputs=()
    )
    folder.rmdir()
    of(f"sqlite://{tmp_path}/scores.db#scores").write(SCORES[["id"]])
    with pytest.raises(
        PartyError, match=r"scores\.(db|csv) .*The predictions are in .*/run/predictions\.\w+\.csv$"
    ) as told:
        target.write(SCORES)
    assert "Nothing was sent" not in str(told.value)
    (kept,) = run_folder.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    pd.testing.assert_frame_equal(pd.read_csv(kept, dtype={"id": str}), SCORES, check_dtype=False)


@pytest.mark.parametrize(
    ("out", "options", "message"),
    [
        ("scores.xlsx", {}, r"written to \.csv or \.parquet"),
        ("s3://b/scores", {}, r"written to \.csv or \.parquet"),
        ("ftp://b/scores.csv", {}, "a URI begins with postgresql"),
        ("s3://[b/scores.csv", {"inputs": (DataSource(uri="s3://b/t.csv"),)}, "its host is malformed"),
        ("duckdb:///srv/x.duckdb#t", {}, "a URI begins with postgresql"),
        ("postgresql://me:s3cret@host/crm#t", {}, "no password or key"),
        ("postgresql://host/crm", {}, "name the table after a #"),
        ("sqlite://crm.db#t", {}, "give the whole path"),
        ("scores.csv", {"append": True}, "--append adds to a table"),
        ("s3://b/scores.csv", {"append": True}, "--append adds to a table"),
        ("postgresql://host/crm#t", {"append": True, "overwrite": True}, "goes without --overwrite"),
    ],
)
def test_other_places_are_refused_before_anything_is_opened(out: str, options: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as found:
        of(out, **options)
    assert "s3cret" not in str(found.value)


def rows_of(uri: str, folder: Path) -> pd.DataFrame:
    base, _, table = uri.partition("#")
    return read_stored(fetch(base, folder, query=f"SELECT * FROM {table}")).sort_values("id", ignore_index=True)


def check_table(uri: str, folder: Path) -> None:
    of(uri).write(SCORES)
    pd.testing.assert_frame_equal(rows_of(uri, folder), SCORES, check_dtype=False)
    with pytest.raises(ConfigError, match="exists; give another"):
        of(uri)
    of(uri, append=True).write(SCORES.assign(id=["9", "90"]))
    assert rows_of(uri, folder)["id"].tolist() == ["007", "8", "9", "90"]
    of(uri, overwrite=True).write(SCORES)
    assert len(rows_of(uri, folder)) == 2
    with pytest.raises(TableError, match="cannot be written"):
        of(uri, append=True).write(SCORES.assign(more=1))
    pd.testing.assert_frame_equal(rows_of(uri, folder), SCORES, check_dtype=False)


def test_scores_become_a_table_of_sqlite(tmp_path: Path) -> None:
    check_table(f"sqlite://{tmp_path}/crm.db#scores", tmp_path)
    # As SQLAlchemy writes it.
    with pytest.raises(ConfigError, match="exists; give another"):
        of(f"sqlite:///{tmp_path}/crm.db#scores")


def test_a_database_that_is_made_for_scores_is_its_owners_alone(tmp_path: Path) -> None:
    """SQLite made one that others could read, whatever the umask allowed."""
    place = tmp_path / "scores of june.db"
    with open_umask():
        of(f"sqlite://{place}#scores").write(SCORES)
    assert [stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()] == [0o600]
    place.chmod(0o640)
    of(f"sqlite://{place}#scores", append=True).write(SCORES)
    assert stat.S_IMODE(place.stat().st_mode) == 0o640


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (
            "id bigint, prediction double precision, status text",
            "column 'id' .* is of type int8, .* need text, varchar or char;",
        ),
        (
            "id text, prediction bigint, status text",
            "column 'prediction' .* is of type int8, .* need double precision;",
        ),
        ("id text, prediction text, status text", "column 'prediction' .* is of type text, .* need double precision;"),
    ],
)
def test_rows_are_added_to_no_columns_of_other_types(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: str, words: str
) -> None:
    """An id of eight characters became the number that has the same bytes, and so did a score in whole numbers."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    make_table(postgres, "typed", columns)
    to = Destination.of(f"{postgres}#typed", tmp_path / "predictions.csv", overwrite=False, append=True)
    with pytest.raises(TableError, match=f"no row was added: {words}.*The predictions are in {tmp_path}"):
        to.write(SCORES.assign(id=["12345678", "87654321"]))
    assert read_stored(fetch(postgres, tmp_path, query="SELECT count(*) AS n FROM typed"))["n"].tolist() == [0]


def test_rows_are_added_whatever_columns_a_table_has_beside_and_whether_reasons_are_empty(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    columns = "prediction double precision, id varchar(20), at timestamp DEFAULT now(), reason_1 text, status text"
    make_table(postgres, "beside", columns)
    for _ in range(2):
        to = Destination.of(f"{postgres}#beside", tmp_path / "predictions.csv", overwrite=False, append=True)
        to.write(SCORES.assign(reason_1=None))
    found = read_stored(fetch(postgres, tmp_path, query="SELECT id, reason_1 FROM beside WHERE at IS NOT NULL"))
    assert (found["id"].tolist(), found["reason_1"].isna().all()) == (["007", "8"] * 2, True)


def test_scores_become_a_table_of_postgresql(postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("CREATE SCHEMA marketing")
        database.commit()
    check_table(f"{postgres}#marketing.scores", tmp_path)


@pytest.mark.parametrize("table", ["first_scores", "lists.first_scores"])
def test_rows_to_add_make_the_table_of_postgresql_that_is_not_there(
    postgres: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str
) -> None:
    """To look for an absent table ended the transaction that was to make it, when passive parties had answered."""
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("CREATE SCHEMA IF NOT EXISTS lists")
        database.commit()
    ranked = SCORES.assign(rank=[1, 2])
    for n_rows in (2, 4):
        of(f"{postgres}#{table}", append=True).write(ranked)
        found = rows_of(f"{postgres}#{table}", tmp_path)
        assert (len(found), found["rank"].dtype) == (n_rows, np.int64)


@pytest.mark.parametrize("name", ["scores.csv", "scores.parquet"])
def test_scores_become_objects_of_a_store(bucket: str, tmp_path: Path, name: str) -> None:
    uri = f"s3://tables/{name}?{bucket}"
    of(uri).write(SCORES)
    found = fetch(uri, tmp_path)
    of(tmp_path / f"own-{name}").write(SCORES)
    assert found.read_bytes() == (tmp_path / f"own-{name}").read_bytes()
    with pytest.raises(ConfigError, match=rf"s3://tables/{name} exists"):
        of(uri)
    of(uri, overwrite=True).write(SCORES.iloc[:1])
    assert fetch(uri, tmp_path).read_bytes() != (tmp_path / f"own-{name}").read_bytes()


def test_an_object_is_known_if_it_is_one_that_the_request_wrote(bucket: str) -> None:
    uri, noted = f"s3://tables/noted.csv?{bucket}", list[str]()
    of(uri).write(SCORES, before=noted.append)
    assert [of(uri, own=noted).written] == noted
    of(uri, overwrite=True).write(SCORES.iloc[:1])
    with pytest.raises(ConfigError, match=r"s3://tables/noted\.csv exists; give another file"):
        of(uri, own=noted)


_ANSWERS = {
    "HEAD": (404, ""),
    "GET": (200, "<ListBucketResult><KeyCount>0</KeyCount></ListBucketResult>"),
    "POST": (200, "<InitiateMultipartUploadResult><UploadId>1</UploadId></InitiateMultipartUploadResult>"),
    "PUT": (403, "<Error><Code>AccessDenied</Code></Error>"),
    "DELETE": (204, ""),
}


class _Refusing(BaseHTTPRequestHandler):
    """An S3 server that has nothing, begins uploads and takes none."""

    def _answer(self) -> None:
        code, words = _ANSWERS[self.command]
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(code)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(words)))
        self.end_headers()
        self.wfile.write(words.encode())

    def log_message(self, *_: object) -> None:
        pass


for _method in _ANSWERS:
    setattr(_Refusing, f"do_{_method}", _Refusing._answer)


@pytest.mark.parametrize("delayed", ["true", "false"])
def test_an_object_that_a_store_refuses_is_not_taken_for_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delayed: str
) -> None:
    """Only at its end is an object refused; nobody had the predictions, and the command was done."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY"):
        monkeypatch.setenv(f"AWS_{name}", "here")
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refusing) as store:
        threading.Thread(target=store.serve_forever, daemon=True).start()
        place = f"region=us-east-1&scheme=http&endpoint_override=127.0.0.1:{store.server_port}"
        target = Destination.of(
            f"s3://lake/scores.csv?{place}&allow_delayed_open={delayed}",
            tmp_path / "predictions.csv",
            overwrite=False,
            append=False,
        )
        with pytest.raises(TableError, match=r"^s3://lake/scores\.csv cannot be written \(OSError\)\. The predictions"):
            target.write(SCORES)
        store.shutdown()
    (kept,) = tmp_path.iterdir()
    pd.testing.assert_frame_equal(pd.read_csv(kept, dtype={"id": str}), SCORES, check_dtype=False)


def test_two_predictions_that_write_one_file_at_once_do_not_meet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = (pd.DataFrame({"id": [name], "prediction": [0.5]}) for name in "ab")
    place, write = Destination(tmp_path / "scores.csv", overwrite=True), pd.DataFrame.to_csv

    def write_while_another_does(self: pd.DataFrame, *where: Any, **how: Any) -> Any:
        monkeypatch.setattr(pd.DataFrame, "to_csv", write)
        place.write(second)
        return write(self, *where, **how)

    monkeypatch.setattr(pd.DataFrame, "to_csv", write_while_another_does)
    place.write(first)
    assert [(one.name, one.read_text()) for one in tmp_path.iterdir()] == [("scores.csv", "id,prediction\na,0.5\n")]
