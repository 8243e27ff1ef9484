"""The `data` key: files stay files, places elsewhere are fetched once, and no secret is taken or shown."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from parties.config.data_section import DataSource
from parties.config.reading import read_run, read_section
from parties.config.vertical import PassiveRun
from parties.doctor.check_result import Status
from parties.doctor.vertical import examine
from parties.errors import ConfigError, RunFolderError, TableError
from parties.jobs.answer_vertical import serve_passive
from parties.jobs.life_cycle import Terminal
from parties.jobs.predict_vertical import predict_active
from parties.jobs.train_vertical import train_active, train_passive
from parties.tables.remote_tables import connect
from parties.vertical.preparation import prepare_passive
from tests.support.remote_places import PASSWORD
from tests.support.sites import Site, Sites

SILENT = Terminal()


def put_into(site: Site, uri: str, password: str | None = None) -> None:
    """The site's table as a table of a database."""
    import pyarrow as pa

    with closing(connect(uri, password, writes=True)) as database, database.cursor() as cursor:
        cursor.adbc_ingest(site.party, pa.Table.from_pandas(site.table, preserve_index=False), mode="replace")
        database.commit()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("s3://KEY:s3cret@bucket/x.csv", "data: a URI must hold no password or key"),
        ({"uri": "postgresql://me:s3cret@host/crm", "query": "SELECT 1"}, "data: a URI must hold no password or key"),
        ({"uri": "postgresq://host/crm", "query": "SELECT 1"}, "did you mean 'postgresql'"),
        ({"uri": "postgresql://host/crm"}, "data: a database needs a `query`"),
        ({"uri": "s3://bucket/x.csv", "query": "SELECT 1"}, "an object store has none"),
        ({"uri": "sqlite:crm.db", "query": "SELECT 1"}, "give the whole path"),
        ({"uri": "s3://b/x.csv", "password_env": "X"}, "only for PostgreSQL and ODBC"),
        ({"uri": "odbc:DSN=x", "query": "q", "password_env": "X", "password_file": "f"}, "give one of"),
        ({"uri": "s3://b/x.csv", "password": "s3cret"}, "data.password: is no key here"),
        ({"query": "SELECT 1"}, "data.uri: is required"),
        (3, "data: must be a path; found 3"),
    ],
)
def test_what_cannot_be_data_is_refused_without_a_secret(sites: Sites, data: Any, message: str) -> None:
    sites.shop.run["data"] = data
    with pytest.raises(ConfigError, match=message) as found:
        read_run(sites.shop.write(), PassiveRun)
    assert "s3cret" not in str(found.value)


def test_a_cluster_reads_no_place_elsewhere(sites: Sites) -> None:
    sites.shop.run |= {"data": "s3://b/x.parquet", "engine": "dask", "align": {"method": "prealigned"}}
    with pytest.raises(ConfigError, match="engine: dask reads files that all cluster processes see"):
        read_run(sites.shop.write(), PassiveRun)


@pytest.mark.parametrize("which", ["first", "last"])
def test_the_first_of_equal_ids_is_taken_from_a_query_that_says_which_it_is(sites: Sites, which: str) -> None:
    """Otherwise other cells may be released at every command."""
    sites.shop.run["align"] = {"method": "psi", "duplicates": which}
    sites.shop.run["data"] = {"uri": "postgresql://host/crm", "query": "SELECT * FROM borders"}
    with pytest.raises(
        ConfigError, match=f"`duplicates: {which}` goes by the order of rows, which a query gives by OR"
    ):
        read_run(sites.shop.write(), PassiveRun)
    sites.shop.run["data"]["query"] += " order  BY seen"
    assert read_run(sites.shop.write(), PassiveRun).align.duplicates == which


def test_a_table_is_fetched_once_and_is_gone_with_its_run(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS one")
        database.commit()
    source = read_section(DataSource, {"uri": f"sqlite://{tmp_path}/crm.db", "query": "SELECT * FROM t"})
    path = source.file()
    (tmp_path / "crm.db").unlink()
    assert source.file() == path
    assert path.parent.stat().st_mode & 0o777 == 0o700
    del source
    assert not path.parent.exists()


def test_a_table_without_a_place_to_fetch_it_to_is_one_sentence(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a full disk, Python says that there is no folder for temporary files; it ended in a traceback."""
    put_into(sites.shop, uri := f"sqlite://{sites.shop.path}/crm.db")
    sites.shop.run["data"] = {"uri": uri, "query": "SELECT * FROM shop"}
    monkeypatch.setattr("tempfile.tempdir", str(sites.shop.path / "absent"))
    with pytest.raises(RunFolderError, match=r"the table cannot be written to .*absent: No such file or directory"):
        read_section(DataSource, sites.shop.run["data"]).file()
    told = [one for one in examine(sites.shop.write(), wait_s=0.1) if one.status is Status.PROBLEM]
    assert [one.check for one in told] == ["data"]


@pytest.mark.parametrize("keys", [{"password_env": "ABSENT_HERE"}, {"password_file": "absent"}], ids=["env", "file"])
def test_a_password_that_is_not_there_is_named(keys: dict[str, str]) -> None:
    source = read_section(DataSource, {"uri": "postgresql://127.0.0.1:1/crm", "query": "SELECT 1", **keys})
    with pytest.raises((ConfigError, TableError), match=r"ABSENT_HERE is not set|absent cannot be read"):
        source.file()


def test_the_doctor_names_a_place_that_cannot_be_read(sites: Sites) -> None:
    sites.shop.run["data"] = {"uri": "sqlite:///absent/crm.db", "query": "SELECT 1"}
    told = [one for one in examine(sites.shop.write(), wait_s=0.1) if one.status is Status.PROBLEM]
    assert [one.check for one in told] == ["data"]
    assert "sqlite:///absent/crm.db cannot be read" in told[0].sentence


def test_a_table_of_a_database_is_the_same_as_its_file(sites: Sites) -> None:
    def digest() -> str:
        path = sites.shop.write()
        return prepare_passive(read_run(path, PassiveRun), path).digest

    sites.shop.table.to_parquet(sites.shop.path / "data.parquet", index=False)
    sites.shop.run["data"] = "data.parquet"
    before, uri = digest(), f"sqlite://{sites.shop.path}/crm.db"
    put_into(sites.shop, uri)
    sites.shop.run["data"] = {"uri": uri, "query": "SELECT * FROM shop ORDER BY visits"}
    assert digest() == before


def test_a_run_from_database_to_database_leaves_no_secret(
    sites: Sites, postgres: str, outcomes: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", PASSWORD)
    (sites.bank.path / "secret").write_text(PASSWORD + "\n")
    secrets = {"bank": {"password_file": "secret"}, "shop": {"password_env": "SHOP_PASSWORD"}}
    for site in (sites.bank, sites.shop):
        put_into(site, postgres, PASSWORD)
        site.run["data"] = {"uri": postgres, "query": f"SELECT * FROM {site.party}", **secrets[site.party]}
    bank, shop = sites.bank.write(), sites.shop.write()
    (sites.bank.path / "data.csv").unlink()
    (sites.shop.path / "data.csv").unlink()
    calls: dict[str, Any] = {
        "bank": lambda: train_active(bank, insecure=False, terminal=SILENT),
        "shop": lambda: train_passive(shop, insecure=False, terminal=SILENT),
    }
    found = outcomes(calls)
    assert not [error for error in found.values() if isinstance(error, BaseException)]
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    calls = {
        "bank": lambda: predict_active(
            bank, data=None, ids=None, mode="routed", out=f"{postgres}#scores", insecure=False, terminal=SILENT
        ),
        "shop": lambda: serve_passive(shop, data=None, insecure=False, terminal=SILENT),
    }
    assert outcomes(calls)["bank"] == f"{postgres}#scores"
    with closing(connect(postgres)) as database, database.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM scores WHERE status = 'ok'")
        assert cursor.fetchone() == (len(sites.bank.table),)
    for site in (sites.bank, sites.shop):
        for folder, _, names in os.walk(site.path / "runs"):
            for name in names:
                assert PASSWORD.encode() not in Path(folder, name).read_bytes()
