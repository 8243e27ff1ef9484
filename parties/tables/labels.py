"""Columns of a data file that are neither id nor feature: labels, weights, groups, base margins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from opboost.arrays import Mask, Values
from opboost.preprocess import holds_numbers
from opboost.schema import TableSchema
from opboost.vertical import LEAST_WEIGHT, MAX_WEIGHT
from parties.errors import TableError
from parties.tables.cells import other_labels, read_cells
from parties.tables.parquet_files import read_stored, stored_length


def read_weights(path: Path, column: pd.Series, name: str) -> Values:
    """Weights of records. None is 0, for which of the records are common must not decide whether a run ends."""
    weights = read_labels(path, column, name, what="weight")
    if not ((weights >= LEAST_WEIGHT) & (weights <= MAX_WEIGHT)).all():
        raise TableError(f"{path}: weights must be from {LEAST_WEIGHT:g} to {MAX_WEIGHT:g}; found others")
    return weights


def read_labels(path: Path, column: pd.Series, name: str, *, may_miss: bool = False, what: str = "label") -> Values:
    """The labels as numbers; NaN for a missing one, where one may be."""
    if not holds_numbers(column):
        raise TableError(f"{path}: {what} column {name!r} holds {column.dtype}, not numbers")
    try:
        labels = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    except (OverflowError, TypeError):
        raise TableError(
            f"{path}: {what} column {name!r} holds cells that are not numbers of double precision"
        ) from None
    n_bad = int((~np.isfinite(labels) & ~(may_miss & column.isna().to_numpy())).sum())
    if n_bad:
        raise TableError(f"{path}: {what} column {name!r} is missing, infinite or not a number in {n_bad} rows")
    return labels


def are_labelled(path: Path, schema: TableSchema) -> Mask:
    """Mask of a Parquet file's rows for training: all, or those with a label if the others are left out."""
    if not schema.format.drops_unlabelled or schema.label is None:
        return np.ones(stored_length(path), np.bool_)
    cells = read_cells(read_stored(path, [schema.label]), schema, path)
    return np.isfinite(read_labels(path, cells[schema.label], schema.label, may_miss=True))


def others_of(path: Path, schema: TableSchema) -> set[str]:
    """`other_labels` of a Parquet file: each file of a folder may hold another one, and the folder only one."""
    if not schema.format.positive or schema.label is None:
        return set()
    return other_labels(read_stored(path, [schema.label])[schema.label], schema.format)


def read_groups(path: Path, column: pd.Series, name: str, *, may_miss: bool = False) -> Values:
    """Numbers of the groups of records; NaN for a missing one, where one may be."""
    numbers = pd.factorize(column)[0].astype(np.float64)
    n_missing = int((numbers < 0).sum())
    if n_missing and not may_miss:
        raise TableError(f"{path}: group column {name!r} is missing in {n_missing} rows")
    return np.where(numbers < 0, np.nan, numbers)


def all_labels(path: Path, frame: pd.DataFrame, schema: TableSchema) -> Values:
    """The labels of all rows, with the numbers of their groups, shape ``(n_rows,)`` or ``(n_rows, n_columns)``."""
    may_miss = schema.format.drops_unlabelled
    columns = [read_labels(path, frame[name], name, may_miss=may_miss) for name in schema.labels]
    if schema.group is not None:
        columns.append(read_groups(path, frame[schema.group], schema.group, may_miss=may_miss))
    return np.column_stack(columns) if len(columns) > 1 else columns[0]
