"""Blocks of records in files that a party's cluster processes share, one for each Parquet partition.

::

    cluster processes   raw columns ──► names, exact codes         what is due ──► codes
    driver                                   └──► ledger: look up, charge ──┘      └──► store; ranks ──► send

A task may run again, on any cluster process, at any time, even twice at once: it writes the same bytes, and each file
takes its place as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from opboost.preprocess import encode
from parties.cluster.dask_cluster import reporting_lost_workers
from parties.errors import TableError
from parties.ledger.due_cells import RunBlocks
from parties.ledger.ledger_lines import digest_of
from parties.ledger.pricing import exact_bytes
from parties.storage.atomic_files import make_folder, write_array
from parties.tables.blocks import Block, EncodedTable, exact_codes, named_records
from parties.tables.data_files import Stamp, stamp_of
from parties.tables.parquet_files import read_stored
from parties.tables.record_ids import digest_of_ids, read_ids

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class FileBlock(MutableMapping[str, NDArray[Any]]):
    """A block whose arrays are files of a folder, mapped when they are asked for.

    Attributes
    ----------
    folder : Path
    """

    folder: Path

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            array: NDArray[Any] = np.load(self._path(name), mmap_mode="r")
        except FileNotFoundError:
            raise KeyError(name) from None
        return array

    def __setitem__(self, name: str, array: NDArray[Any]) -> None:
        make_folder(self.folder)
        write_array(self._path(name), array, writer=f".{uuid4().hex}")

    def __delitem__(self, name: str) -> None:
        self._path(name).unlink()

    def __iter__(self) -> Iterator[str]:
        return (path.stem for path in self.folder.glob("*.npy"))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


@dataclass(frozen=True, slots=True)
class _Part:
    """Result of encoding a partition: rows, a digest of ids and exact codes, and values out of bounds by column."""

    n_rows: int
    digest: list[str]
    n_clipped: tuple[int, ...]


def encode_partitions(
    parts: Sequence[Path],
    mechanisms: Sequence[ColumnMechanism],
    folder: Path,
    *,
    id_columns: Sequence[str],
    stamps: Sequence[Stamp],
    client: Client,
) -> tuple[EncodedTable, str]:
    """Encode Parquet partitions into blocks, with the records' names; and a digest of ids and exact codes.

    Parameters
    ----------
    parts : sequence of Path
    mechanisms : sequence of ColumnMechanism
    folder : Path
        For the blocks alone, on a file system that the cluster shares.
    id_columns : sequence of str
    stamps : sequence of Stamp
        Of the files when their ids were agreed on, as `stamp_of` gives them.
    client : distributed.Client
        Of this party's own cluster.

    Raises
    ------
    TableError, DataError
        If a part cannot be read, was changed, or a cell does not fit the schema. Nothing was released.
    """
    blocks: tuple[Block, ...] = tuple(FileBlock(folder / f"{number:06d}") for number in range(len(parts)))
    encode_one = partial(_encode, mechanisms=tuple(mechanisms), id_columns=tuple(id_columns))
    found: list[_Part] = client.gather(client.map(encode_one, [p.resolve() for p in parts], blocks, pure=False))
    for part, stamp in zip(parts, stamps, strict=True):
        if stamp_of(part) != stamp:
            raise TableError(f"{part.name} was changed while it was in use. Nothing of it was released")
    counts = zip(mechanisms, zip(*(result.n_clipped for result in found), strict=True), strict=True)
    n_clipped = {mechanism.schema.name: sum(of_parts) for mechanism, of_parts in counts if sum(of_parts)}
    return EncodedTable(blocks, tuple(result.n_rows for result in found), n_clipped), digest_of(
        [result.digest for result in found]
    )


def on_cluster(client: Client) -> RunBlocks:
    """Calls a function on blocks of files, at the cluster processes."""

    def run(draw: Callable[[Block], None], blocks: Sequence[Block]) -> None:
        with reporting_lost_workers(client):
            client.gather(client.map(draw, list(blocks), pure=False))

    return run


def _encode(part: Path, block: Block, mechanisms: Sequence[ColumnMechanism], id_columns: Sequence[str]) -> _Part:
    ids = read_ids(read_stored(part, list(dict.fromkeys(id_columns))), id_columns, part)
    block.update(named_records(ids))
    digests, n_clipped = [digest_of_ids(ids)], []
    for c, mechanism in enumerate(mechanisms):
        raw = read_stored(part, [mechanism.schema.name])[mechanism.schema.name]
        column = encode(raw, mechanism.schema, domain=mechanism.settings.domain)
        block[f"{c}.exact"] = exact_codes(column)
        digests.append(hashlib.sha256(exact_bytes(column)).hexdigest())
        n_clipped.append(column.n_clipped)
    return _Part(len(ids), digests, tuple(n_clipped))
