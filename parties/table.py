"""A party's data file: read, checked against its schema, and put in the order of the ids."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.preprocess import own_features
from opboost.schema import Kind, TableSchema
from opboost.vertical import OwnColumn
from parties.errors import TableError
from parties.record_ids import Duplicates, canonical, read_ids, rows_to_keep


@dataclass(frozen=True)
class PartyTable:
    """Records in ascending order of their ids.

    Attributes
    ----------
    ids : pandas Index of str
        Unique and sorted.
    features : DataFrame
        The schema's columns, in its order.
    labels : ndarray of float64 or None
    """

    ids: pd.Index
    features: pd.DataFrame
    labels: Values | None = None

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    @cached_property
    def id_digest(self) -> str:
        """A digest of all ids, the same on both sides exactly if the sets of ids are."""
        return digest_of_ids(self.ids)

    def take(self, rows: NDArray[np.int64]) -> PartyTable:
        """The table of some of its rows, given in ascending order."""
        labels = None if self.labels is None else self.labels[rows]
        return PartyTable(self.ids[rows], self.features.iloc[rows].reset_index(drop=True), labels)


def own_columns(table: PartyTable, schema: TableSchema) -> tuple[OwnColumn, ...]:
    """The active party's columns as tree inputs."""
    values = own_features(table.features, schema.columns)
    return tuple(
        OwnColumn(column.name, values[column.name], is_categorical=column.kind is Kind.UNORDERED)
        for column in schema.columns
    )


def digest_of_ids(ids: pd.Index) -> str:
    """A digest of ids in their order."""
    digest = hashlib.sha256()
    for record_id in ids:
        encoded = record_id.encode()
        digest.update(len(encoded).to_bytes(4, "little") + encoded)
    return digest.hexdigest()


def read_table(
    path: Path,
    schema: TableSchema,
    *,
    ignore: Sequence[str] = (),
    needs_label: bool,
    duplicates: Duplicates = "refuse",
) -> PartyTable:
    """Read a CSV (plain or compressed) or Parquet file.

    Empty cells are missing; no word like "NA" is. Every column of the file must be in the schema or in `ignore`. What
    makes an id is told in `parties.record_ids`.

    Raises
    ------
    TableError
        If the file cannot be read, or its columns, ids or labels do not fit; nothing is sent then.
    """
    frame = read_frame(path, schema)
    check_columns(path, list(frame.columns), schema, ignore, needs_label=needs_label)
    ids = read_ids(frame, schema.id_columns, path)
    order = rows_to_keep(ids, duplicates, schema.id_columns, path)
    frame = frame.iloc[order].reset_index(drop=True)
    labels = None
    if schema.label is not None and schema.label in frame.columns:
        labels = read_labels(path, frame[schema.label], schema.label)
    return PartyTable(ids[order], frame[list(schema.names)], labels)


def check_varied(table: PartyTable, path: Path) -> None:
    """Refuse columns that hold a single value: they cannot be split on, and a release of them would be wasted."""
    constant = [name for name in table.features.columns if table.features[name].nunique(dropna=False) < 2]
    if constant:
        raise TableError(f"{path}: constant columns {', '.join(constant)}; leave them out of the schema")


def select(table: PartyTable, ids_path: Path, path: Path) -> PartyTable:
    """The records whose ids are listed, one per line, in a file both parties agreed on.

    Raises
    ------
    TableError
        If the list is empty, repeats an id, or names one that the table lacks.
    """
    try:
        lines = ids_path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise TableError(f"{ids_path} cannot be read: {type(error).__name__}") from None
    wanted = pd.Index([canonical(line) for line in lines if line.strip()], dtype=object)
    if len(wanted) == 0 or not wanted.is_unique:
        raise TableError(f"{ids_path} must list at least one id and none twice; found {len(wanted)}")
    positions = table.ids.get_indexer(wanted.sort_values())
    n_absent = int((positions < 0).sum())
    if n_absent:
        raise TableError(f"{path} lacks {n_absent} of the {len(wanted)} ids listed in {ids_path}. Nothing was sent")
    return table.take(positions)


def read_frame(path: Path, schema: TableSchema) -> pd.DataFrame:
    """The file as it is, with nothing checked but that it is a table.

    Raises
    ------
    TableError
    """
    as_text = [*schema.id_columns, *(column.name for column in schema.columns if column.kind is not Kind.NUMERIC)]
    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        return _read_csv(path, dict.fromkeys(as_text, "string"))
    except OSError as error:
        raise TableError(f"{path} cannot be read: {error.strerror or type(error).__name__}") from None
    except ValueError as error:
        raise TableError(f"{path} is not a readable table: {type(error).__name__}") from None


def _read_csv(path: Path, dtypes: dict[str, str]) -> pd.DataFrame:
    """Read CSV; rows with more cells than the header would otherwise shift silently into an index.

    An empty cell more in every row, from a separator at the end of the line, is no cell.
    """
    frame = pd.read_csv(path, dtype=dtypes, keep_default_na=False, na_values=[""])
    if isinstance(frame.index, pd.RangeIndex):
        return frame
    if frame.index.nlevels == 1 and frame.iloc[:, -1].isna().all():
        return pd.read_csv(path, dtype=dtypes, keep_default_na=False, na_values=[""], index_col=False)
    raise TableError(f"{path} has rows with more cells than its header names columns")


def check_columns(
    path: Path, found: list[str], schema: TableSchema, ignore: Sequence[str], *, needs_label: bool
) -> None:
    """Refuse a header that does not fit the schema."""
    for name in schema.id_columns:
        if name not in found:
            raise TableError(f"{path} has no id column {name!r}; its columns are {', '.join(found)}")
    if needs_label and schema.label not in found:
        raise TableError(f"{path} has no label column {schema.label!r}; its columns are {', '.join(found)}")
    missing = [name for name in schema.names if name not in found]
    if missing:
        raise TableError(f"{path} lacks columns of the schema: {', '.join(missing)}")
    unknown = sorted(set(found) - {*schema.names, *schema.id_columns, schema.label, *ignore})
    if unknown:
        raise TableError(
            f"{path} has columns that the schema does not know: {', '.join(unknown)}; describe them or list them "
            "under `ignore`"
        )


def read_labels(path: Path, column: pd.Series, name: str) -> Values:
    """The labels as numbers."""
    labels = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    n_bad = int((~np.isfinite(labels)).sum())
    if n_bad:
        raise TableError(f"{path}: label column {name!r} is missing, infinite or not a number in {n_bad} rows")
    return labels
