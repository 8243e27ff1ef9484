"""Column types of a database table that predictions are appended to: which of them keep cells unchanged."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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

_Kind = Literal["texts", "numbers", "integers"]

# What cells of predictions are, by the names of their Arrow types.
_KINDS: dict[str, _Kind] = {
    "string": "texts",
    "large_string": "texts",
    "string_view": "texts",
    "double": "numbers",
    "int64": "integers",
}

# What columns of SQLite keep, by their affinity. NUMERIC makes an integer of 1.0, and 1 / 2 is 0 in SQL.
_KEPT: dict[str, frozenset[_Kind]] = {
    "INTEGER": frozenset({"integers"}),
    "TEXT": frozenset({"texts"}),
    "BLOB": frozenset({"texts", "numbers", "integers"}),
    "REAL": frozenset({"numbers"}),
    "NUMERIC": frozenset({"integers"}),
}

# What an error says is allowed.
_ALLOWED: dict[str, dict[_Kind, str]] = {
    "sqlite": {
        "texts": "TEXT, VARCHAR or no type",
        "numbers": "REAL, DOUBLE or no type",
        "integers": "INTEGER, NUMERIC or no type",
    },
    "postgresql": {"texts": "text, varchar or char", "numbers": "double precision", "integers": "bigint"},
}


@dataclass(frozen=True, slots=True)
class _Column:
    """A column of the table.

    Attributes
    ----------
    type : str
        As the database calls it.
    keeps : frozenset of str
        Kinds of cells that are all read back as they were written: texts, numbers (doubles), integers (of 64 bits).
    """

    type: str
    keeps: frozenset[_Kind]


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
    """Refuse a table that lacks columns of the predictions, or would change their texts, numbers or integers.

    SQLite turns '007' into 7 where a column has affinity INTEGER, NUMERIC or REAL. PostgreSQL takes the bytes of a
    text or an integer for a value of another type if they fit.

    Parameters
    ----------
    database : connection
        By ADBC.
    given : Schema
        Columns of the predictions: texts, doubles, integers of 64 bits, or of type null if all cells are empty.
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
    columns = _sqlite_columns(database, name) if is_sqlite else _postgresql_columns(database, schema, name)
    for field in given:
        column = columns.get(_folded(field.name) if is_sqlite else field.name)
        if column is None:
            raise TableError(
                f"no row was added: column {field.name!r} cannot be written, since {readable_uri(place)} has none of "
                f"that name in {name!r}; name a table with such a column, or let --overwrite make one. Nothing was sent"
            )
        if pa.types.is_null(field.type):
            continue
        kind = _KINDS[str(field.type)]
        if kind not in column.keeps:
            allowed = _ALLOWED["sqlite" if is_sqlite else "postgresql"][kind]
            raise TableError(
                f"no row was added: column {field.name!r} of {readable_uri(place)} is of type {column.type}, and "
                f"{kind} of the predictions need {allowed}; name a table with such columns, or let --overwrite make "
                "one. Nothing was sent"
            )


def _sqlite_columns(database: Any, name: str) -> dict[str, _Column]:
    """Columns of a SQLite table by name in lower case."""
    with closing(database.cursor()) as cursor:
        cursor.execute("SELECT strict FROM pragma_table_list(?) WHERE schema = 'main'", (name,))
        is_strict = any(strict for (strict,) in cursor.fetchall())
        cursor.execute("SELECT name, type FROM pragma_table_xinfo(?, 'main')", (name,))
        declared = cursor.fetchall()
    columns = {}
    for column, of_type in declared:
        # A column of a STRICT table that is declared as BLOB takes none of them.
        takes_bytes = is_strict and _folded(of_type) == "blob"
        keeps: frozenset[_Kind] = frozenset() if takes_bytes else _KEPT[affinity(of_type, is_strict=is_strict)]
        columns[_folded(column)] = _Column(of_type, keeps)
    return columns


def _postgresql_columns(database: Any, schema: str | None, name: str) -> dict[str, _Column]:
    """Columns of a PostgreSQL table by name; its driver reports only columns of texts as strings."""
    columns = {}
    for field in database.adbc_get_table_schema(name, db_schema_filter=schema):
        declared = (field.metadata or {}).get(b"POSTGRESQL:type", str(field.type).encode()).decode()
        kind = _KINDS.get(str(field.type))
        # Money is reported as integers of hundredths, and a domain over it under its own name.
        keeps = () if kind is None or (kind == "integers" and declared != "int8") else (kind,)
        columns[field.name] = _Column(declared, frozenset(keeps))
    return columns


def _folded(name: str) -> str:
    """A name or type with its ASCII letters in lower case, as SQLite compares them."""
    return name.encode().lower().decode()
