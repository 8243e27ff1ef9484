"""Partitions on their way: B sends them column by column in the usual chunks, A cuts what arrived into partitions.

The messages are those of every other run, and so are A's checks of each chunk and column (`rank_receiver`) and the
place where an interrupted transfer goes on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.errors import DataError
from opboost.vertical import RankColumn
from parties.cluster.release import PartitionedRelease
from parties.cluster.training import RankPartitions
from parties.storage.atomic_files import make_folder, replacing
from parties.storage.mapped_ranks import MappedRanks
from parties.vertical.release_offer import PackedColumn, rank_type

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class StoredRelease:
    """Partitions of ranks as `parties.vertical.party_b` sends them: one column after the other, across all partitions.

    Attributes
    ----------
    release : PartitionedRelease
    """

    release: PartitionedRelease

    @property
    def n_rows(self) -> int:
        return sum(self.release.rows)

    @property
    def is_secure(self) -> bool:
        return self.release.is_secure

    @property
    def mechanisms(self) -> tuple[ColumnMechanism, ...]:
        return self.release.mechanisms

    def packed(self) -> list[PackedColumn]:
        """The columns as they will travel; reads each once, for its digest."""
        columns = []
        for number, column in enumerate(self.release.columns):
            digest = hashlib.sha256()
            for start in range(0, self.n_rows, PIECE_ROWS):
                digest.update(np.ascontiguousarray(self.get(number, start, min(start + PIECE_ROWS, self.n_rows))))
            columns.append(
                PackedColumn(
                    column.source, column.category, column.table, column.has_missing, digest.hexdigest(), number
                )
            )
        return columns

    def get(self, number: int, start: int = 0, end: int | None = None) -> NDArray[Any]:
        """Of one column, the ranks from `start` to `end`; reads no more than the groups of rows that hold them."""
        kind = rank_type(self.release.columns[number].table.n_ranks)
        end, first, pieces = self.n_rows if end is None else end, 0, []
        for path, n_rows in zip(self.release.ranks, self.release.rows, strict=True):
            low, high = max(start - first, 0), min(end - first, n_rows)
            if low < high:
                pieces.append(_read(path, f"c{number}", low, high))
            first += n_rows
        return np.concatenate([np.empty(0, kind), *pieces])


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
        owners.pop(), tuple(targets), _counts(columns), tuple(bool(found) for found in np.any(have_missing, axis=0))
    )


def _counts(columns: Sequence[RankColumn]) -> tuple[int, ...]:
    return tuple(column.n_ranks for column in columns)


def _read(path: Path, name: str, low: int, high: int) -> NDArray[Any]:
    """Rows of one column of a Parquet file that was written in groups of `PIECE_ROWS`."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(path) as file:
        groups = list(range(low // PIECE_ROWS, -(-high // PIECE_ROWS)))
        ranks: NDArray[Any] = file.read_row_groups(groups, columns=[name])[name].to_numpy()
    first = groups[0] * PIECE_ROWS
    return ranks[low - first : high - first]


def _cut(columns: Sequence[MappedRanks], n_ranks: Sequence[int], start: int, end: int, target: Path) -> list[bool]:
    """Write one partition; returns per column whether a row is missing."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    ranks = [np.asarray(column[start:end]) for column in columns]
    with replacing(target, writer=f".{uuid4().hex}") as unfinished:
        table = pa.table({f"c{i}": column for i, column in enumerate(ranks)})
        pq.write_table(table, unfinished, compression="LZ4")
    return [bool((column == n).any()) for column, n in zip(ranks, n_ranks, strict=True)]
