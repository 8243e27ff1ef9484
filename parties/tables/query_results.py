"""Results of queries: rows as numbers and texts, whatever a database's types are, and with all of their digits."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from parties.errors import TableError
from parties.tables.data_files import named

if TYPE_CHECKING:
    import pyarrow as pa

# Its driver makes times before all others of PostgreSQL's infinities, those in the future too. The year 1 began so many
# seconds before 1970.
_YEAR_1 = -62_135_596_800

# Types of PostgreSQL of which its driver gives other values, which, and what helps.
_OTHER_VALUES = {
    b"money": ("hundredths", "CAST(spend AS numeric)"),
    b"oid": ("negative numbers from 2^31 on", "CAST(spend AS bigint)"),
}

# What SQLite's driver makes of a fraction in a column that has texts, too: 1234567.891 becomes 1.234568e+06.
_SHORTENED = r"^-?[0-9]\.[0-9]{6}e[-+][0-9]{2,3}$"


def plain_pieces(reader: pa.RecordBatchReader) -> Iterator[pa.Table]:
    """The rows of a result in pieces of plain types; the first piece is empty, and has the types.

    Raises
    ------
    TableError
        If several columns have one name, or the driver gives other values of a type than the database has.
    """
    yield _plain(reader.schema.empty_table())
    for batch in reader:
        yield _plain(batch)


def _plain(rows: pa.RecordBatch | pa.Table) -> pa.Table:
    """Rows whose types of a database, such as PostgreSQL's numeric, are numbers and texts."""
    import pyarrow as pa

    columns = {}
    for field, column in zip(rows.schema, rows.columns, strict=True):
        _check_values(field, column)
        if isinstance(field.type, pa.BaseExtensionType):
            is_number = getattr(field.type, "type_name", "") == "numeric"
            column = column.cast(field.type.storage_type).cast(pa.float64() if is_number else field.type.storage_type)
        columns[field.name] = column
    if len(columns) < len(rows.schema):
        raise TableError("the query gives several columns of one name; rename them. Nothing was sent")
    return pa.table(columns)


def _check_values(field: pa.Field, column: pa.Array | pa.ChunkedArray) -> None:
    """Refuse types of PostgreSQL of which its driver gives other values, and times without end."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = (field.metadata or {}).get(b"POSTGRESQL:type")
    if kind in _OTHER_VALUES:
        given, remedy = _OTHER_VALUES[kind]
        raise TableError(
            f"column {named([field.name])} of the query is of type {kind.decode()}, of which PostgreSQL's driver gives "
            f"{given}: have the query make numbers of it, as in {remedy}. Nothing was sent"
        )
    if pa.types.is_timestamp(field.type) or pa.types.is_date(field.type):
        first = pc.min(column.cast(pa.timestamp("s"), safe=False).cast(pa.int64())).as_py()
        if first is not None and first < _YEAR_1:
            raise TableError(
                f"column {named([field.name])} of the query holds times before the year 1, or PostgreSQL's infinity, "
                "which its driver reads as such: have the query give others, as in NULLIF(ended, 'infinity'). "
                "Nothing was sent"
            )


def single_statement(query: str) -> str:
    """A query without its semicolon and the comments behind it.

    Raises
    ------
    TableError
        If there are several statements, of which SQLite's driver gives the result of the first.
    """
    for end in re.finditer(";", query):
        if sqlite3.complete_statement(query[: end.end()]):
            if re.sub(r"--[^\n]*|/\*.*?\*/|[;\s]", "", query[end.end() :], flags=re.DOTALL):
                raise TableError("the query holds several statements; leave one. Nothing was sent")
            return query[: end.start()]
    return query


def with_all_digits(pieces: Iterator[pa.Table], database: Any, query: str) -> Iterator[pa.Table]:
    """The pieces of a result of SQLite, as long as its driver shortens no number.

    Raises
    ------
    TableError
        If a column holds fractions beside texts, or cells of another type than its first ones.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    for rows in _of_one_type(pieces):
        for name, column in zip(rows.schema.names, rows.columns, strict=True):
            is_text = pa.types.is_string(column.type)
            looks_so = is_text and pc.any(pc.match_substring_regex(column, _SHORTENED)).as_py()
            if looks_so and _holds_fractions(database, query, name):
                raise TableError(
                    f"column {named([name])} of the query holds fractions beside texts, of which SQLite's driver keeps "
                    "7 digits: have the query make texts of all, as in CAST(spend AS TEXT), or nulls of the texts, as "
                    "in NULLIF(spend, ''). Nothing was sent"
                )
        yield rows


def _of_one_type(pieces: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The pieces, as long as their columns have the types of the first rows, by which SQLite's driver goes."""
    try:
        yield from pieces
    except OSError as error:
        if "Type mismatch" not in str(error):
            raise
        refused = TableError(
            "a column of the query has cells of another type than in its first rows, by which SQLite's driver goes, "
            "or these are all empty: have the query give the fullest rows first, as in ORDER BY spend IS NULL, and "
            "one type, as in CAST(spend AS REAL). Nothing was sent"
        )
        refused.add_note(str(error))
        raise refused from None


def _holds_fractions(database: Any, query: str, name: str) -> bool:
    """Whether a column of a query's result has cells that SQLite keeps as fractions; a text may look like one."""
    quoted = name.replace('"', '""')
    with database.cursor() as cursor:
        cursor.execute(f"SELECT 1 FROM ({query}\n) WHERE typeof(\"{quoted}\") = 'real' LIMIT 1")
        return cursor.fetchone() is not None
