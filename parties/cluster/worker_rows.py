"""A worker's rows by its run file: one table in memory, partitions in this process, or partitions on Dask."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from opboost.fit_quality import FitQuality
from opboost.rng import BitSource
from opboost.schema import TableSchema
from opboost.trees.holder import RowHolder
from opboost.trees.tree import Ensemble
from parties.cluster.dask_cluster import cluster
from parties.cluster.rows import PartsOnDask
from parties.config.chain import OwnerRun
from parties.config.horizontal import WorkerRun
from parties.config.recipes import SummedRecipe
from parties.config.record_runs import earlier_of
from parties.errors import ConfigError
from parties.horizontal.partition_files import PartFile, one_table, part_files
from parties.horizontal.row_partitions import PartedRows, Parts, PartsHere
from parties.horizontal.row_table import OwnerRows


@dataclass(frozen=True, slots=True)
class WorkerRows:
    """A worker's rows, whatever holds them.

    Attributes
    ----------
    held : OwnerRows or PartedRows
    n_rows : int
    """

    held: OwnerRows | PartedRows
    n_rows: int
    _recipe: SummedRecipe
    _rng: BitSource

    @property
    def digest(self) -> str:
        """Of everything that the answers depend on; it stays in the worker's own folder."""
        if (earlier := earlier_of(self._recipe)) is None:
            return self.held.digest
        depended = self.held.digest, earlier.run, earlier.digest, earlier.arrivals
        return hashlib.sha256(repr(depended).encode()).hexdigest()

    @property
    def others(self) -> tuple[str, ...]:
        """Sentences for the worker's log on cells of one table that are read as `other`; of partitions, none."""
        return self.held.others if isinstance(self.held, OwnerRows) else ()

    def answering(self) -> RowHolder:
        """What the recipe lets others ask of the rows; noise comes from this process, whatever holds the rows."""
        match self.held:
            case OwnerRows(values=values, labels=labels):
                return self._recipe.rows(values, labels, rng=self._rng)
            case parted:
                return self._recipe.answering(parted, rng=self._rng)

    def own_fit(self, model: Ensemble) -> FitQuality | None:
        """How a model fits the rows; None where labels cannot tell anything."""
        return self.held.own_fit(model)


@contextmanager
def worker_rows(
    run: WorkerRun, recipe: SummedRecipe, *, schema: TableSchema, ignore: tuple[str, ...], rng: BitSource
) -> Iterator[WorkerRows]:
    """Read the rows that a run file names, and hold them for the time of the block.

    Parameters
    ----------
    run : WorkerRun
    recipe : SummedRecipe
    schema : TableSchema
        By which the recipe was made.
    ignore : tuple of str
        Columns of the data that are not read.
    rng : BitSource
        For coins and noise.

    Raises
    ------
    ConfigError, TableError, DataError
    """
    if table_of(run) is not None:
        rows = OwnerRows.read(run, schema, ignore)
        yield WorkerRows(rows, len(rows.labels), recipe, rng)
        return
    files = part_files(run.data, schema, ignore, n_classes=run.training.n_classes)

    def parted(parts: Parts) -> WorkerRows:
        n_bins = recipe.task.grid.axes.n_bins
        return WorkerRows(PartedRows(parts, n_bins=n_bins), _count(files), recipe, rng)

    if run.dask is None:
        yield parted(PartsHere(files, recipe, coins=rng.fork("coins") if recipe.needs_coins else None))
        return
    with cluster(run.dask) as client:
        lengths = [file.n_rows for file in files]
        coins = rng.fork_divided("coins", lengths) if recipe.needs_coins else None
        yield parted(PartsOnDask(files, recipe, coins=coins, client=client))


def table_of(run: WorkerRun | OwnerRun) -> Path | None:
    """The file that holds all rows; None for partitions.

    Raises
    ------
    ConfigError
        If the run cannot use what its run file names.
    """
    table = one_table(run.data)
    if isinstance(run, OwnerRun) and table is None:
        raise ConfigError(f"the rows of an owner in a chain come from one file; {run.data} is none. Nothing was sent")
    if isinstance(run, WorkerRun) and run.continue_from is not None and table is None:
        raise ConfigError(
            f"continue_from needs rows in one file, the earlier ones first; {run.data} is none. Nothing was sent"
        )
    if isinstance(run, WorkerRun) and run.engine == "dask" and table is not None:
        raise ConfigError(
            f"engine: dask takes `data` that is a folder, a pattern or a list of Parquet partitions; {table} is one "
            "file. Nothing was sent"
        )
    return table


def count_rows(run: WorkerRun | OwnerRun, schema: TableSchema, ignore: tuple[str, ...]) -> int:
    """How many rows a run file names; those of one table are checked on the way, of partitions only the columns."""
    if table_of(run) is not None:
        return len(OwnerRows.read(run, schema, ignore).labels)
    return _count(part_files(run.data, schema, ignore, n_classes=run.training.n_classes))


def _count(files: list[PartFile]) -> int:
    return sum(file.n_rows for file in files)
