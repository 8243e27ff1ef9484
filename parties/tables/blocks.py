"""Blocks of records: the form in which a table is released, whoever holds it.

A block maps names to arrays of one entry per record. A table in memory has blocks of `PIECE_ROWS` records, a table in
partitions one for each. Column c of the release has these, and the records themselves the first two:

===========  ========================================================================================
``names``    what the records are known by, ascending
``order``    the row of each of these names
``c.exact``  by row, the exact codes, which must not leave the party; a missing cell as ``-1 - code``
``c.codes``  by row, what is released; a missing cell as -1
``c.due``    by name, what is still to be drawn (`parties.ledger.charged_release`)
===========  ========================================================================================
"""

from __future__ import annotations

import hashlib
from collections import UserDict
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.preprocess import Columns, EncodedColumn
from parties.progress import Progress, no_progress
from parties.storage.spool import ArraySpool
from parties.tables.key_sets import KeySet, RecordKeys, distinct, kept_set
from parties.tables.parquet import encode_column
from parties.tables.record_ids import Ids, each_id

# Bytes of a record's name: no two records will share one.
NAME_BYTES = 16

Names = NDArray[np.bytes_]
"""What records are known by, `NAME_BYTES` bytes each. Numpy shows them without zero bytes at their end."""

NAME = np.dtype(f"S{NAME_BYTES}")

Block = MutableMapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class EncodedTable:
    """A table's exact codes in blocks.

    Attributes
    ----------
    blocks : tuple of Block
    rows : tuple of int
        Of each block.
    n_clipped : dict of str to int
        Per column of which there are any, values outside the public bounds that were moved to them.
    """

    blocks: tuple[Block, ...]
    rows: tuple[int, ...]
    n_clipped: dict[str, int]

    def __len__(self) -> int:
        return sum(self.rows)

    def keys(self) -> KeySet:
        """What the ledger knows the records by."""
        return kept_set((record_keys(block["names"]) for block in self.blocks), len(self))

    def named(self, ids: Ids) -> None:
        """Say which records the rows are."""
        start = 0
        for block, n_rows in zip(self.blocks, self.rows, strict=True):
            name_records(block, ids[start : start + n_rows])
            start += n_rows


class SpoolBlock(UserDict[str, Any]):
    """A block whose arrays lie in a spool, and are read when they are asked for."""

    def __init__(self, spool: ArraySpool) -> None:
        super().__init__()
        self._spool = spool

    def __setitem__(self, name: str, array: NDArray[Any]) -> None:
        self.data[name] = self._spool.put(array)

    def __getitem__(self, name: str) -> NDArray[Any]:
        return self._spool.get(self.data[name])


def encode_table(
    features: Columns, mechanisms: Sequence[ColumnMechanism], spool: ArraySpool, progress: Progress = no_progress
) -> EncodedTable:
    """Encode a table, of which one column at a time is in memory.

    Raises
    ------
    TableError, DataError
        If a cell does not fit its column's schema.
    """
    n_rows, n_clipped = len(features), {}
    starts = range(0, n_rows, PIECE_ROWS)
    blocks = tuple(SpoolBlock(spool) for _ in starts)
    for c, mechanism in enumerate(mechanisms):
        column = encode_column(features, mechanism)
        for start, block in zip(starts, blocks, strict=True):
            rows = slice(start, start + PIECE_ROWS)
            block[f"{c}.exact"] = exact_codes(EncodedColumn(column.codes[rows], column.is_missing[rows], 0))
        if column.n_clipped:
            n_clipped[mechanism.schema.name] = column.n_clipped
        progress("encoding", c + 1, len(mechanisms))
    return EncodedTable(blocks, tuple(min(PIECE_ROWS, n_rows - start) for start in starts), n_clipped)


def exact_codes(column: EncodedColumn) -> KeptCodes:
    """A column's exact codes as one array, in the smallest type that holds them."""
    kind = np.min_scalar_type(-1 - int(column.codes.max(initial=0)))
    codes = column.codes.astype(kind, copy=False)
    return np.where(column.is_missing, ~codes, codes) if column.is_missing.any() else codes


def encoded_column(exact: KeptCodes) -> EncodedColumn:
    """The inverse of `exact_codes`."""
    is_missing = exact < 0
    return EncodedColumn(np.where(is_missing, ~exact, exact), is_missing, 0)


def name_records(block: Block, ids: Ids) -> None:
    """Say which records a block's rows are."""
    sort_names(block, record_names(ids))


def sort_names(block: Block, names: Names) -> None:
    """Say by which names a block's rows are known."""
    order = np.argsort(names, kind="stable")
    block["names"], block["order"] = names[order], order.astype(np.min_scalar_type(len(order)))


def record_names(ids: Ids) -> Names:
    """The names of records, in the order of their ids."""
    digest = hashlib.sha256
    return np.frombuffer(b"".join([digest(one.encode()).digest()[:NAME_BYTES] for one in each_id(ids)]), NAME)


def record_keys(names: Names) -> RecordKeys:
    """What the ledger knows records by: the first half of their names, in their order."""
    return np.ascontiguousarray(names).view("<u8").reshape(-1, 2)[:, 0].astype(np.uint64)


def id_keys(ids: Ids) -> RecordKeys:
    """What the ledger knows records by, each once and ascending."""
    return distinct(record_keys(record_names(ids)))


def cut(array: NDArray[Any], n_rows: int) -> Iterator[NDArray[Any]]:
    """An array, at most so many rows at a time."""
    return (array[start : start + n_rows] for start in range(0, len(array), n_rows))
