"""Results of queries have all digits of their numbers, or are refused."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from parties.errors import TableError
from parties.tables.parquet_files import read_stored
from parties.tables.remote_tables import fetch

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
