"""A party's table as Parquet partitions, records in ascending order of their ids over all of them.

A folder of Parquet files in that order is taken as it is, another one is arranged for the time of the run, and one
file, of a size that this machine can read, is divided. Either way the order is that of every other run, so the other
side may keep its table in one piece.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from opboost.arrays import Values
from opboost.preprocess import own_features, read_numbers
from opboost.schema import ColumnSchema, TableSchema
from opboost.trees.boosting import BoostingParameters
from opboost.trees.losses import Loss
from opboost.trees.xgboost_numbers import check_single_precision
from opboost.vertical import check_own_rows
from parties.cluster.arrangement import (
    CheckRows,
    HeldValues,
    arranged,
    numbered,
    partition_frame,
    refuse_constant,
    two_values,
    unchecked,
)
from parties.cluster.working_folder import working_folder
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import RunFolderError, TableError
from parties.storage.atomic_files import replacing
from parties.storage.paths import is_folder
from parties.tables.data_files import Stamp, check_unchanged, parts, stamp_of
from parties.tables.labels import read_labels
from parties.tables.listed_ids import select
from parties.tables.parquet_files import read_stored, stored_names
from parties.tables.party_table import PartyTable, check_columns, read_table
from parties.tables.record_ids import encoded_ids, read_ids
from parties.tables.sorted_ids import sort_ids

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class Partitions:
    """Partitions whose files were checked.

    Attributes
    ----------
    paths : tuple of Path
    rows : tuple of int
        Of each.
    id_digest : str
        As `parties.tables.party_table.PartyTable.id_digest`: it does not depend on how the table is divided.
    stamps : tuple of Stamp
        Of the files, before their ids were read.
    """

    paths: tuple[Path, ...]
    rows: tuple[int, ...]
    id_digest: str
    stamps: tuple[Stamp, ...]

    @property
    def n_rows(self) -> int:
        return sum(self.rows)

    def check_unchanged(self, part: int | None = None) -> None:
        """Refuse files that were changed since they were checked: one of them, or all.

        Raises
        ------
        TableError
        """
        for number in range(len(self.paths)) if part is None else (part,):
            check_unchanged(self.paths[number], self.stamps[number])

    def words(self, client: Client) -> str:
        """How the records are divided, and how many cluster processes see them."""
        return f"{self.n_rows} records in {len(self.paths)} partitions, seen by {len(client.nthreads())} workers"


@dataclass(frozen=True, slots=True)
class _Part:
    """Scan of a partition: first and last id, whether ids ascend, and up to two values of every column."""

    n_rows: int
    first: str
    last: str
    ascends: bool
    held: HeldValues


@contextmanager
def partitions_of(
    run: ActiveRun | PassiveRun,
    schema: TableSchema,
    ignore: Sequence[str],
    *,
    needs_label: bool,
    varied: Sequence[str] = (),
    check: Callable[[PartyTable], None] = lambda whole: None,
    check_rows: CheckRows = unchecked,
    client: Client,
) -> Iterator[Partitions]:
    """The checked partitions of a run's data; those that had to be made are removed at the end.

    `check` may refuse a file before its listed records are chosen. Of a folder, cluster processes check that the
    `varied` columns hold more than one value, and where records are chosen, all of them by `check_rows`.

    Raises
    ------
    TableError, DataError
        If the data, or what the run file says of it, does not fit. Nothing was sent.
    """
    validate = partial(validate_partitions, schema=schema, data=run.data, client=client)
    if not is_folder(run.data):
        table = read_table(run.data, schema, ignore=ignore, needs_label=needs_label, duplicates=run.align.duplicates)
        check(table)
        if run.ids is not None:
            table = select(table, run.ids, run.data)
        with working_folder(run.dask.folder) as folder:
            yield _in_order(validate(_divided(table, schema, folder, run.dask.partition_rows), names=()), run.data)
        return
    paths = parts(run.data)
    for path in paths:
        check_columns(path, stored_names(path, schema.all_names), schema, ignore, needs_label=needs_label)
    is_chosen = run.ids is not None or run.align.duplicates != "refuse" or schema.format.drops_unlabelled
    if not (is_chosen or schema.format.changes_cells) and (partitions := validate(paths, names=varied)) is not None:
        yield partitions
        return
    with working_folder(run.dask.folder) as folder:
        make = partial(arranged, paths, run, schema, folder, needs_label=needs_label, client=client)
        yield _in_order(validate(make(varied=varied, check=check_rows), names=()), run.data)


def _in_order(partitions: Partitions | None, data: Path) -> Partitions:
    """Partitions that were written in the order of their ids; refused if they are in another one.

    Raises
    ------
    TableError
    """
    if partitions is None:
        raise TableError(
            f"{data}: its records were written to `dask.folder` in the order of their ids, and these partitions were "
            "changed while they were in use. Nothing was sent"
        )
    return partitions


def validate_partitions(
    paths: Sequence[Path], schema: TableSchema, names: Sequence[str], data: Path, *, client: Client
) -> Partitions | None:
    """Check on the cluster processes that each column named holds more than one value; None if ids do not ascend.

    Raises
    ------
    TableError
        Nothing was sent.
    """
    stamps = tuple(stamp_of(path) for path in paths)
    scan = partial(_scan, id_columns=schema.id_columns, names=tuple(names))
    scans: list[_Part] = client.gather(client.map(scan, list(paths), pure=False))
    refuse_constant(data, names, [part.held for part in scans])
    if not (
        all(part.ascends for part in scans)
        and all(previous.last < following.first for previous, following in pairwise(scans))
    ):
        return None
    digest = hashlib.sha256()
    for pieces in client.map(partial(_id_bytes, id_columns=schema.id_columns), list(paths), pure=False):
        digest.update(pieces.result())
        pieces.release()
    return Partitions(tuple(paths), tuple(part.n_rows for part in scans), digest.hexdigest(), stamps)


def all_ids(partitions: Partitions, id_columns: Sequence[str], *, client: Client) -> PartyTable:
    """The ids of all partitions, on disk, with the numbers of their rows.

    Raises
    ------
    TableError
        If a file was changed since it was checked.
    """
    futures = client.map(partial(ids_of, id_columns=tuple(id_columns)), list(partitions.paths), pure=False)
    ids = sort_ids((future.result() for future in futures), "refuse").ids
    partitions.check_unchanged()
    return numbered(ids, np.arange(len(ids)))


def digest_own(
    partitions: Partitions, columns: Sequence[ColumnSchema], label: str, loss: Loss, *, client: Client
) -> str:
    """Of the active party's labels and own columns, whose every cell is checked.

    Raises
    ------
    TableError, DataError
    """
    read = partial(_own_digest, columns=tuple(columns), label=label, loss=loss)
    digests: list[str] = client.gather(client.map(read, list(partitions.paths), pure=False))
    return hashlib.sha256("".join([partitions.id_digest, *digests]).encode()).hexdigest()


def _divided(table: PartyTable, schema: TableSchema, folder: Path, n_each: int) -> tuple[Path, ...]:
    """Write a table as partitions."""
    paths: list[Path] = []
    for start in range(0, table.n_rows, n_each):
        piece = table.take(np.arange(start, min(start + n_each, table.n_rows)))
        cells = piece.frame if piece.labels is None else piece.frame.assign(**{str(schema.label): piece.labels})
        frame = partition_frame(piece.index, cells, schema)
        paths.append(folder / f"{len(paths):06d}.parquet")
        try:
            with replacing(paths[-1]) as unfinished:
                frame.to_parquet(unfinished, index=False)
        except RunFolderError as error:
            raise RunFolderError(f"{error}. Nothing was sent") from None
    return tuple(paths)


def _scan(part: Path, id_columns: Sequence[str], names: Sequence[str]) -> _Part:
    ids = ids_of(part, id_columns).to_numpy(dtype=object)
    if not len(ids):
        raise TableError(f"{part.name} has no rows; leave it out. Nothing was sent")
    held = tuple(two_values(read_stored(part, [name])[name]) for name in names)
    return _Part(len(ids), ids[0], ids[-1], bool((ids[:-1] < ids[1:]).all()), held)


def _id_bytes(part: Path, id_columns: Sequence[str]) -> bytes:
    return b"".join(encoded_ids(ids_of(part, id_columns)))


def ids_of(part: Path, id_columns: Sequence[str]) -> pd.Index:
    """The ids of a partition, in the order of its rows."""
    return read_ids(read_stored(part, list(dict.fromkeys(id_columns))), id_columns, part)


def check_own(
    part: Path, rows: pd.DataFrame, columns: Sequence[ColumnSchema], label: str, loss: Loss
) -> tuple[Values, dict[str, Values]]:
    """Labels and columns of some rows of the active party's, refused if XGBoost could not train on any of them.

    Raises
    ------
    TableError, DataError
    """
    labels = read_labels(part, rows[label], label)
    check_own_rows(
        (), labels, weights=np.ones(len(labels)), loss=loss, parameters=BoostingParameters(), engine="xgboost"
    )
    features = own_features(rows, columns)
    for name, values in features.items():
        check_single_precision(values, f"cells of column {name!r}")
    return labels, features


def check_released(part: Path, rows: pd.DataFrame, columns: Sequence[ColumnSchema]) -> None:
    """Refuse some rows of a passive party's of which a cell could not be released.

    Raises
    ------
    DataError
    """
    for column in columns:
        read_numbers(rows[column.name], column)


def _own_digest(part: Path, columns: Sequence[ColumnSchema], label: str, loss: Loss) -> str:
    table = read_stored(part, [*(column.name for column in columns), label])
    labels, features = check_own(part, table, columns, label, loss)
    digest = hashlib.sha256(labels)
    for name, values in features.items():
        digest.update(name.encode())
        digest.update(np.ascontiguousarray(values))
    return digest.hexdigest()
