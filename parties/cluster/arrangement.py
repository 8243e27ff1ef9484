"""Parquet files with records in any order as partitions in ascending order of their ids.

::

    cluster processes   ids ──►                          ──► places: read, choose, one row group per partition ──► merge
    driver                     sort, choose by id, number

The driver holds the number of every row, and sorts ids on disk. The cells of the partitions are read: numbers, and the
schema's categories, as those of a file that one machine divides. Cells are checked in all records, whichever are
listed, since the other side may have chosen these.

Every file is read twice, first its ids and then its records. One that was changed in between is refused, since the rows
that were chosen would be other records'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
import pandas as pd

from opboost.arrays import Mask
from opboost.preprocess import read_numbers
from opboost.schema import TableSchema
from parties.config.vertical import ActiveRun, PassiveRun
from parties.errors import TableError
from parties.storage.atomic_files import make_folder, replacing, write_array
from parties.tables.cells import check_one_other, naming_times, read_cells
from parties.tables.data_files import Stamp, stamp_of
from parties.tables.labels import are_labelled, others_of, read_labels
from parties.tables.listed_ids import select
from parties.tables.parquet_files import read_stored, stored_names
from parties.tables.party_table import PartyTable
from parties.tables.record_ids import Ids, digest_of_ids, ids_to_keep, read_ids, split

if TYPE_CHECKING:
    from distributed import Client

# What no column of a file is called.
_PLACE = "\0place"

# Places of rows that no partition has: of records that are not listed, and of those that a whole table lacks, too.
_UNLISTED, _DROPPED = -1, -2

_Version = tuple[Stamp, str]
"""Of a file, its stamp before its ids were read, and a digest of these."""

HeldValues = tuple[tuple[object, ...], ...]
"""Of every column up to two different values."""

CheckRows = Callable[[Path, pd.DataFrame], object]
"""Refuses a file for what some of its rows hold; a function of a module, which cluster processes call."""


def unchecked(part: Path, rows: pd.DataFrame) -> None:
    """Refuse nothing."""


def arranged(
    paths: Sequence[Path],
    run: ActiveRun | PassiveRun,
    schema: TableSchema,
    folder: Path,
    *,
    needs_label: bool,
    varied: Sequence[str] = (),
    check: CheckRows = unchecked,
    client: Client,
) -> tuple[Path, ...]:
    """Write the records of some files that a run uses as partitions in the order of their ids.

    `check` may refuse any of the records that a run without a list would use; in the `varied` columns these must hold
    more than one value.

    Raises
    ------
    TableError, DataError
        If an id is repeated and that is to be refused, a listed one is absent, labels are none of two, a cell does not
        fit the schema, or a file was changed meanwhile.
    """
    scan = partial(_scan, schema=schema, needs_label=needs_label)
    lengths: list[int] = []
    versions: list[_Version] = []
    labelled: list[Mask] = []
    others: set[str] = set()

    def pieces() -> Iterator[pd.Index]:
        for future in client.map(scan, list(paths), pure=False):
            version, ids, is_labelled, of_file = future.result()
            future.release()
            lengths.append(len(ids))
            versions.append(version)
            labelled.append(is_labelled)
            others.update(of_file)
            yield ids

    kept = ids_to_keep(pieces(), run.align.duplicates, schema.id_columns, run.data)
    check_one_other(run.data, schema.label, others)
    rows = kept.rows[:]
    chosen = numbered(kept.ids, rows).take(np.flatnonzero(np.concatenate(labelled)[rows]))
    if needs_label and not chosen.n_rows:
        raise TableError(f"{run.data}: label column {schema.label!r} is empty")
    places = np.full(sum(lengths), _DROPPED, np.int64)
    places[row_numbers(chosen)] = _UNLISTED
    if run.ids is not None:
        chosen = select(chosen, run.ids, run.data)
    places[row_numbers(chosen)] = np.arange(chosen.n_rows)
    n_each = run.dask.partition_rows
    scatter = partial(_scatter, schema=schema, n_each=n_each, varied=tuple(varied), check=check)
    sources = [(folder / f"{number}.places.npy", folder / f"{number}.rows") for number in range(len(paths))]
    for (file, _), places_of_file in zip(sources, np.split(places, np.cumsum(lengths)[:-1]), strict=True):
        write_array(file, places_of_file)
    scattered: list[tuple[list[int], HeldValues]] = client.gather(
        client.map(scatter, list(paths), versions, *zip(*sources, strict=True), pure=False)
    )
    refuse_constant(run.data, varied, [held for _, held in scattered])
    parts: list[list[tuple[Path, int]]] = [[] for _ in range(-(-chosen.n_rows // n_each))]
    for (_, source), (numbers, _) in zip(sources, scattered, strict=True):
        for group, number in enumerate(numbers):
            parts[number].append((source, group))
    make_folder(folder / "arranged")
    targets = [folder / "arranged" / f"{number:06d}.parquet" for number in range(len(parts))]
    client.gather(client.map(_merge, parts, targets, pure=False))
    for file, source in sources:
        file.unlink()
        source.unlink()
    return tuple(targets)


def numbered(ids: Ids, rows: np.ndarray) -> PartyTable:
    """Ids with the numbers of their rows, which go along when records are chosen."""
    return PartyTable(ids, pd.DataFrame({"row": rows}))


def row_numbers(table: PartyTable) -> np.ndarray:
    """The numbers of the rows of chosen records."""
    return table.frame["row"].to_numpy()


def two_values(column: pd.Series) -> tuple[object, ...]:
    """Up to two different values of a column, None for a missing cell."""
    return tuple(None if pd.isna(value) else value for value in column.drop_duplicates().head(2).tolist())


def refuse_constant(data: Path, names: Sequence[str], held: Sequence[HeldValues]) -> None:
    """Refuse a table of which all parts hold the same single value in a column.

    Raises
    ------
    TableError
    """
    constant = [name for i, name in enumerate(names) if len({value for part in held for value in part[i]}) < 2]
    if constant:
        raise TableError(f"{data}: constant columns {', '.join(constant)}; leave them out of the schema")


def partition_frame(ids: pd.Index, cells: pd.DataFrame, schema: TableSchema) -> pd.DataFrame:
    """Rows of a partition: ids as texts, and columns and labels as they were read."""
    texts = [[one] if len(schema.id_columns) == 1 else split(one) for one in ids]
    frame = pd.DataFrame(texts, columns=list(schema.id_columns), dtype=object)
    kept = [name for name in (*schema.names, *schema.labels) if name in cells and name not in frame]
    return pd.concat([frame, cells[kept].reset_index(drop=True)], axis=1)


def _scan(part: Path, schema: TableSchema, *, needs_label: bool) -> tuple[_Version, pd.Index, Mask, set[str]]:
    """The ids of a file, which of its records stay where those without a label are to be left out, and other labels."""
    stamp = stamp_of(part)
    ids = read_ids(read_stored(part, list(dict.fromkeys(schema.id_columns))), schema.id_columns, part)
    version = stamp, digest_of_ids(ids)
    if not needs_label:
        return version, ids, np.ones(len(ids), np.bool_), set()
    return version, ids, are_labelled(part, schema), others_of(part, schema)


def _scatter(
    part: Path,
    version: _Version,
    places_file: Path,
    target: Path,
    schema: TableSchema,
    n_each: int,
    varied: tuple[str, ...],
    check: CheckRows,
) -> tuple[list[int], HeldValues]:
    """Write the chosen rows of a file with a row group for each partition that has some.

    Returns the numbers of these, and what the varied columns hold in all rows that could have been chosen.
    """
    names = dict.fromkeys([*schema.id_columns, *schema.names, *schema.labels])
    stored = set(stored_names(part, schema.all_names))
    frame = read_stored(part, [name for name in names if name in stored])
    ids = read_ids(frame, schema.id_columns, part)
    # A stamp does not tell of a file that was written twice within one tick of the clock, or was given its old time.
    if (stamp_of(part), digest_of_ids(ids)) != version:
        raise TableError(f"{part.name} was changed while it was in use. Nothing was sent")
    places = np.load(places_file)
    cells = read_cells(frame, schema, part)
    # Texts that could not be read are told by their number, before anything is made of them.
    with naming_times(schema):
        for column in schema.columns:
            read_numbers(cells[column.name], column, clip=False)
    for name in schema.labels:
        if name in cells:
            read_labels(part, cells[name], name, may_miss=schema.format.drops_unlabelled)
    usable = cells[places > _DROPPED]
    if len(usable):
        check(part, usable)
    numbers = _write_groups(partition_frame(ids, cells, schema), places, target, n_each)
    return numbers, tuple(two_values(usable[name]) for name in varied)


def _write_groups(frame: pd.DataFrame, places: np.ndarray, target: Path, n_each: int) -> list[int]:
    """Write the rows that have a place, those of each partition as a row group; the numbers of the partitions."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    order = np.argsort(places, kind="stable")[int((places < 0).sum()) :]
    table = pa.Table.from_pandas(frame.assign(**{_PLACE: places}).iloc[order], preserve_index=False)
    numbers, starts = np.unique(places[order] // n_each, return_index=True)
    # A file of whose records none is chosen has no group.
    ends = [*starts.tolist(), len(order)][1:]
    with (
        replacing(target, writer=f".{uuid4().hex}") as unfinished,
        pq.ParquetWriter(unfinished, table.schema) as writer,
    ):
        for start, end in zip(starts.tolist(), ends, strict=True):
            writer.write_table(table.slice(start, end - start), row_group_size=end - start)
    return [int(number) for number in numbers]


def _merge(pieces: Sequence[tuple[Path, int]], target: Path) -> None:
    """Write a partition from the row groups that belong to it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    groups = [pq.ParquetFile(path).read_row_group(group) for path, group in pieces]
    try:
        table = pa.concat_tables(groups, promote_options="permissive").sort_by(_PLACE)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        raise TableError("the files of the folder have columns of texts and of numbers. Nothing was sent") from None
    with replacing(target, writer=f".{uuid4().hex}") as unfinished:
        pq.write_table(table.drop_columns([_PLACE]), unfinished)
