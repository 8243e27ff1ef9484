"""Records of a passive party's partitions, side by side in an order that tells nothing of their ids.

::

    cluster processes   ids, raw columns ──► names under a key, exact codes ──► a piece per partition, ascending
    driver              pieces ──► merged ──► a file of names, a file of exact codes

Who asks for ids sees how long the answers take. Were partitions read for them, that would tell where an id stands among
those that are there, also one that is unknown: by halving, ids of which nobody else knows are found letter by letter.
Under a key that is drawn for the run and kept, a name's place says nothing of its id. So a request neither reads more
than it has to nor waits: what it reads depends on how many of its ids are known, which its answer says, and on places
that the key has drawn.

Of 2,000,000 records of ten columns in 200 partitions, whose pages are in memory, a request for 16,384 neighbours takes
0.08 s, and one for an id of each partition 1 ms; to read the partitions for them would take 0.12 s and 5.6 s. Before a
peer comes, one cluster process and the driver take 15 s for all records, of which 1.5 s are to merge them.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from secrets import token_bytes
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism
from opboost.routing import Router
from parties.cluster.dask_cluster import reporting_lost_workers
from parties.cluster.file_blocks import FileBlock
from parties.cluster.partitions import Partitions, ids_of
from parties.errors import RunFolderError
from parties.storage.paths import reading, writing
from parties.storage.serialization import router_from_dict, router_to_dict
from parties.tables.blocks import encoded_column, exact_codes, keyed_names
from parties.tables.key_sets import HALF_NAME, NAME, Names
from parties.tables.parquet_files import read_stored
from parties.vertical.prediction_server import AnswerableRecords
from protocols.private_files import flush, private_opener

if TYPE_CHECKING:
    from distributed import Client

# Records that are merged at a time: of ten columns some 200 MB.
MERGED_ROWS = 1 << 22


@dataclass(frozen=True, slots=True)
class KeyedRecords:
    """Records in the order of their names under a key, of which only those that are asked for are read.

    Attributes
    ----------
    key : bytes
        Of AES; a secret of this party.
    mechanisms : tuple of ColumnMechanism
        Of the columns that the split tests name.
    names : ndarray of bytes, shape (n_records,)
        Ascending, mapped from a file.
    codes : ndarray of int, shape (n_records, max(1, n_columns))
        Exact codes as `exact_codes` gives them, mapped from a file; zeros where there are no columns.
    """

    key: bytes
    mechanisms: tuple[ColumnMechanism, ...]
    names: Names
    codes: NDArray[np.signedinteger]

    def about(self, ids: Sequence[str]) -> AnswerableRecords:
        """The records with these ids."""
        places, is_known = self.places_of(ids)
        known = pd.Index([record_id for record_id, is_one in zip(ids, is_known, strict=True) if is_one], dtype=object)
        codes = np.array(self.codes[places[is_known]].T, np.int64)
        columns = zip(self.mechanisms, codes[: len(self.mechanisms)], strict=True)
        return AnswerableRecords(known, tuple((mechanism, encoded_column(exact)) for mechanism, exact in columns))

    def places_of(self, ids: Sequence[str]) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Where the records with these ids stand or would stand, and which of them are there."""
        wanted = keyed_names(self.key, pd.Index(ids, dtype=object))
        places = np.searchsorted(self.names, wanted)
        return places, self.names[np.minimum(places, len(self.names) - 1)] == wanted


def keyed_records(
    router: Router, partitions: Partitions, id_columns: Sequence[str], folder: Path, *, client: Client
) -> KeyedRecords:
    """Encode partitions on the cluster, and lay their records side by side in files of a folder.

    Raises
    ------
    TableError, DataError
        If a file was changed since it was checked, or a cell does not fit the schema. No request can then ask
        whether one does.
    RunFolderError
        If the folder cannot be written, or a file of it lacks bytes that were written.

    Notes
    -----
    Privacy: the exact codes are readable by their owner alone. The caller removes the folder.
    """
    key = token_bytes(16)
    encode = partial(_encode, router=router_to_dict(router), id_columns=tuple(id_columns), key=key)
    pieces = [FileBlock(folder / "pieces" / f"{number:06d}") for number in range(len(partitions.paths))]
    with reporting_lost_workers(client):
        client.gather(client.map(encode, [path.resolve() for path in partitions.paths], pieces, pure=False))
    partitions.check_unchanged()
    names, codes = _merged(pieces, partitions.rows, folder)
    shutil.rmtree(folder / "pieces")
    return KeyedRecords(key, router.asked, names, codes)


def _encode(part: Path, piece: FileBlock, router: Mapping[str, Any], id_columns: Sequence[str], key: bytes) -> None:
    """Write what is kept of a partition's records."""
    asked = router_from_dict(router)
    names = keyed_names(key, ids_of(part, id_columns))
    raw = read_stored(part, sorted(asked.tests.columns))
    codes = [exact_codes(column) for _, column in asked.encode(raw)] or [np.zeros(len(names), np.int8)]
    order = np.argsort(names, kind="stable")
    piece["names"], piece["codes"] = names[order], np.column_stack(codes)[order]


def _merged(pieces: Sequence[FileBlock], rows: Sequence[int], folder: Path) -> tuple[Names, NDArray[np.signedinteger]]:
    """Ascending pieces as one in two files, of which few records at a time are in memory: names spread evenly."""
    kind, width = np.result_type(*(piece["codes"].dtype for piece in pieces)), pieces[0]["codes"].shape[1]
    n_parts, n_bits = -(-sum(rows) // MERGED_ROWS), 8 * HALF_NAME.itemsize
    bounds = np.array([((i << n_bits) // n_parts).to_bytes(HALF_NAME.itemsize, "big") for i in range(1, n_parts)], NAME)
    ends = np.array([[*np.searchsorted(piece["names"], bounds), n] for piece, n in zip(pieces, rows, strict=True)])
    starts = np.zeros(len(pieces), np.intp)
    files = folder / "names", folder / "codes"
    with writing(folder):
        with (
            open(files[0], "xb", opener=private_opener) as of_names,
            open(files[1], "xb", opener=private_opener) as of_codes,
        ):
            for i in range(n_parts):
                cuts = [slice(*cut) for cut in zip(starts.tolist(), ends[:, i].tolist(), strict=True)]
                # Copies: a piece that stays mapped takes a descriptor, of which there are few.
                names = np.concatenate([piece["names"][cut].copy() for piece, cut in zip(pieces, cuts, strict=True)])
                merged = np.concatenate([piece["codes"][cut].copy() for piece, cut in zip(pieces, cuts, strict=True)])
                order = np.argsort(names, kind="stable")
                # Not `tofile`, which does not raise if the last bytes find no room.
                of_names.write(names[order].data)
                of_codes.write(merged[order].astype(kind).data)
                starts = ends[:, i]
        for file in files:
            flush(file)
    return _mapped(files[0], NAME, (sum(rows),)), _mapped(files[1], kind, (sum(rows), width))


def _mapped(path: Path, kind: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Map a file that was written, of which no byte may be missing."""
    n_bytes = math.prod(shape) * kind.itemsize
    with reading(path):
        n_there = path.stat().st_size
    if n_there != n_bytes:
        raise RunFolderError(f"{path} has {n_there} bytes, where {n_bytes} were written. Nothing was sent")
    return np.memmap(path, kind, mode="r", shape=shape)
