"""Partitioned rows of a worker: Parquet files, the state held of each, and a row holder over all of them.

Of a partition only its cells, labels, scores and gradients are held; values are read again where new cells are told.
Sums are whole numbers, so that partitions answer what one table would, to the bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import methodcaller
from pathlib import Path
from typing import Protocol

import numpy as np

from opboost.arrays import Nodes, Sums, Values
from opboost.fit_quality import FitQuality, fit_quality
from opboost.horizontal.rows.client_rows import HeldRecords
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.metrics import default_metric
from opboost.rng import BitSource, Words
from opboost.trees.splitting import Splits
from opboost.trees.tree import Ensemble, Tree
from parties.config.reading import read_schema
from parties.config.recipes import SummedRecipe
from parties.errors import TableError
from parties.horizontal.row_table import OWN_ROWS, OwnerRows
from parties.storage.atomic_files import is_folder
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
    path, table_schema : Path
    n_classes : int
        0 for numbers.
    stamp : tuple of int
        Tells whether the file is still the one that the run began with.
    n_rows : int
        Without those that training leaves out because they have no label.
    """

    path: Path
    table_schema: Path
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
        check_unchanged(self.path, self.stamp)
        rows = OwnerRows.of(self.path, self.table_schema)
        rows.check_labels(self.n_classes, self.path)
        return rows

    def names(self) -> Names:
        """Digests of the ids of all records in the partition's file; errors as of `read`."""
        check_unchanged(self.path, self.stamp)
        schema, _ = read_schema(self.table_schema)
        ids = read_ids(read_stored(self.path, list(schema.id_columns)), schema.id_columns, self.path)
        return record_names(ids)

    def predictions(self, model: Ensemble) -> tuple[Values, Values]:
        """Labels and predictions of the rows."""
        return self.read().predictions(model)


def one_table(data: Path | Sequence[Path]) -> Path | None:
    """The file that holds all rows, if a run file names one; None for partitions."""
    return data if isinstance(data, Path) and not is_folder(data) and "*" not in data.name else None


def part_files(data: Path | Sequence[Path], table_schema: Path, *, n_classes: int) -> list[PartFile]:
    """The partitions that a run file names, in the order of their names; those without rows to train on are left out.

    Parameters
    ----------
    data : Path or sequence of Path
        A folder, a pattern, or files in their order.
    table_schema : Path
    n_classes : int
        0 for numbers.

    Raises
    ------
    ConfigError, TableError
        If there are none, one has other columns than the schema says, or labels are none of two.
    """
    schema, ignore = read_schema(table_schema)
    files: list[PartFile] = []
    others: set[str] = set()
    for path in _listed(data):
        if not is_parquet(path):
            raise TableError(f"{path}: partitions are Parquet files, named *.parquet. Nothing was sent")
        check_columns(path, stored_names(path, schema.all_names), schema, ignore, needs_label=True)
        stamp, n_rows = stamp_of(path), int(are_labelled(path, schema).sum())
        files.append(PartFile(path, table_schema, n_classes, stamp, n_rows))
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
    found = files_of(data) if is_folder(data) else data.parent.glob(data.name)
    paths = sorted(path.absolute() for path in found)
    if not paths:
        raise TableError(f"{data} names no Parquet partitions. Nothing was sent")
    return paths


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


@dataclass(slots=True)
class HeldPart:
    """State of a partition between calls.

    Attributes
    ----------
    file : PartFile
    records : HeldRecords
    digest : str
        Of the rows as they were read.
    sums : ndarray of int64
        The answer to the last question.
    """

    file: PartFile
    records: HeldRecords
    digest: str
    sums: Sums

    @classmethod
    def read(cls, file: PartFile, recipe: SummedRecipe, *, coins: Words | None) -> HeldPart:
        """Read a partition and put its rows into cells."""
        rows = file.read()
        return cls(file, recipe.records(rows.values, rows.labels, coins=coins), rows.digest, np.zeros(0, np.int64))

    def __sizeof__(self) -> int:
        return self.records.__sizeof__() + self.sums.nbytes

    def start_tree(self, output: int) -> None:
        self.records.start_tree(output)

    def divide(self, splits: Splits) -> None:
        self.records.divide(splits)

    def finish_tree(self, tree: Tree) -> None:
        self.records.finish_tree(tree)

    def place(self, columns: PublicGrid) -> None:
        """Read the rows again and assign them to other cells."""
        self.records.rebin(columns.place(self.file.read().values))

    def totals(self, nodes: Nodes) -> None:
        """Compute into `sums`."""
        self.sums = self.records.totals(nodes)

    def histograms(self, nodes: Nodes, n_bins: int) -> None:
        """Compute into `sums`."""
        self.sums = np.empty((len(nodes), 2, n_bins), np.int64)
        self.records.write_histograms(nodes, self.sums)


Call = Callable[[HeldPart], object]
"""A call of a method of `HeldPart`, with its arguments."""


class Parts(Protocol):
    """Interface of a set of partitions, wherever they are."""

    @property
    def digests(self) -> list[str]:
        """Digests of every partition's rows."""

    def ask(self, calls: Sequence[Call]) -> Sums:
        """Apply these calls to every partition; returns the summed answers to the last of them."""

    def predictions(self, model: Ensemble) -> list[tuple[Values, Values]]:
        """Labels and predictions of every partition's rows."""


class PartsHere:
    """Partitions in this process, read one after the other."""

    def __init__(self, files: Sequence[PartFile], recipe: SummedRecipe, *, coins: BitSource | None) -> None:
        check_ids([file.names() for file in files])
        self._parts = [HeldPart.read(file, recipe, coins=coins) for file in files]

    @property
    def digests(self) -> list[str]:
        return [part.digest for part in self._parts]

    def ask(self, calls: Sequence[Call]) -> Sums:
        # Every call on all partitions before the next one: sampled records take their coins in this order.
        for call in calls:
            for part in self._parts:
                call(part)
        return added([part.sums for part in self._parts])

    def predictions(self, model: Ensemble) -> list[tuple[Values, Values]]:
        return [part.file.predictions(model) for part in self._parts]


class PartedRows:
    """Row holder over partitions: calls are collected until a sum is needed.

    Parameters
    ----------
    parts : Parts
    n_bins : int
        Of all columns' histograms together.
    """

    def __init__(self, parts: Parts, *, n_bins: int) -> None:
        self._parts = parts
        self._n_bins = n_bins
        self._told: list[Call] = []

    @property
    def digest(self) -> str:
        """Digest of everything that the answers depend on; it stays in the worker's own folder."""
        return hashlib.sha256("".join(self._parts.digests).encode()).hexdigest()

    def own_fit(self, model: Ensemble) -> FitQuality | None:
        """How a model fits the rows, from 16 bytes a row; None where labels cannot tell anything."""
        labels, predicted = (np.concatenate(each) for each in zip(*self._parts.predictions(model), strict=True))
        return fit_quality(model.loss, labels, predicted, basis=OWN_ROWS, metric=default_metric(model.loss))

    def start_tree(self, output: int) -> None:
        self._told.append(methodcaller("start_tree", output))

    def divide(self, splits: Splits) -> None:
        self._told.append(methodcaller("divide", splits))

    def finish_tree(self, tree: Tree) -> None:
        self._told.append(methodcaller("finish_tree", tree))

    def place(self, columns: PublicGrid) -> None:
        self._told.append(methodcaller("place", columns))

    def totals(self, nodes: Nodes) -> Sums:
        return self._ask(methodcaller("totals", nodes))

    def write_histograms(self, nodes: Nodes, out: Sums) -> None:
        out[:] = self._ask(methodcaller("histograms", nodes, self._n_bins))

    def _ask(self, question: Call) -> Sums:
        calls, self._told = [*self._told, question], []
        return self._parts.ask(calls)


def added(sums: Sequence[Sums]) -> Sums:
    """The sum of several answers."""
    total = sums[0].copy()
    for other in sums[1:]:
        total += other
    return total
