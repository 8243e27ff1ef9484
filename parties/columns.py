"""Columns that stay in their Parquet file until they are asked for, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.errors import TableError


@dataclass(frozen=True, slots=True)
class StoredColumns:
    """Columns of a Parquet file, of some of its rows in some order; each is read when it is asked for, and not kept.

    Attributes
    ----------
    path : Path
    rows : ndarray of integers
        Numbers of rows in the file.
    stamp : tuple of int
        Tells whether the file is still the one that the rows were chosen from.
    """

    path: Path
    rows: NDArray[np.integer]
    stamp: tuple[int, int]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, name: str, /) -> pd.Series:
        """Read one column.

        Raises
        ------
        TableError
            If the file cannot be read any more, or was changed.
        """
        column = read_stored(self.path, [name])[name]
        if stamp_of(self.path) != self.stamp:
            raise TableError(f"{self.path} was changed while it was in use. Nothing was sent")
        return column.take(self.rows).reset_index(drop=True)

    def take(self, rows: NDArray[np.integer]) -> StoredColumns:
        """The same columns of some of the rows."""
        return replace(self, rows=self.rows[rows])


def stamp_of(path: Path) -> tuple[int, int]:
    """Size and time of the last change of a file."""
    with reporting_faults(path):
        status = path.stat()
        return status.st_size, status.st_mtime_ns


def stored_names(path: Path) -> list[str]:
    """Names of the columns of a Parquet file."""
    with reporting_faults(path):
        import pyarrow.parquet as pq

        schema = pq.read_schema(path)
        index = (schema.pandas_metadata or {}).get("index_columns", ())
        return [name for name in schema.names if name not in index]


def read_stored(path: Path, names: Sequence[str] | None = None) -> pd.DataFrame:
    """Columns of a Parquet file; all of them, if none is named.

    Raises
    ------
    TableError
    """
    with reporting_faults(path):
        return pd.read_parquet(path, columns=None if names is None else list(names))


@contextmanager
def reporting_faults(path: Path) -> Iterator[None]:
    """Say in one sentence that a file cannot be read, and nothing of what is in it."""
    try:
        yield
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError as error:
        raise TableError(f"{path} is not a readable table: {type(error).__name__}") from None
