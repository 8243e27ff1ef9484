"""A party's data file: read, checked against its schema, and put in the order of the ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import Values
from opboost.columns import OwnColumn
from opboost.errors import nearest
from opboost.preprocess import Columns, own_features
from opboost.schema import Kind, TableSchema
from parties.errors import TableError
from parties.storage.spool import KeptNumbers, mapped
from parties.tables.cells import named_as_listed, read_cells
from parties.tables.csv_files import SEPARATORS, read_csv
from parties.tables.data_files import file_digest, is_stored, named, reporting_faults, stamp_of
from parties.tables.labels import all_labels, read_labels, read_weights
from parties.tables.parquet import StoredColumns
from parties.tables.parquet_files import read_stored, stored_frames, stored_names
from parties.tables.record_ids import Ids, digest_of_ids, each_id, ids_to_keep, read_ids, rows_to_keep
from parties.tables.record_keys import KeyTexts
from parties.tables.sorted_ids import Duplicates, EncodedIds, SortedIds, StoredIds

LABEL_OF_PASSIVE = "the schema names a `label`, which only the active party has"


@dataclass(frozen=True)
class PartyTable:
    """Records in ascending order of their ids, or of the names that parties call them by.

    Attributes
    ----------
    ids : pandas Index of str or StoredIds
        Unique.
    features : Columns
        The schema's columns: a DataFrame in its order, or what reads them from a file one at a time.
    labels : ndarray of float64, shape (n_rows,) or (n_rows, n_labels), or None
    weights : ndarray of float64 or None
    margins : mapping of str to ndarray of float64
        Where the scores of records start, by column.
    keys : tuple of KeyTexts
        What records are compared by, where that is not their id.
    shared : pandas Index of str, optional
        What all parties call the records once they were compared by keys.
    """

    ids: Ids
    features: Columns
    labels: Values | None = None
    weights: Values | None = None
    margins: dict[str, Values] = field(default_factory=dict)
    keys: tuple[KeyTexts, ...] = ()
    shared: pd.Index | None = None
    _own: dict[TableSchema, tuple[OwnColumn, ...]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def frame(self) -> pd.DataFrame:
        """The features as one table, where they are in memory anyway."""
        if not isinstance(self.features, pd.DataFrame):
            raise TypeError("this table's columns are read from its file one at a time")
        return self.features

    @property
    def index(self) -> pd.Index:
        """All ids in memory."""
        return self.ids if isinstance(self.ids, pd.Index) else self.ids[:]

    @property
    def names(self) -> Ids:
        """Names of the records that all parties know: their ids, unless they were compared by keys."""
        return self.ids if self.shared is None else self.shared

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    @cached_property
    def id_digest(self) -> str:
        """A digest of all names, the same on both sides exactly if the sets of names are."""
        return digest_of_ids(self.names)

    def take(self, rows: NDArray[np.int64]) -> PartyTable:
        """The table of some of its rows, in this order; own columns that were made are not made again."""
        labels, weights = (None if one is None else one[rows] for one in (self.labels, self.weights))
        margins = {name: values[rows] for name, values in self.margins.items()}
        own = {
            schema: tuple(replace(column, values=column.values[rows]) for column in columns)
            for schema, columns in self._own.items()
        }
        keys, shared = tuple(key[rows] for key in self.keys), None if self.shared is None else self.shared[rows]
        features = self.features
        if isinstance(features, StoredColumns):
            columns: Columns = features.take(rows)
        else:
            columns = self.frame.iloc[rows].reset_index(drop=True)
        ids: Ids = self.ids[rows] if isinstance(self.ids, pd.Index) else self.ids.taken(rows)
        return PartyTable(ids, columns, labels, weights, margins, keys, shared, own)


def own_columns(table: PartyTable, schema: TableSchema) -> tuple[OwnColumn, ...]:
    """The active party's columns as tree inputs, which are made once."""
    if schema not in table._own:
        read = (own_features(table.features, [column])[column.name] for column in schema.columns)
        columns = mapped(read, n_bytes=8 * table.n_rows * len(schema.columns))
        table._own[schema] = tuple(
            OwnColumn(
                column.name,
                values,
                column.kind is Kind.UNORDERED,
                column.categories,
                schema.format.of(column.name).unit_s,
            )
            for column, values in zip(schema.columns, columns, strict=True)
        )
    return table._own[schema]


def model_inputs(table: PartyTable, schema: TableSchema) -> dict[str, Values]:
    """Inputs of a model from the active party's records: own columns and base margins, by name."""
    return {column.name: column.values for column in own_columns(table, schema)} | table.margins


def id_keys(table: PartyTable) -> Sequence[bytes]:
    """The ids of a table's records, for a comparison with another party's; on disk where the table's are."""
    ids = table.ids
    return EncodedIds(ids) if isinstance(ids, StoredIds) else [record_id.encode() for record_id in each_id(ids)]


def read_table(
    path: Path,
    schema: TableSchema,
    *,
    ignore: Sequence[str] = (),
    needs_label: bool,
    duplicates: Duplicates = "refuse",
    by_column: bool = False,
    cache: Path | None = None,
) -> PartyTable:
    """Read a CSV file (plain or compressed), a Parquet file, or a folder of Parquet files in the order of their names.

    With `by_column`, only ids and labels of Parquet are read at once; its features when they are asked for. What they
    are encoded to may be kept in folders of `cache`.

    Empty cells are missing; no word like "NA" is. Every column of the file must be in the schema or in `ignore`. What
    makes an id is told in `parties.tables.record_ids`.

    Raises
    ------
    TableError
        If the file cannot be read, or its columns, ids or labels do not fit; nothing is sent then.
    """
    by_column = by_column and is_stored(path)
    stamp = stamp_of(path)
    names, frame = (stored_names(path, schema.all_names), pd.DataFrame()) if by_column else read_frame(path, schema)
    check_columns(path, names, schema, ignore, needs_label=needs_label)
    if by_column and (given := [name for _, name in schema.of_training if name in names]):
        frame = read_cells(read_stored(path, given), schema, path)
    if by_column:
        kept = _stored_ids(path, schema, duplicates)
        # What is kept is the encoding of cells as they stand in the file.
        content = cache / file_digest(path) if cache and not schema.format.changes_cells else None
        columns = StoredColumns(path, kept.rows, stamp, content, schema)
        return _labelled(PartyTable(kept.ids, columns), path, frame, schema, kept.rows, needs_label=needs_label)
    ids = read_ids(frame, schema.id_columns, path)
    order = rows_to_keep(ids, duplicates, schema.id_columns, path)
    table = PartyTable(ids[order], frame[list(schema.names)].iloc[order].reset_index(drop=True))
    return _labelled(table, path, frame, schema, order, needs_label=needs_label)


def _labelled(
    table: PartyTable, path: Path, frame: pd.DataFrame, schema: TableSchema, rows: KeptNumbers, *, needs_label: bool
) -> PartyTable:
    """The table with the labels of its rows, as far as there are any; for training without records that have none."""
    margins = {name: read_labels(path, frame[name], name, what="base margin")[rows[:]] for name in schema.base_margin}
    table = replace(table, margins=margins)
    if needs_label and schema.weight is not None:
        table = replace(table, weights=read_weights(path, frame[schema.weight], schema.weight)[rows[:]])
    if not schema.labels or not {*schema.labels, schema.group or schema.label} <= set(frame.columns):
        return table
    labels = all_labels(path, frame, schema)[rows[:]]
    is_known = np.isfinite(labels).reshape(len(labels), -1).all(axis=1)
    if not is_known.any():
        if needs_label:
            raise TableError(f"{path}: label column {schema.label!r} is empty")
        return table
    table = replace(table, labels=labels)
    return table.take(np.flatnonzero(is_known)) if needs_label and not is_known.all() else table


def _stored_ids(path: Path, schema: TableSchema, duplicates: Duplicates) -> SortedIds:
    """The ids of a Parquet file's rows, of which one piece at a time is in memory."""
    names = list(dict.fromkeys(schema.id_columns))
    pieces = (read_ids(piece, schema.id_columns, path) for piece in stored_frames(path, names))
    try:
        return ids_to_keep(pieces, duplicates, schema.id_columns, path)
    except TableError:
        # What is wrong is counted over the whole file.
        ids = read_ids(read_stored(path, names), schema.id_columns, path)
        return ids_to_keep([ids], duplicates, schema.id_columns, path)


def read_frame(path: Path, schema: TableSchema) -> tuple[list[str], pd.DataFrame]:
    """The names of all columns of a file, and those of its columns that the schema knows, with no cell checked.

    Raises
    ------
    TableError
        If it is no table.
    """
    known = schema.all_names
    if is_stored(path):
        names = stored_names(path, known)
        return names, read_cells(read_stored(path, [name for name in names if name in known]), schema, path)
    form = schema.format
    texts = (c.name for c in schema.columns if c.kind is not Kind.NUMERIC or form.has_numbers or c.name in form.columns)
    is_text = {"group": True, "label": bool(form.positive)}
    others = (name for what, name in schema.of_training if form.has_numbers or is_text.get(what))
    with reporting_faults(path, form.encoding):
        frame = read_csv(path, (*schema.id_columns, *texts, *others), form)
    names = [str(name) for name in frame.columns]
    frame = named_as_listed(frame[[name for name in names if name in known]], schema)
    return names, read_cells(frame, schema, path)


def check_columns(
    path: Path, header: list[str], schema: TableSchema, ignore: Sequence[str], *, needs_label: bool
) -> None:
    """Refuse a header that does not fit the schema."""
    for name in schema.id_columns:
        if name not in header:
            raise TableError(f"{path} has no id column {name!r}; {_instead(path, name, header, schema)}")
    for what, name in schema.of_training:
        if name not in header and (needs_label or what == "base margin"):
            raise TableError(f"{path} has no {what} column {name!r}; {_instead(path, name, header, schema)}")
    missing = [name for name in schema.names if name not in header]
    if missing:
        raise TableError(f"{path} lacks columns of the schema: {named(missing)}{nearest(missing, header)}")
    of_training = (name for _, name in schema.of_training)
    unknown = sorted(set(header) - {*schema.names, *schema.id_columns, *of_training, *ignore})
    if unknown:
        raise TableError(
            f"{path} has columns that the schema does not know: {named(unknown)}; describe them or list them "
            "under `ignore`"
        )


def _instead(path: Path, name: str | None, header: Sequence[str], schema: TableSchema) -> str:
    """The probable reason why a header lacks a column: another separator, or other columns, which are listed."""
    sep = schema.format.sep
    likely = next(
        (candidate for candidate in SEPARATORS if candidate != sep and len(header) == 1 and candidate in header[0]),
        None,
    )
    if likely is not None and not is_stored(path):
        word = "tab" if likely == "\t" else likely
        return f"the separator looks like {word!r}; say `reader: {{sep: {word!r}}}` in the schema"
    return f"its columns are {named(header)}{nearest(name or '', header)}"
