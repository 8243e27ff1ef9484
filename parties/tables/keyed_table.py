"""Keys of a party's table, read from its file beside ids and columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.schema import TableSchema
from opboost.table_format import TableFormat
from parties.errors import TableError
from parties.tables.cells import without_empty
from parties.tables.party_table import PartyTable, check_columns, read_frame, read_table
from parties.tables.record_ids import read_ids, rows_to_keep
from parties.tables.record_keys import KeyColumns, first_names, keys_of_names, places_by_key, read_keys
from parties.tables.sorted_ids import Duplicates


class KeptCommon(Protocol):
    """Interface of a journal that keeps which records were found to be common."""

    def common(self) -> pd.Index | None: ...
    def common_rows(self, n_rows: int) -> NDArray[np.int64] | None: ...


def with_keys(
    table: PartyTable, keys: Sequence[KeyColumns], path: Path, schema: TableSchema, *, duplicates: Duplicates
) -> PartyTable:
    """A table that was read from a file, with the keys of its records.

    Raises
    ------
    TableError
        If the file lacks a column of a key, a key is that of several records, or the file was changed.
    """
    if not keys:
        return table
    columns = tuple(dict.fromkeys([*schema.id_columns, *(name for key in keys for name in key)]))
    form = TableFormat(sep=schema.format.sep, encoding=schema.format.encoding)
    # Their cells count as they are written, also those of columns that the schema reads as times or numbers.
    texts = TableSchema(columns=(), id=columns, format=form)
    names, frame = read_frame(path, texts)
    check_columns(path, names, texts, names, needs_label=False)
    ids = read_ids(frame, schema.id_columns, path)
    kept = rows_to_keep(ids, duplicates, schema.id_columns, path)
    places = ids[kept].get_indexer(table.index)
    if (places < 0).any():
        raise TableError(f"{path} was changed while it was in use. Nothing was sent")
    frame = frame.assign(**{name: without_empty(frame[name], schema.format) for key in keys for name in key})
    return replace(table, keys=read_keys(frame.iloc[kept[places]], keys, path, duplicates=duplicates))


def read_keyed(
    path: Path,
    schema: TableSchema,
    keys: Sequence[KeyColumns],
    *,
    ignore: Sequence[str],
    duplicates: Duplicates,
    needs_label: bool = False,
    by_column: bool = False,
    cache: Path | None = None,
) -> PartyTable:
    """Read a table as `read_table` does, with the keys of its records; the schema need not have their columns.

    Raises
    ------
    TableError, DataError
    """
    ignored = (*ignore, *(name for key in keys for name in key))
    read = partial(read_table, path, schema, ignore=ignored, needs_label=needs_label, duplicates=duplicates)
    return with_keys(read(by_column=by_column, cache=cache), keys, path, schema, duplicates=duplicates)


def called(table: PartyTable, names: pd.Index) -> PartyTable:
    """A table whose records were compared by keys, and go by the names that they have in common from then on.

    They are known by no other key: requests could try out guesses at it that the comparison left out, and a further
    comparison could find them by another one.
    """
    return replace(table, shared=names, keys=keys_of_names(names, len(table.keys)))


def named_rows(table: PartyTable, names: pd.Index) -> PartyTable:
    """The records that parties call by these names, in their order, as far as the table has them."""
    if not table.keys:
        rows = table.ids.get_indexer(names)
        return table.take(rows[rows >= 0])
    places = places_by_key(table.keys)
    known = names[[name in places for name in names]]
    return called(table.take(known.map(places).to_numpy()), known)


def common_again(table: PartyTable, journal: KeptCommon) -> PartyTable:
    """The records that a journal says were found to be common before; all if it does not."""
    if (rows := journal.common_rows(table.n_rows)) is not None:
        return table.take(rows)
    # Names where records were compared by keys, and ids of an earlier version.
    names = journal.common()
    return table if names is None else named_rows(table, names)


def names_to_ask(table: PartyTable) -> pd.Index:
    """The names by which a party asks another one about its records."""
    return first_names(table.keys) if table.keys else table.index
