"""Column types of a database table that predictions are appended to: which of them keep texts and numbers unchanged."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from parties.errors import TableError
from parties.tables.remote_tables import readable_uri, scheme_of

if TYPE_CHECKING:
    import pyarrow as pa

# Parts of a declared type and the affinity that SQLite derives, in order (https://www.sqlite.org/datatype3.html, 3.1).
_AFFINITIES = (
    (("int",), "INTEGER"),
    (("char", "clob", "text"), "TEXT"),
    (("blob",), "BLOB"),
    (("real", "floa", "doub"), "REAL"),
)

# What an error says is allowed for texts and for numbers.
_ALLOWED = {
    "sqlite": ("TEXT, VARCHAR or no type", "REAL, DOUBLE or no type"),
    "postgresql": ("text, varchar or char", "double precision"),
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table.

    Attributes
    ----------
    type : str
        As the database calls it.
    keeps_texts, keeps_numbers : bool
        Whether every text, or every double, is read back as it was written.
    """

    type: str
    keeps_texts: bool
    keeps_numbers: bool


def affinity(declared: str, *, is_strict: bool) -> str:
    """The type affinity of a column of SQLite.

    Parameters
    ----------
    declared : str
        The declared type; empty if there is none.
    is_strict : bool
        Whether the table is STRICT: there ANY converts nothing, elsewhere it has affinity NUMERIC.

    Returns
    -------
    str
        INTEGER, TEXT, BLOB (which converts nothing), REAL or NUMERIC.
    """
    folded = _folded(declared)
    if not folded or (is_strict and folded == "any"):
        return "BLOB"
    return next((found for parts, found in _AFFINITIES if any(part in folded for part in parts)), "NUMERIC")


def check_column_types(database: Any, given: pa.Schema, *, place: str, schema: str | None, name: str) -> None:
    """Refuse a table whose columns would change texts or numbers of the predictions.

    SQLite turns '007' into 7 where a column has affinity INTEGER, NUMERIC or REAL. PostgreSQL takes the bytes of a
    text for a value of another type if they fit.

    Parameters
    ----------
    database : connection
        By ADBC.
    given : Schema
        Columns of the predictions: texts, doubles, or of type null if all cells are empty.
    place : str
        The URI of the database.
    schema : str, optional
    name : str
        The table.

    Raises
    ------
    TableError
    """
    import pyarrow as pa

    is_sqlite = scheme_of(place) == "sqlite"
    found = _sqlite_columns(database, name) if is_sqlite else _postgresql_columns(database, schema, name)
    for own in given:
        column = found.get(_folded(own.name) if is_sqlite else own.name)
        if column is None or pa.types.is_null(own.type):
            continue
        is_text = _is_text(own.type)
        if not (column.keeps_texts if is_text else column.keeps_numbers and pa.types.is_float64(own.type)):
            allowed = _ALLOWED["sqlite" if is_sqlite else "postgresql"][not is_text]
            raise TableError(
                f"no row was added: column {own.name!r} of {readable_uri(place)} is of type {column.type}, and "
                f"{'texts' if is_text else 'numbers'} of the predictions need {allowed}; name a table with such "
                "columns, or let --overwrite make one"
            )


def _sqlite_columns(database: Any, name: str) -> dict[str, _Column]:
    """Columns of a SQLite table by name in lower case.

    Affinity NUMERIC keeps no numbers: it makes an integer of 1.0, and 1 / 2 is 0 in SQL.
    """
    with closing(database.cursor()) as cursor:
        cursor.execute("SELECT strict FROM pragma_table_list(?) WHERE schema = 'main'", (name,))
        is_strict = any(strict for (strict,) in cursor.fetchall())
        cursor.execute("SELECT name, type FROM pragma_table_xinfo(?, 'main')", (name,))
        declared = cursor.fetchall()
    columns = {}
    for column, of_type in declared:
        kind = affinity(of_type, is_strict=is_strict)
        # A column of a STRICT table that is declared as BLOB takes neither.
        is_any = kind == "BLOB" and not (is_strict and _folded(of_type) == "blob")
        columns[_folded(column)] = _Column(of_type, is_any or kind == "TEXT", is_any or kind == "REAL")
    return columns


def _postgresql_columns(database: Any, schema: str | None, name: str) -> dict[str, _Column]:
    """Columns of a PostgreSQL table by name; its driver reports only columns of texts as strings."""
    import pyarrow as pa

    return {
        one.name: _Column(
            (one.metadata or {}).get(b"POSTGRESQL:type", str(one.type).encode()).decode(),
            _is_text(one.type),
            pa.types.is_float64(one.type),
        )
        for one in database.adbc_get_table_schema(name, db_schema_filter=schema)
    }


def _is_text(of_type: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(of_type) or pa.types.is_large_string(of_type) or pa.types.is_string_view(of_type))


def _folded(name: str) -> str:
    """A name or type with its ASCII letters in lower case, as SQLite compares them."""
    return name.encode().lower().decode()
