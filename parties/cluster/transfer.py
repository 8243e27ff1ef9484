"""Partitions on their way: A cuts what arrived column by column into partitions.

The messages are those of every other run, and so are A's checks of each chunk and column (`rank_receiver`) and the
place where an interrupted transfer goes on.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np

from opboost.columns import RankColumn
from opboost.errors import DataError
from parties.cluster.training_partitions import RankPartitions
from parties.storage.atomic_files import make_folder, replacing
from parties.storage.mapped_ranks import MappedRanks

if TYPE_CHECKING:
    from distributed import Client


def cut_into_partitions(
    columns: Sequence[RankColumn], rows: Sequence[int], folder: Path, *, client: Client
) -> RankPartitions:
    """Write what arrived of one passive party as partitions of so many rows, on A's workers.

    Parameters
    ----------
    columns : sequence of RankColumn
        Of one owner, mapped from files that the workers share (`parties.runs.journal`).
    rows : sequence of int
        Rows of each of A's partitions.
    folder : Path
    client : distributed.Client
        Of this party's own cluster.

    Raises
    ------
    DataError
        If the columns have another number of rows, or are not mapped from files.
    """
    owners = {column.owner for column in columns}
    mapped = tuple(column.ranks for column in columns if isinstance(column.ranks, MappedRanks))
    if len(owners) != 1 or len(mapped) != len(columns) or any(len(ranks) != sum(rows) for ranks in mapped):
        raise DataError(f"columns of one party in files of {sum(rows)} rows are needed. No partition was written")
    make_folder(folder)
    ends = np.cumsum(rows).tolist()
    targets = [folder / f"{number:06d}.parquet" for number in range(len(rows))]
    starts = [end - n for end, n in zip(ends, rows, strict=True)]
    have_missing = client.gather(client.map(partial(_cut, mapped, _counts(columns)), starts, ends, targets, pure=False))
    return RankPartitions(
        owners.pop(),
        tuple(targets),
        _counts(columns),
        tuple(bool(found) for found in np.any(have_missing, axis=0)),
        tuple(column.cuts for column in columns),
        tuple(column.release for column in columns),
        names=tuple(column.name for column in columns),
    )


def _counts(columns: Sequence[RankColumn]) -> tuple[int, ...]:
    return tuple(column.n_ranks for column in columns)


def _cut(columns: Sequence[MappedRanks], n_ranks: Sequence[int], start: int, end: int, target: Path) -> list[bool]:
    """Write one partition; returns per column whether a row is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranks = [np.asarray(column[start:end]) for column in columns]
    with replacing(target, writer=f".{uuid4().hex}") as unfinished:
        table = pa.table({f"c{i}": column for i, column in enumerate(ranks)})
        pq.write_table(table, unfinished, compression="LZ4")
    return [bool((column == n).any()) for column, n in zip(ranks, n_ranks, strict=True)]
