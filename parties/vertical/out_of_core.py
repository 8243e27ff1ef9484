"""A table of any size on one machine: a Parquet file's columns become files of ranks, a piece of rows at a time.

Two passes per column and no sort: the first encodes and draws, counts which points of the finite domain occur, and puts
the drawn codes aside; the second turns these into ranks by a table of all points. Memory depends on the size of a
piece and of the domain, not on the number of rows. Trees are then grown on ranks that are mapped from the files::

    with pieces of 262,144 rows
    data.parquet ── encode ── draw ──► 0.codes, counts ──► 0.ranks ──► RankColumn (mapped) ──► bins ──► trees
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import PIECE_ROWS, ColumnMechanism, desensitize
from opboost.preprocess import encode
from opboost.ranking import RankTable
from opboost.rng import BitSource
from opboost.schema import Kind
from opboost.vertical import RankColumn
from parties.ledger.pricing import exact_bytes
from parties.ledger.release_store import NOT_DRAWN
from parties.progress import Progress, no_progress
from parties.storage.mapped_ranks import MappedRanks
from parties.tables.parquet import opened
from parties.vertical.release_offer import rank_type
from protocols.private_files import private_opener


@dataclass(frozen=True, slots=True)
class RankFile:
    """A released column of ranks on disk; see `opboost.routing.ReleasedRanks`.

    Attributes
    ----------
    path : Path
        Little-endian unsigned integers of the smallest type, one per row, and nothing else.
    n_rows : int
    source : str
    category : int or None
    table : RankTable
    has_missing : bool
    """

    path: Path
    n_rows: int
    source: str
    category: int | None
    table: RankTable
    has_missing: bool

    def column(self, owner: str, index: int) -> RankColumn:
        """The column as an input of trees, mapped from the file."""
        ranks = MappedRanks(self.path, rank_type(self.table.n_ranks), self.n_rows)
        return RankColumn(owner, index, f"c{index}", ranks, self.table.n_ranks)


@dataclass(frozen=True, slots=True)
class DrawnCodes:
    """What the first pass knows of a column that it drew.

    Attributes
    ----------
    counts : ndarray of int64, shape (n_codes,)
        How often each code came.
    has_missing : bool
    exact, written : str
        Digests of the exact codes that were drawn from, and of the file.
    """

    counts: NDArray[np.int64]
    has_missing: bool
    exact: str
    written: str


def release_file(
    data: Path, mechanisms: Sequence[ColumnMechanism], folder: Path, *, rng: BitSource, progress: Progress = no_progress
) -> list[RankFile]:
    """Desensitize and rank columns of a Parquet file into files of a folder.

    Parameters
    ----------
    data : Path
    mechanisms : sequence of ColumnMechanism
    folder : Path
        Takes ``0.ranks``, ``1.ranks``, ..., in the order of the rows of `data`.
    rng : BitSource

    Raises
    ------
    TableError
        If the file cannot be read.
    DataError
        If a cell does not fit its column's schema.

    Notes
    -----
    Privacy: a new release of every column at every call, each under ``mechanism.guarantee()``. There is no ledger here
    and nothing is sent: this serves one machine that plays all parties. `parties.vertical.party_b` releases to others.
    """
    files: list[RankFile] = []
    for c, mechanism in enumerate(mechanisms):
        codes = folder / f"{c}.codes"
        try:
            drawn = draw_codes(data, mechanism, codes, rng=rng.fork(mechanism.schema.name))
            for category in targets(mechanism):
                path = folder / f"{len(files)}.ranks"
                files.append(_rank(mechanism, category, codes, drawn, path))
        finally:
            codes.unlink(missing_ok=True)
        progress("desensitizing", c + 1, len(mechanisms))
    return files


def stored_pieces(data: Path, name: str) -> Iterator[pd.Series]:
    """A column of a Parquet file in pieces of `PIECE_ROWS` rows, however the file groups them; the last is shorter."""
    import pyarrow as pa

    with opened(data, [name]) as file:
        waiting = pa.table({name: pa.array([], file.schema_arrow.field(name).type)})
        # One group of rows at a time: asked for all, pyarrow would read the column ahead as a whole.
        groups = (file.iter_batches(PIECE_ROWS, row_groups=[g], columns=[name]) for g in range(file.num_row_groups))
        for batch in chain.from_iterable(groups):
            waiting = pa.concat_tables([waiting, pa.Table.from_batches([batch]).select([name]).cast(waiting.schema)])
            while len(waiting) >= PIECE_ROWS:
                yield waiting.slice(0, PIECE_ROWS).to_pandas()[name]
                waiting = waiting.slice(PIECE_ROWS)
        if len(waiting):
            yield waiting.to_pandas()[name]


def exact_digest(data: Path, mechanism: ColumnMechanism) -> tuple[str, int]:
    """Of a stored column's exact codes; tells whether a draw was made of the same data. And how many were clipped.

    Raises
    ------
    TableError, DataError
        As `release_file`, before anything is drawn.
    """
    digest, n_clipped = hashlib.sha256(), 0
    for piece in stored_pieces(data, mechanism.schema.name):
        encoded = encode(piece, mechanism.schema, domain=mechanism.settings.domain)
        digest.update(exact_bytes(encoded))
        n_clipped += encoded.n_clipped
    return digest.hexdigest(), n_clipped


def draw_codes(
    data: Path, mechanism: ColumnMechanism, target: Path, *, rng: BitSource, kept: KeptCodes | None = None
) -> DrawnCodes:
    """First pass: draw a stored column's release into a file.

    Parameters
    ----------
    kept : ndarray of signed integers, optional
        Codes that were drawn before, per row, which stay: a missing cell as -1, `NOT_DRAWN` where there is none.

    Notes
    -----
    Privacy: the file is a release under ``mechanism.guarantee()`` if it is the only one that ever leaves.
    """
    n_codes = code_count(mechanism)
    counts, has_missing = np.zeros(n_codes, np.int64), False
    exact, written = hashlib.sha256(), hashlib.sha256()
    with open(target, "wb", opener=private_opener) as file:
        for start, piece in zip(count(0, PIECE_ROWS), stored_pieces(data, mechanism.schema.name), strict=False):
            encoded = encode(piece, mechanism.schema, domain=mechanism.settings.domain)
            exact.update(exact_bytes(encoded))
            released = desensitize(mechanism, encoded, rng=rng)
            codes = np.where(released.is_missing, -1, released.codes).astype(code_type(n_codes))
            if kept is not None:
                before = kept[start : start + len(codes)]
                codes = np.where(before == NOT_DRAWN, codes, before).astype(codes.dtype)
            counts += np.bincount(codes[codes >= 0], minlength=n_codes)
            has_missing |= bool((codes < 0).any())
            written.update(memoryview(codes).cast("B"))
            file.write(memoryview(codes).cast("B"))
    return DrawnCodes(counts, has_missing, exact.hexdigest(), written.hexdigest())


def ranks_by_code(counts: NDArray[np.int64], category: int | None) -> tuple[RankTable, NDArray[np.unsignedinteger]]:
    """The table of a column's ranks, and the rank of every code; a last one, which -1 finds, is for missing."""
    values = np.arange(len(counts)) if category is None else (np.arange(len(counts)) == category).astype(np.int64)
    distinct = np.unique(values[counts > 0])
    ranks = np.append(np.searchsorted(distinct, values), len(distinct)).astype(rank_type(len(distinct)))
    return RankTable(distinct), ranks


def targets(mechanism: ColumnMechanism) -> Sequence[int | None]:
    """What a column becomes: an unordered one an indicator per category, any other one a column of ranks."""
    return range(len(mechanism.schema.categories)) if _is_unordered(mechanism) else (None,)


def code_count(mechanism: ColumnMechanism) -> int:
    """Codes of a column lie in ``0 .. code_count - 1``."""
    return len(mechanism.schema.categories) if _is_unordered(mechanism) else mechanism.settings.domain.hi + 1


def code_type(n_codes: int) -> np.dtype[np.signedinteger]:
    """The smallest type that holds so many codes, and -1 for a missing cell."""
    return np.min_scalar_type(-n_codes)


def _rank(mechanism: ColumnMechanism, category: int | None, codes: Path, drawn: DrawnCodes, target: Path) -> RankFile:
    """Second pass: ranks by a table with one entry per code."""
    table, rank_of = ranks_by_code(drawn.counts, category)
    kind, n_rows = code_type(len(drawn.counts)), 0
    with codes.open("rb") as source, open(target, "wb", opener=private_opener) as file:
        while len(piece := np.fromfile(source, kind, PIECE_ROWS)):
            file.write(memoryview(rank_of[piece]).cast("B"))
            n_rows += len(piece)
    return RankFile(target, n_rows, mechanism.schema.name, category, table, drawn.has_missing)


def _is_unordered(mechanism: ColumnMechanism) -> bool:
    return mechanism.schema.kind is Kind.UNORDERED
