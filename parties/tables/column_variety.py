"""Variety of a table's columns: those that hold a single value, and cells that are read as `other`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path

import pandas as pd

from opboost.preprocess import Columns
from opboost.schema import TableSchema
from opboost.table_format import OTHER
from parties.errors import TableError
from parties.tables.parquet import StoredColumns
from parties.tables.party_table import PartyTable


def check_varied(table: PartyTable, schema: TableSchema, path: Path) -> None:
    """Refuse columns that hold a single value: they cannot be split on, and a release of them would be wasted."""
    constant = [name for name in schema.names if is_constant(_cells(table.features, name))]
    n_other = read_as_other(table.features, schema) if constant else {}
    unlisted = [name for name in constant if n_other.get(name) == table.n_rows]
    if unlisted:
        raise TableError(f"{path}: {' | '.join(none_listed(name) for name in unlisted)}")
    if constant:
        raise TableError(f"{path}: constant columns {', '.join(constant)}; leave them out of the schema")


def _cells(features: Columns, name: str) -> Iterator[pd.Series]:
    """A column in one or more pieces, in any order; of a stored one no more is read than is asked for."""
    if isinstance(features, StoredColumns):
        return (cells for _, cells in features.pieces(name) if len(cells))
    return iter([features[name]])


def is_constant(pieces: Iterator[pd.Series]) -> bool:
    """Whether all cells of a column, which comes in pieces, are the same, or all missing, or none."""
    piece = next(pieces)
    first = piece.iloc[0] if len(piece) else None
    return all(
        bool(cells.isna().all() if pd.isna(first) else (cells == first).all()) for cells in chain([piece], pieces)
    )


def read_as_other(features: Columns, schema: TableSchema) -> dict[str, int]:
    """How many cells are read as `other`, of every column that is there, has `other: true` and any such cells."""
    names = [name for name in schema.names if schema.format.of(name).has_other and _has(features, name)]
    counts = {name: sum(int((cells == OTHER).sum()) for cells in _cells(features, name)) for name in names}
    return {name: n for name, n in counts.items() if n}


def _has(features: Columns, name: str) -> bool:
    """Whether a column is there: a file that is examined may lack some."""
    return not isinstance(features, pd.DataFrame) or name in features.columns


def other_words(n_other: int, n_cells: int) -> str:
    """A sentence for the owner on how many cells of a column are read as `other`."""
    return f"{n_other:,} of {n_cells:,} cells are read as `{OTHER}`, for the schema lists no other category for them"


def other_sentences(n_other: Mapping[str, int], n_cells: int) -> tuple[str, ...]:
    """A sentence for each such column of a table, for the owner's log."""
    return tuple(f"column {name}: {other_words(n, n_cells)}" for name, n in n_other.items())


def none_listed(name: str) -> str:
    """Sentence on a column all of whose cells are read as `other`."""
    return (
        f"all cells of column {name!r} are read as `{OTHER}`: none has a category that the schema lists. List them as "
        "the file writes them, or leave the column out of the schema"
    )
