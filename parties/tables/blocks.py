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
from functools import partial
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.preprocess import Columns, EncodedColumn
from parties.progress import Progress, no_progress
from parties.storage.array_cache import ArrayCache, Arrays
from parties.storage.spool import ArraySpool
from parties.tables.key_sets import NAME, NAME_BYTES, KeySet, Names, kept_set
from parties.tables.parquet import StoredColumns, encode_column
from parties.tables.record_ids import PIECE_IDS, Ids, each_id

Block = MutableMapping[str, NDArray[Any]]

# Of encoded columns and names that are kept: to be raised whenever cells are read, encoded or named in another way.
_KEPT_VERSION = 3


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
    cache : ArrayCache or None
        In which the records' names are kept.
    """

    blocks: tuple[Block, ...]
    rows: tuple[int, ...]
    n_clipped: dict[str, int]
    cache: ArrayCache | None = None

    def __len__(self) -> int:
        return sum(self.rows)

    def keys(self) -> KeySet:
        """The set of the records' names, as in the ledger."""
        return kept_set((block["names"] for block in self.blocks), len(self))

    def named(self, ids: Ids) -> None:
        """Add the records' names and their order to the blocks."""
        start = 0
        for block, n_rows in zip(self.blocks, self.rows, strict=True):
            block_ids = ids[start : start + n_rows]
            make = partial(named_records, block_ids)
            block.update(make() if self.cache is None else self.cache.get(_kept_name(block_ids.tolist()), make))
            start += n_rows
        if self.cache is not None:
            self.cache.settle()


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
    columns = zip(mechanisms, exact_columns(features, mechanisms), strict=True)
    for c, (mechanism, (exact, n_outside)) in enumerate(columns):
        for start, block in zip(starts, blocks, strict=True):
            block[f"{c}.exact"] = exact[start : start + PIECE_ROWS]
        if n_outside:
            n_clipped[mechanism.schema.name] = n_outside
        progress("encoding", c + 1, len(mechanisms))
    lengths = tuple(min(PIECE_ROWS, n_rows - start) for start in starts)
    return EncodedTable(blocks, lengths, n_clipped, features.cache if isinstance(features, StoredColumns) else None)


def exact_columns(features: Columns, mechanisms: Sequence[ColumnMechanism]) -> Iterator[tuple[KeptCodes, int]]:
    """Exact codes of columns, from the cache where they are, each with the number of values moved to the bounds."""
    cache = features.cache if isinstance(features, StoredColumns) else None
    try:
        for mechanism in mechanisms:
            domain = mechanism.settings.domain
            make = partial(_exact_column, features, mechanism)
            arrays = make() if cache is None else cache.get(_kept_name(mechanism.schema, domain.lo, domain.hi), make)
            yield arrays["exact"], int(arrays["n_clipped"])
    finally:
        if isinstance(features, StoredColumns):
            features.settle()


def _exact_column(features: Columns, mechanism: ColumnMechanism) -> Arrays:
    column = encode_column(features, mechanism)
    return {"exact": exact_codes(column), "n_clipped": np.array(column.n_clipped)}


def exact_codes(column: EncodedColumn) -> KeptCodes:
    """A column's exact codes as one array, in the smallest type that holds them."""
    kind = np.min_scalar_type(-1 - int(column.codes.max(initial=0)))
    codes = column.codes.astype(kind, copy=False)
    return np.where(column.is_missing, ~codes, codes) if column.is_missing.any() else codes


def encoded_column(exact: KeptCodes) -> EncodedColumn:
    """The inverse of `exact_codes`."""
    is_missing = exact < 0
    return EncodedColumn(np.where(is_missing, ~exact, exact) if is_missing.any() else exact, is_missing, 0)


def named_records(ids: Ids) -> Arrays:
    """A block's arrays ``names`` and ``order`` for records with these ids."""
    return in_order(record_names(ids))


def by_row(block: Block, by_name: NDArray[Any]) -> NDArray[Any]:
    """Values that follow the names of a block, in the order of its rows."""
    values = np.empty_like(by_name)
    values[block["order"]] = by_name
    return values


def in_order(names: Names) -> Arrays:
    """A block's arrays ``names`` and ``order`` for records with these names, in the order of the rows."""
    order = np.argsort(names, kind="stable")
    return {"names": names[order], "order": order.astype(np.min_scalar_type(len(order)))}


def _kept_name(*what: object) -> str:
    """A file's name in a cache."""
    return hashlib.sha256(repr((_KEPT_VERSION, *what)).encode()).hexdigest()


def record_names(ids: Ids) -> Names:
    """The names of records, in the order of their ids."""
    digest = hashlib.sha256
    return np.frombuffer(b"".join([digest(text.encode()).digest()[:NAME_BYTES] for text in each_id(ids)]), NAME)


def keyed_names(key: bytes, ids: Ids) -> Names:
    """The names of records encrypted by AES; without the key they look like random bytes."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    return np.frombuffer(cipher.update(record_names(ids).tobytes()), NAME)


def record_set(ids: Ids) -> KeySet:
    """The set of the names of records with these ids, as in the ledger."""
    starts = range(0, len(ids), PIECE_IDS)
    return kept_set((record_names(ids[start : start + PIECE_IDS]) for start in starts), len(ids))


def cut(array: NDArray[Any], n_rows: int) -> Iterator[NDArray[Any]]:
    """An array, at most so many rows at a time."""
    return (array[start : start + n_rows] for start in range(0, len(array), n_rows))
