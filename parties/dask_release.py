"""B's release on Dask: Parquet partitions of raw columns become Parquet partitions of ranks.

::

    driver      survey ─► charge ─► keys, plan ─► draw ─► sum of counts ─► ledger ─► tables ─► rank ─► keys removed
    workers     digests,                          codes,                             ranks of
                record keys                       counts                             a partition

A task gets the folder and the number of a partition; everything else it reads from the file system that driver and
workers share. A task that runs again, or a driver that is started again, draws the same codes from the same keys.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import PIECE_ROWS, ColumnMechanism
from opboost.ranking import RankTable
from opboost.rng import BitSource
from parties.balances import Budget, RecordKeys, distinct
from parties.columns import read_stored, stamp_of
from parties.dask_plan import PartitionPlan, bits_of, forget_keys, write_keys
from parties.drawing import planned_in_parts, record_keys
from parties.entries import Occasion, digest_of
from parties.errors import LedgerError, RunFolderError, TableError
from parties.files import replacing, write_json
from parties.ledger import Ledger
from parties.out_of_core import code_count, code_type, draw_codes, exact_digest, ranks_by_code, targets
from parties.record_ids import read_ids
from parties.store import RunFolder
from parties.table import digest_of_ids

if TYPE_CHECKING:
    from distributed import Client

# Partial results that are added up at a time.
_ADDED = 8


@dataclass(frozen=True, slots=True)
class PartitionedColumn:
    """A released column of ranks; see `opboost.ranking.RankedColumn`. Its ranks are ``c0``, ``c1``, ... of a part.

    Attributes
    ----------
    source : str
    category : int or None
    table : RankTable
    has_missing : bool
    """

    source: str
    category: int | None
    table: RankTable
    has_missing: bool


@dataclass(frozen=True, slots=True)
class PartitionedRelease:
    """What a folder releases. Only the files in `ranks`, and the number of ranks of each column, may leave the party.

    Attributes
    ----------
    ranks : tuple of Path
        One Parquet file per partition; unsigned integers, a missing row as the number of ranks.
    columns : tuple of PartitionedColumn
    rows : tuple of int
        Rows of each partition.
    mechanisms : tuple of ColumnMechanism
    is_secure : bool
        Whether it was drawn from secret bits.
    """

    ranks: tuple[Path, ...]
    columns: tuple[PartitionedColumn, ...]
    rows: tuple[int, ...]
    mechanisms: tuple[ColumnMechanism, ...]
    is_secure: bool


def release_partitions(
    parts: Sequence[Path],
    mechanisms: Sequence[ColumnMechanism],
    folder: Path,
    *,
    id_columns: Sequence[str],
    client: Client,
    rng: BitSource,
    ledger: Ledger,
    occasion: Occasion,
    budget: Budget,
) -> PartitionedRelease:
    """Desensitize and rank columns of Parquet partitions, once; a folder that was begun is finished, never drawn anew.

    Parameters
    ----------
    parts : sequence of Path
        Parquet files, in the order of the agreed records.
    mechanisms : sequence of ColumnMechanism
    folder : Path
        For this release alone, on a file system that the workers share.
    id_columns : sequence of str
        What makes a record's id; see `parties.record_ids`.
    client : distributed.Client
        Of this party's own cluster.
    rng : BitSource
        Where the keys come from.
    ledger : Ledger
    occasion : Occasion
    budget : Budget

    Raises
    ------
    TableError, DataError
        If a part cannot be read, or a cell does not fit the schema: before anything is charged.
    LedgerError
        If the release would go over the budget: before anything is drawn.
    RunFolderError
        If the folder holds another release.

    Notes
    -----
    Privacy: one release of every column under ``mechanism.guarantee()``, charged to the ledger before the first draw.
    The workers hold raw data and, while they draw, keys; they must be this party's alone.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    paths = [part.resolve() for part in parts]
    with RunFolder(folder).locked():
        plan = PartitionPlan.read(folder)
        if plan is None:
            plan = _begin(paths, mechanisms, folder, id_columns, client, rng, ledger, occasion, budget)
        else:
            plan.check(paths, mechanisms, ledger=ledger.name)
        if not (folder / "release.json").exists():
            _finish(plan, folder, client, ledger)
        return _read(plan, folder)


def _begin(
    parts: Sequence[Path],
    mechanisms: Sequence[ColumnMechanism],
    folder: Path,
    id_columns: Sequence[str],
    client: Client,
    rng: BitSource,
    ledger: Ledger,
    occasion: Occasion,
    budget: Budget,
) -> PartitionPlan:
    """Find out what is to be drawn, pay for it, and write down from which keys."""
    stamps = tuple(stamp_of(part) for part in parts)
    survey = partial(_survey, mechanisms=tuple(mechanisms), id_columns=tuple(id_columns))
    surveys: list[_Survey] = client.gather(client.map(survey, parts, pure=False))
    keys = np.concatenate([survey.records for survey in surveys])
    n_rows = sum(survey.n_rows for survey in surveys)
    records = distinct(keys)
    if not n_rows or len(records) < n_rows:
        raise TableError(
            f"the partitions have {n_rows} rows and {len(records)} different ids; every record must be in one row. "
            "Nothing was released"
        )
    releases = planned_in_parts(
        mechanisms,
        list(zip(*(survey.exact for survey in surveys), strict=True)),
        [survey.ids for survey in surveys],
        records,
        is_secure=rng.is_secure,
    )
    charges = ledger.charge(releases, {}, occasion, budget)
    write_keys(folder, len(parts) * len(mechanisms), rng=rng)
    plan = PartitionPlan(
        parts=tuple(parts),
        stamps=stamps,
        rows=tuple(survey.n_rows for survey in surveys),
        mechanisms=tuple(mechanisms),
        exact=tuple(survey.exact for survey in surveys),
        ledger=ledger.name,
        charges=tuple(charges),
        is_secure=rng.is_secure,
    )
    plan.write(folder)
    return plan


def _finish(plan: PartitionPlan, folder: Path, client: Client, ledger: Ledger) -> None:
    """Draw, enter what was drawn into the ledger, rank."""
    (folder / "codes").mkdir(mode=0o700, exist_ok=True)
    (folder / "ranks").mkdir(mode=0o700, exist_ok=True)
    drawn = _summed(client, partial(_draw_part, folder), len(plan.parts))
    for c, charge in enumerate(plan.charges):
        content = digest_of([drawn.written[part][c] for part in range(len(plan.parts))])
        if ledger.content(charge) not in (None, content):
            raise LedgerError(
                f"what was drawn for line {charge} of the ledger is not what it says. Nothing was released"
            )
        if ledger.content(charge) is None:
            ledger.note_stored({charge: content})
    columns = [
        {"counts": counts.tolist(), "has_missing": has_missing}
        for counts, has_missing in zip(drawn.counts, drawn.has_missing, strict=True)
    ]
    write_json(folder / "counts.json", {"columns": columns})
    parts = list(range(len(plan.parts)))
    digests: list[str] = client.gather(client.map(partial(_rank_part, folder), parts, pure=False))
    write_json(folder / "release.json", {"ranks": digests})
    forget_keys(folder)
    for codes in (folder / "codes").iterdir():
        codes.unlink()


def _summed(client: Client, draw: Callable[[int], _Drawn], n_parts: int) -> _Drawn:
    """The sum over all parts, added up on the workers."""
    from dask import bag

    parts = bag.from_sequence(range(n_parts), npartitions=n_parts)
    return client.compute(parts.map(draw).fold(operator.add, split_every=_ADDED), sync=True)


def _read(plan: PartitionPlan, folder: Path) -> PartitionedRelease:
    ranks = tuple(_ranks_path(folder, part) for part in range(len(plan.parts)))
    if not all(path.exists() for path in ranks):
        raise RunFolderError(f"{folder} lacks ranks that it released. Restore it; nothing is drawn anew")
    columns = tuple(
        PartitionedColumn(mechanism.schema.name, category, table, has_missing)
        for mechanism, category, table, _, has_missing in _released(plan, folder)
    )
    return PartitionedRelease(ranks, columns, plan.rows, plan.mechanisms, plan.is_secure)


def _released(
    plan: PartitionPlan, folder: Path
) -> Iterator[tuple[ColumnMechanism, int | None, RankTable, NDArray[np.unsignedinteger], bool]]:
    """Per released column: where it comes from, its table, the rank of every code, and whether any cell is missing."""
    documents = RunFolder(folder).read_json("counts.json")["columns"]
    for mechanism, document in zip(plan.mechanisms, documents, strict=True):
        counts = np.array(document["counts"], np.int64)
        for category in targets(mechanism):
            table, ranks = ranks_by_code(counts, category)
            yield mechanism, category, table, ranks, bool(document["has_missing"])


# What follows runs on workers.


@dataclass(frozen=True, slots=True)
class _Survey:
    """What a part holds, before anything is drawn: digests, and the ledger's keys of its records."""

    n_rows: int
    ids: str
    records: RecordKeys
    exact: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Counts of codes per column, over one or several parts, and the digests of what was written, by part."""

    counts: tuple[NDArray[np.int64], ...]
    has_missing: tuple[bool, ...]
    written: dict[int, tuple[str, ...]]

    def __add__(self, other: _Drawn) -> _Drawn:
        return _Drawn(
            tuple(a + b for a, b in zip(self.counts, other.counts, strict=True)),
            tuple(a or b for a, b in zip(self.has_missing, other.has_missing, strict=True)),
            self.written | other.written,
        )


def _survey(part: Path, mechanisms: Sequence[ColumnMechanism], id_columns: Sequence[str]) -> _Survey:
    ids = read_ids(read_stored(part, list(dict.fromkeys(id_columns))), id_columns, part)
    return _Survey(len(ids), digest_of_ids(ids), record_keys(ids), tuple(exact_digest(part, m) for m in mechanisms))


def _draw_part(folder: Path, part: int) -> _Drawn:
    """Draw every column of a part; the same codes whenever and wherever this runs."""
    plan = _plan(folder)
    counts, has_missing, written = [], [], []
    for c, mechanism in enumerate(plan.mechanisms):
        rng = bits_of(folder, part * len(plan.mechanisms) + c, is_secure=plan.is_secure)
        with replacing(_codes_path(folder, part, c), writer=f".{uuid4().hex}") as unfinished:
            drawn = draw_codes(plan.parts[part], mechanism, unfinished, rng=rng)
            if drawn.exact != plan.exact[part][c]:
                raise TableError(f"{plan.parts[part].name} was changed while it was in use. Nothing of it was released")
        counts.append(drawn.counts)
        has_missing.append(drawn.has_missing)
        written.append(drawn.written)
    return _Drawn(tuple(counts), tuple(has_missing), {part: tuple(written)})


def _rank_part(folder: Path, part: int) -> str:
    """Write the ranks of a part, a piece of rows at a time; returns the digest of the file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plan = _plan(folder)
    number = {mechanism.schema.name: c for c, mechanism in enumerate(plan.mechanisms)}
    lookups = [(number[mechanism.schema.name], ranks) for mechanism, _, _, ranks, _ in _released(plan, folder)]
    schema = pa.schema([(f"c{i}", pa.from_numpy_dtype(ranks.dtype)) for i, (_, ranks) in enumerate(lookups)])
    with replacing(_ranks_path(folder, part), writer=f".{uuid4().hex}") as unfinished:
        with pq.ParquetWriter(unfinished, schema, compression="LZ4") as writer:
            for start in range(0, plan.rows[part], PIECE_ROWS):
                pieces = [_codes_piece(plan, folder, part, c, start) for c in range(len(plan.mechanisms))]
                writer.write_table(pa.table([ranks[pieces[c]] for c, ranks in lookups], schema=schema))
        with unfinished.open("rb") as file:
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


def _ranks_path(folder: Path, part: int) -> Path:
    return folder / "ranks" / f"{part:06d}.parquet"
