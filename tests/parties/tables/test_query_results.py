"""Results of queries have all digits of their numbers, or are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parties.errors import TableError
from parties.tables.parquet_files import read_stored
from parties.tables.remote_tables import fetch
from tests.support.remote_places import PASSWORD

SPENT = 1234567.891


@pytest.fixture
def uri(tmp_path: Path) -> str:
    """A column of numbers as imports from CSV leave them: a cell that was empty there is an empty text."""
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE customers (id INTEGER, spend REAL, note TEXT)")
        rows = [(1, SPENT, "1.234568e+06"), (2, "", "x"), (3, SPENT, None)]
        database.executemany("INSERT INTO customers VALUES (?, ?, ?)", rows)
        database.commit()
    return f"sqlite://{tmp_path}/crm.db"


@pytest.mark.parametrize(
    "query",
    [
        "SELECT id, spend FROM customers",
        "SELECT id, spend FROM customers WHERE id <> 2 UNION ALL SELECT 2, 'n/a';  ",
        'WITH c AS (SELECT id, spend AS "their ""spend" FROM customers) SELECT * FROM c -- all',
        "SELECT id, spend FROM customers; -- all",
        "SELECT id, spend FROM customers; /* all */;",
    ],
)
def test_fractions_that_the_driver_would_shorten_are_refused(uri: str, tmp_path: Path, query: str) -> None:
    with pytest.raises(TableError, match="holds fractions beside texts, of which SQLite's driver keeps 7 digits"):
        fetch(uri, tmp_path, query=query)


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("CAST(spend AS TEXT)", [str(SPENT), None, str(SPENT)]),
        ("NULLIF(spend, '')", [SPENT, None, SPENT]),
        ("note", ["1.234568e+06", "x", None]),
        ("CASE id WHEN 2 THEN 'x' ELSE id + (1 << 60) END", [str(1 + (1 << 60)), "x", str(3 + (1 << 60))]),
    ],
)
def test_cells_of_one_type_and_whole_numbers_beside_texts_keep_their_digits(
    uri: str, tmp_path: Path, cell: str, found: list[str | float | None]
) -> None:
    path = fetch(uri, tmp_path, query=f"SELECT id, {cell} AS cell FROM customers ORDER BY id")
    cells = read_stored(path)["cell"].astype(object)
    assert cells.where(cells.notna(), None).tolist() == found


@pytest.mark.parametrize("later", ["'x'", "0.5"])
def test_a_column_that_is_empty_at_first_is_told_and_read_in_another_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later: str
) -> None:
    """The driver took whole numbers for the type of a column whose first 65,536 cells were empty."""
    monkeypatch.setattr("parties.tables.remote_tables.RESULT_ROWS", 2)
    with closing(sqlite3.connect(tmp_path / "crm.db")) as database:
        database.execute("CREATE TABLE customers (id INTEGER, spend)")
        database.executemany("INSERT INTO customers VALUES (?, NULL)", [(number,) for number in range(5)])
        database.execute(f"INSERT INTO customers VALUES (5, {later})")
        database.commit()
    uri = f"sqlite://{tmp_path}/crm.db"
    with pytest.raises(TableError, match=r"another type than in its first rows.*ORDER BY spend IS NULL.*Nothing was"):
        fetch(uri, tmp_path, query="SELECT * FROM customers ORDER BY id")
    path = fetch(uri, tmp_path, query="SELECT * FROM customers ORDER BY spend IS NULL")
    assert read_stored(path)["spend"].dropna().tolist() == [later.strip("'") if later == "'x'" else 0.5]


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("12.5::money", "is of type money, of which PostgreSQL's driver gives hundredths"),
        ("3000000000::oid", r"is of type oid, of which PostgreSQL's driver gives negative numbers from 2\^31 on"),
        ("'infinity'::timestamp", "holds times before the year 1, or PostgreSQL's infinity"),
        ("'-infinity'::timestamptz", "holds times before the year 1, or PostgreSQL's infinity"),
        ("'infinity'::date", "holds times before the year 1, or PostgreSQL's infinity"),
    ],
)
def test_cells_that_the_driver_would_give_as_others_are_refused(
    postgres: str, tmp_path: Path, cell: str, words: str
) -> None:
    """12.50 was read as 1250, and a contract without end as one that had ended before all others."""
    with pytest.raises(TableError, match=f"column spend of the query {words}.* Nothing was sent"):
        fetch(postgres, tmp_path, query=f"SELECT 1 AS id, {cell} AS spend", password=PASSWORD)


def test_a_second_statement_is_refused_and_a_comment_is_none(uri: str, postgres: str, tmp_path: Path) -> None:
    """SQLite's driver gave the first one's rows, and what PostgreSQL's adds became part of the comment."""
    query = "SELECT id, ';' AS cell FROM customers WHERE id = 1"
    for more in ("; SELECT id FROM customers", ";;SELECT 1"):
        with pytest.raises(TableError, match=r"^the query holds several statements; leave one\. Nothing was sent$"):
            fetch(uri, tmp_path, query=query + more)
    for end in ("", ";", " -- one", ";; -- one", ";\n/* one\n */"):
        assert len(read_stored(fetch(uri, tmp_path, query=query + end))) == 1
    assert len(read_stored(fetch(postgres, tmp_path, query="SELECT 1 AS id -- one", password=PASSWORD))) == 1


def test_times_of_all_years_that_have_four_digits_are_read(postgres: str, tmp_path: Path) -> None:
    kinds = ("date", "timestamp", "timestamptz")
    cells = ", ".join(f"'{day}'::{kind} AS {kind}_{day[:4]}" for kind in kinds for day in ("0001-01-01", "9999-12-31"))
    query = f"SELECT 1 AS id, NULL::timestamp AS never, {cells}"
    found = read_stored(fetch(postgres, tmp_path, query=query, password=PASSWORD))
    assert [str(one)[:4] for one in found.iloc[0, 2:]] == ["0001", "9999"] * len(kinds)
