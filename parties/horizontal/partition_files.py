"""Partition files of a worker: those that a run file names, their rows, and the ids of their records."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opboost.arrays import Values
from opboost.schema import TableSchema
from opboost.trees.tree import Ensemble
from parties.errors import TableError
from parties.horizontal.row_table import OwnerRows
from parties.storage.name_patterns import fits
from parties.storage.paths import is_folder
from parties.tables.blocks import record_names
from parties.tables.cells import check_one_other
from parties.tables.data_files import Stamp, check_unchanged, files_of, is_parquet, stamp_of
from parties.tables.key_sets import Names
from parties.tables.labels import are_labelled, others_of
from parties.tables.parquet_files import read_stored, stored_names
from parties.tables.party_table import check_columns
from parties.tables.record_ids import read_ids


@dataclass(frozen=True, slots=True)
class PartFile:
    """A partition's file.

    Attributes
    ----------
    path : Path
    schema : TableSchema
        As the run read it: a schema file that is edited meanwhile is for the next run.
    ignore : tuple of str
        Columns of the file that are not read.
    n_classes : int
        0 for numbers.
    stamp : tuple of int
        Tells whether the file is still the one that the run began with.
    n_rows : int
        Without those that training leaves out because they have no label.
    """

    path: Path
    schema: TableSchema
    ignore: tuple[str, ...]
    n_classes: int
    stamp: Stamp
    n_rows: int

    def read(self) -> OwnerRows:
        """Read the rows of the partition.

        Raises
        ------
        ConfigError, TableError, DataError
            Also if the file was changed since.
        """
        try:
            rows = OwnerRows.of(self.path, self.schema, self.ignore)
        finally:  # Of a file that was changed, this is told and not what else was found wrong with it.
            check_unchanged(self.path, self.stamp)
        rows.check_labels(self.n_classes, self.path)
        return rows

    def read_again(self, digest: str) -> OwnerRows:
        """The rows that were read before; errors as of `read`, also if they have another digest now."""
        rows = self.read()
        self.check_digest(rows.digest, digest)
        return rows

    def check_digest(self, found: str, before: str) -> None:
        """Refuse rows that were read again and are not those that were read before.

        Raises
        ------
        TableError
        """
        if found != before:
            raise TableError(
                f"{self.path} gave other rows when it was read again: it was changed while it was in use, or a cluster "
                "process has other versions installed. Nothing more was sent"
            )

    def names(self) -> Names:
        """Digests of the ids of all records in the partition's file; errors as of `read`."""
        id_columns = self.schema.id_columns
        try:
            ids = read_ids(read_stored(self.path, list(id_columns)), id_columns, self.path)
        finally:
            check_unchanged(self.path, self.stamp)
        return record_names(ids)

    def predictions(self, digest: str, model: Ensemble) -> tuple[Values, Values]:
        """Labels and predictions of the rows, which have this digest; errors as of `read_again`."""
        return self.read_again(digest).predictions(model)


def one_table(data: Path | Sequence[Path]) -> Path | None:
    """The file that holds all rows, if a run file names one; None for partitions."""
    return data if isinstance(data, Path) and not is_folder(data) and "*" not in data.name else None


def part_files(
    data: Path | Sequence[Path], schema: TableSchema, ignore: tuple[str, ...], *, n_classes: int
) -> list[PartFile]:
    """The partitions that a run file names, in the order of their names; those without rows to train on are left out.

    Parameters
    ----------
    data : Path or sequence of Path
        A folder, a pattern, or files in their order.
    schema : TableSchema
    ignore : tuple of str
        Columns of the files that are not read.
    n_classes : int
        0 for numbers.

    Raises
    ------
    TableError
        If there are none, one has other columns than the schema says, or labels are none of two.
    """
    files: list[PartFile] = []
    others: set[str] = set()
    for path in _listed(data):
        if not is_parquet(path):
            raise TableError(f"{path}: partitions are Parquet files, named *.parquet. Nothing was sent")
        check_columns(path, stored_names(path, schema.all_names), schema, ignore, needs_label=True)
        stamp, n_rows = stamp_of(path), int(are_labelled(path, schema).sum())
        files.append(PartFile(path, schema, ignore, n_classes, stamp, n_rows))
        others |= others_of(path, schema)
    check_one_other("the partitions", schema.label, others)
    if not any(file.n_rows for file in files):
        which = " with a label" if schema.format.drops_unlabelled else ""
        raise TableError(f"{len(files)} partitions have no rows{which}. Nothing was sent")
    return [file for file in files if file.n_rows]


def _listed(data: Path | Sequence[Path]) -> Sequence[Path]:
    if not isinstance(data, Path):
        return [path.absolute() for path in data]
    if "**" in data.name and not is_folder(data):
        raise TableError(f"{data}: `**` stands in the pattern, where one * is any letters of a name. Nothing was sent")
    found = files_of(data) if is_folder(data) else _named_like(data)
    paths = sorted(path.absolute() for path in found)
    if not paths:
        raise TableError(f"{data} names no Parquet partitions. Nothing was sent")
    return paths


def _named_like(pattern: Path) -> Iterator[Path]:
    """Files of a pattern's folder whose names fit it."""
    return (path for path in pattern.parent.glob("*") if fits(path.name, pattern.name))


def check_ids(names: Sequence[Names]) -> None:
    """Refuse partitions in which an id comes twice: that record would contribute twice.

    Raises
    ------
    TableError
    """
    n_ids, n_rows = len(np.unique(np.concatenate(names))), sum(map(len, names))
    if n_ids < n_rows:
        raise TableError(
            f"the partitions have {n_rows} rows and {n_ids} different ids; every record must be in one row. "
            "Nothing was sent"
        )
