"""What a release of partitions has its workers do, one partition at a time; see `parties.cluster.release`.

Every task may run again, on any worker, at any time, even twice at once: it writes the same bytes, and each file takes
its place as a whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.ranking import RankTable
from parties.cluster.release_plan import PartitionPlan, bits_of
from parties.errors import RunFolderError, TableError
from parties.ledger.drawn_cells import record_names
from parties.ledger.pricing import record_keys
from parties.ledger.release_store import Names
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import replacing
from parties.tables.key_sets import RecordKeys
from parties.tables.parquet import read_stored
from parties.tables.party_table import digest_of_ids
from parties.tables.record_ids import read_ids
from parties.vertical.out_of_core import code_count, code_type, draw_codes, exact_digest, ranks_by_code, targets


@dataclass(frozen=True, slots=True)
class Survey:
    """What a part holds, before anything is drawn: digests, the ledger's keys of its records, values out of bounds.

    Where first draws are kept, the names of its records in their order; else none.
    """

    n_rows: int
    ids: str
    records: RecordKeys
    exact: tuple[str, ...]
    n_clipped: tuple[int, ...]
    names: Names


@dataclass(frozen=True, slots=True)
class Drawn:
    """Counts of codes per column, over one or several parts, and the digests of what was written, by part."""

    counts: tuple[NDArray[np.int64], ...]
    has_missing: tuple[bool, ...]
    written: dict[int, tuple[str, ...]]

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            tuple(a or b for a, b in zip(self.has_missing, other.has_missing, strict=True)),
            self.written | other.written,
        )


def survey(part: Path, mechanisms: Sequence[ColumnMechanism], id_columns: Sequence[str], keeps: bool) -> Survey:
    """Read a part once, to know whose records are in it, that every cell fits, and what will be drawn from."""
    ids = read_ids(read_stored(part, list(dict.fromkeys(id_columns))), id_columns, part)
    exact, n_clipped = zip(*(exact_digest(part, mechanism) for mechanism in mechanisms), strict=True)
    names = record_names(ids if keeps else ids[:0])
    return Survey(len(ids), digest_of_ids(ids), record_keys(ids), exact, n_clipped, names)


def draw_part(folder: Path, part: int) -> Drawn:
    """Draw every column of a part; the same codes whenever and wherever this runs."""
    plan = _plan(folder)
    counts, has_missing, written = [], [], []
    for c, mechanism in enumerate(plan.mechanisms):
        rng = bits_of(folder, part * len(plan.mechanisms) + c, is_secure=plan.is_secure)
        with replacing(_codes_path(folder, part, c), writer=f".{uuid4().hex}") as unfinished:
            drawn = draw_codes(plan.parts[part], mechanism, unfinished, rng=rng, kept=kept_codes(folder, part, c))
            if drawn.exact != plan.exact[part][c]:
                raise TableError(f"{plan.parts[part].name} was changed while it was in use. Nothing of it was released")
        counts.append(drawn.counts)
        has_missing.append(drawn.has_missing)
        written.append(drawn.written)
    return Drawn(tuple(counts), tuple(has_missing), {part: tuple(written)})


def rank_part(folder: Path, part: int) -> str:
    """Write the ranks of a part, a piece of rows at a time; returns the digest of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plan = _plan(folder)
    number = {mechanism.schema.name: c for c, mechanism in enumerate(plan.mechanisms)}
    lookups = [(number[mechanism.schema.name], ranks) for mechanism, _, _, ranks, _ in released_columns(plan, folder)]
    schema = pa.schema([(f"c{i}", pa.from_numpy_dtype(ranks.dtype)) for i, (_, ranks) in enumerate(lookups)])
    with replacing(ranks_path(folder, part), writer=f".{uuid4().hex}") as unfinished:
        with pq.ParquetWriter(unfinished, schema, compression="LZ4") as writer:
            for start in range(0, plan.rows[part], PIECE_ROWS):
                pieces = [_codes_piece(plan, folder, part, c, start) for c in range(len(plan.mechanisms))]
                writer.write_table(pa.table([ranks[pieces[c]] for c, ranks in lookups], schema=schema))
        return file_digest(unfinished)


def kept_codes(folder: Path, part: int, column: int) -> KeptCodes | None:
    """First draws of a part that the release takes over, `NOT_DRAWN` where there is none; None if there are no such."""
    path = kept_path(folder, part, column)
    return np.load(path) if path.exists() else None


def codes_of(plan: PartitionPlan, folder: Path, part: int, column: int) -> KeptCodes:
    """What the release has for a column of a part, a missing cell as -1."""
    return np.fromfile(_codes_path(folder, part, column), code_type(code_count(plan.mechanisms[column])))


def kept_path(folder: Path, part: int, column: int) -> Path:
    """Where the codes lie that a part takes over."""
    return folder / "codes" / f"{part:06d}.{column}.kept.npy"


def file_digest(path: Path) -> str:
    """Of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _codes_piece(plan: PartitionPlan, folder: Path, part: int, column: int, start: int) -> NDArray[np.signedinteger]:
    kind = code_type(code_count(plan.mechanisms[column]))
    path = _codes_path(folder, part, column)
    return np.fromfile(path, kind, PIECE_ROWS, offset=start * kind.itemsize)


def _plan(folder: Path) -> PartitionPlan:
    plan = PartitionPlan.read(folder)
    if plan is None:
        raise RunFolderError(f"{folder} cannot be read here; driver and workers must share it. Nothing was drawn")
    return plan


def _codes_path(folder: Path, part: int, column: int) -> Path:
    return folder / "codes" / f"{part:06d}.{column}"


def ranks_path(folder: Path, part: int) -> Path:
    """Where the ranks of a part lie."""
    return folder / "ranks" / f"{part:06d}.parquet"


def released_columns(
    plan: PartitionPlan, folder: Path
) -> Iterator[tuple[ColumnMechanism, int | None, RankTable, NDArray[np.unsignedinteger], bool]]:
    """Per released column: where it comes from, its table, the rank of every code, and whether any cell is missing."""
    documents = RunFolder(folder).read_json("counts.json")["columns"]
    for mechanism, document in zip(plan.mechanisms, documents, strict=True):
        counts = np.array(document["counts"], np.int64)
        for category in targets(mechanism):
            table, ranks = ranks_by_code(counts, category)
            yield mechanism, category, table, ranks, bool(document["has_missing"])
