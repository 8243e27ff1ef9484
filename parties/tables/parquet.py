"""Columns that stay in their Parquet file, or in a folder of such files, until they are asked for, one at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError
from opboost.preprocess import Columns, EncodedColumn, encode, read_numbers
from opboost.schema import ColumnSchema, Kind, TableSchema
from parties.errors import TableError
from parties.storage.array_cache import ArrayCache
from parties.storage.spool import WINDOW_ROWS, KeptNumbers, scattered
from parties.tables.cells import column_cells
from parties.tables.data_files import Stamp, file_digest, stamp_of
from parties.tables.parquet_files import read_stored, stored_frames, stored_length, stored_schemas


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """Columns of a stored table, of some of its rows in some order; each is read when it is asked for, and not kept.

    Attributes
    ----------
    path : Path
        A Parquet file, or a folder of them.
    rows : ndarray of integers, or on disk
        Numbers of rows in the file.
    stamp : Stamp
        Of what the rows were chosen from.
    content : Path, optional
        Named after the digest of the file's bytes, in the folder in which encoded columns are kept.
    schema : TableSchema, optional
        With the format in which cells are written.
    places : the inverse of `rows`
        For every row of the file, where it belongs, or -1.
    cache : ArrayCache or None
        Of what follows from these rows.
    """

    path: Path
    rows: KeptNumbers
    stamp: Stamp
    content: Path | None = None
    schema: TableSchema | None = None
    places: KeptNumbers = field(init=False, repr=False)
    cache: ArrayCache | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        n_stored = stored_length(self.path)
        if self.content is not None:
            self._check_stamp()
            digest = hashlib.sha256(self.content.name.encode())
            for i in range(0, len(self.rows), WINDOW_ROWS):
                digest.update(np.ascontiguousarray(self.rows[i : i + WINDOW_ROWS], "<i8"))
            object.__setattr__(self, "cache", ArrayCache(self.content.with_name(digest.hexdigest())))
        kind = np.min_scalar_type(-1 - n_stored)
        numbers = ((self.rows[i : i + WINDOW_ROWS], i) for i in range(0, len(self.rows), WINDOW_ROWS))
        pieces = ((rows, np.arange(i, i + len(rows), dtype=kind)) for rows, i in numbers)
        object.__setattr__(self, "places", scattered(pieces, n_stored, np.dtype(kind), fill=-1))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str, /) -> pd.Series:
        """Read one column.

        Raises
        ------
        TableError
            If the file cannot be read any more, or was changed.
        """
        column = self._read(read_stored(self.path, [name])[name])
        self._check_stamp()
        return column.take(self.rows[:]).reset_index(drop=True)

    def pieces(self, name: str) -> Iterator[tuple[NDArray[np.integer], pd.Series]]:
        """Read one column a piece at a time, in the order of the file: in which rows of the table its cells belong.

        Raises
        ------
        TableError
            As for one column as a whole.
        """
        self._check_stamp()
        start = 0
        for frame in stored_frames(self.path, [name]):
            of_piece = self.places[start : start + len(frame)]
            start += len(frame)
            is_wanted = of_piece >= 0
            cells = self._read(frame[name])
            yield (of_piece, cells) if is_wanted.all() else (of_piece[is_wanted], cells[is_wanted])
        self._check_stamp()

    def take(self, rows: NDArray[np.integer]) -> StoredColumns:
        """The columns restricted to some of the rows."""
        return replace(self, rows=self.rows[:][rows])

    def settle(self) -> None:
        """Keep what was encoded, unless the file's bytes are others than when they were hashed."""
        if self.cache is not None and (content := self.content) is not None:
            self.cache.settle(lambda: file_digest(self.path) == content.name)

    def is_even(self, column: ColumnSchema) -> bool:
        """Whether a column's cells read the same, whatever other cells are read with them.

        Whole numbers become fractions where one of them is missing, which matters to categories.
        """
        import pyarrow.types as pt

        if self.schema is not None and column.name in self.schema.format.columns:
            return column.kind is Kind.NUMERIC
        is_number = column.kind is Kind.NUMERIC
        allowed = (pt.is_integer, pt.is_floating) if is_number else (pt.is_string, pt.is_large_string)
        kinds = [schema.field(column.name).type for schema in stored_schemas(self.path)]
        return all(any(test(kind) for test in allowed) for kind in kinds)

    def _read(self, column: pd.Series) -> pd.Series:
        if self.schema is None or not self.schema.format.changes_cells:
            return column
        return column_cells(column, self.schema)

    def _check_stamp(self) -> None:
        if stamp_of(self.path) != self.stamp:
            raise TableError(f"{self.path} was changed while it was in use. Nothing was sent")


def encode_column(columns: Columns, mechanism: ColumnMechanism) -> EncodedColumn:
    """Encode one column of a table; of a stored one no more than a piece is in memory beside its codes.

    Raises
    ------
    TableError, DataError
        As for the column as a whole, whose faults are counted over all its rows.
    """
    schema, domain = mechanism.schema, mechanism.settings.domain
    if not isinstance(columns, StoredColumns) or not columns.is_even(schema):
        return encode(columns[schema.name], schema, domain=domain)
    highest = max(domain.hi, len(schema.categories))
    codes, n_clipped = np.empty(len(columns), np.min_scalar_type(-1 - highest)), 0
    # Pages that nobody writes to take no memory.
    is_missing = np.zeros(len(columns), np.bool_)
    try:
        for places, cells in columns.pieces(schema.name):
            piece = encode(cells, schema, domain=domain)
            codes[places.astype(np.intp)] = piece.codes
            n_clipped += piece.n_clipped
            if piece.is_missing.any():
                is_missing[places] = piece.is_missing
    except DataError:
        return encode(columns[schema.name], schema, domain=domain)
    return EncodedColumn(codes, is_missing, n_clipped)


def check_column(columns: Columns, schema: ColumnSchema, *, clip: bool) -> None:
    """Refuse a column of which a cell does not fit the schema; of a stored one, a piece is in memory at a time.

    Parameters
    ----------
    columns : Columns
    schema : ColumnSchema
    clip : bool
        Whether the column is released, so that its bounds count.

    Raises
    ------
    TableError, DataError
        As for the column as a whole, whose faults are counted over all its rows.
    """
    if isinstance(columns, StoredColumns) and columns.is_even(schema):
        try:
            for _, cells in columns.pieces(schema.name):
                read_numbers(cells, schema, clip=clip)
        except DataError:
            pass
        else:
            return
    read_numbers(columns[schema.name], schema, clip=clip)
