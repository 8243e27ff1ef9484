"""B's release on Dask: Parquet partitions of raw columns become Parquet partitions of ranks.

::

    driver      survey ─► charge ─► keys, plan ─► draw ─► sum of counts ─► ledger ─► tables ─► rank ─► keys removed
    workers     digests,                          codes,                             ranks of
                record keys                       counts                             a partition

A task gets the folder and the number of a partition; everything else it reads from the file system that driver and
workers share. A task that runs again, or a driver that is started again, draws the same codes from the same keys.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from opboost.desensitize import ColumnMechanism
from opboost.ranking import RankTable
from opboost.rng import BitSource
from parties.cluster.kept_draws import charge_new, keep_new
from parties.cluster.release_plan import PartitionPlan, forget_keys, write_keys
from parties.cluster.release_tasks import Drawn, draw_part, file_digest, rank_part, ranks_path, released_columns
from parties.cluster.survey import Surveyed, survey_partitions
from parties.errors import LedgerError, RunFolderError
from parties.ledger.budget import Budget
from parties.ledger.ledger_lines import Occasion, digest_of
from parties.ledger.release_ledger import Ledger
from parties.ledger.release_store import ReleaseStore
from parties.runs.run_folder import RunFolder
from parties.storage.atomic_files import make_folder, sweep, write_json

if TYPE_CHECKING:
    from distributed import Client

# Partial results that are added up at a time.
_ADDED = 8


@dataclass(frozen=True, slots=True)
class PartitionedColumn:
    """A released column of ranks; see `opboost.routing.ReleasedRanks`. Its ranks are ``c0``, ``c1``, ... of a part.

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
    surveyed: Surveyed | None = None,
    store: ReleaseStore | None = None,
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
        What makes a record's id; see `parties.tables.record_ids`.
    client : distributed.Client
        Of this party's own cluster.
    rng : BitSource
        Where the keys come from.
    ledger : Ledger
    occasion : Occasion
    budget : Budget
    surveyed : Surveyed, optional
        The parts, if they were surveyed before.
    store : ReleaseStore, optional
        Keeps first draws: records that have one keep it, and the others' are put there. The survey must name records.

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
    make_folder(folder)
    paths = [part.resolve() for part in parts]
    with RunFolder(folder).locked():
        plan = PartitionPlan.read(folder)
        if plan is None:
            surveyed = surveyed or survey_partitions(paths, mechanisms, id_columns=id_columns, client=client)
        else:
            plan = plan if surveyed is None else _found_again(plan, surveyed, folder)
            plan.check(paths, mechanisms, ledger=ledger.name)
        if plan is not None and (folder / "release.json").exists():
            _verify(plan, folder, client)
        else:
            # Nobody else finds or draws records of these meanwhile; what is drawn is kept before it is ranked.
            with store.changing() if store is not None else nullcontext():
                if plan is None:
                    assert surveyed is not None
                    plan = _begin(surveyed, folder, rng, ledger, occasion, budget, store)
                _draw(plan, surveyed, folder, client, ledger, store)
            _rank(plan, folder, client)
        _tidy(folder)
        return _read(plan, folder)


def _begin(
    surveyed: Surveyed,
    folder: Path,
    rng: BitSource,
    ledger: Ledger,
    occasion: Occasion,
    budget: Budget,
    store: ReleaseStore | None,
) -> PartitionPlan:
    """Pay for what is to be drawn, and write down from which keys."""
    if store is None:
        charges = tuple(ledger.charge(surveyed.releases(is_secure=rng.is_secure), {}, occasion, budget))
    else:
        charges = charge_new(surveyed, folder, ledger, store, occasion, budget, is_secure=rng.is_secure)
    write_keys(folder, len(surveyed.parts) * len(surveyed.mechanisms), rng=rng)
    plan = PartitionPlan(
        parts=surveyed.parts,
        stamps=surveyed.stamps,
        rows=tuple(found.n_rows for found in surveyed.surveys),
        ids=tuple(found.ids for found in surveyed.surveys),
        mechanisms=surveyed.mechanisms,
        exact=tuple(found.exact for found in surveyed.surveys),
        ledger=ledger.name,
        charges=charges,
        is_secure=rng.is_secure,
    )
    plan.write(folder)
    return plan


def _found_again(plan: PartitionPlan, surveyed: Surveyed, folder: Path) -> PartitionPlan:
    """The plan with the files where they are now, if they hold what they held: moved or written again, they may be."""
    held = tuple((found.ids, found.exact) for found in surveyed.surveys)
    if held != tuple(zip(plan.ids, plan.exact, strict=True)):
        return plan
    plan = replace(plan, parts=surveyed.parts, stamps=surveyed.stamps)
    plan.write(folder)
    return plan


def _draw(
    plan: PartitionPlan,
    surveyed: Surveyed | None,
    folder: Path,
    client: Client,
    ledger: Ledger,
    store: ReleaseStore | None,
) -> None:
    """Draw, and enter what was drawn into the ledger."""
    make_folder(folder / "codes")
    drawn = _summed(client, partial(draw_part, folder), len(plan.parts))
    if store is not None:
        assert surveyed is not None
        keep_new(plan, folder, surveyed, ledger, store)
    for c, charge in enumerate(plan.charges if store is None else ()):
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


def _rank(plan: PartitionPlan, folder: Path, client: Client) -> None:
    """Turn what was drawn into ranks."""
    make_folder(folder / "ranks")
    parts = list(range(len(plan.parts)))
    digests: list[str] = client.gather(client.map(partial(rank_part, folder), parts, pure=False))
    write_json(folder / "release.json", {"ranks": digests})


def _verify(plan: PartitionPlan, folder: Path, client: Client) -> None:
    """Compare what an earlier call wrote with what it noted."""
    paths = [ranks_path(folder, part) for part in range(len(plan.parts))]
    found = client.gather(client.map(file_digest, paths, pure=False)) if all(map(Path.exists, paths)) else []
    if found != RunFolder(folder).read_json("release.json")["ranks"]:
        raise RunFolderError(f"{folder} does not hold the ranks that it released. Restore it; nothing is drawn anew")


def _tidy(folder: Path) -> None:
    """Remove what only drawing and ranking need; also after a crash just before."""
    forget_keys(folder)
    sweep(folder / "ranks")
    for codes in (folder / "codes").iterdir():
        codes.unlink()


def _summed(client: Client, draw: Callable[[int], Drawn], n_parts: int) -> Drawn:
    """The sum over all parts, added up on the workers."""
    from dask import bag

    parts = bag.from_sequence(range(n_parts), npartitions=n_parts)
    return client.compute(parts.map(draw).fold(operator.add, split_every=_ADDED), sync=True)


def _read(plan: PartitionPlan, folder: Path) -> PartitionedRelease:
    ranks = tuple(ranks_path(folder, part) for part in range(len(plan.parts)))
    columns = tuple(
        PartitionedColumn(mechanism.schema.name, category, table, has_missing)
        for mechanism, category, table, _, has_missing in released_columns(plan, folder)
    )
    return PartitionedRelease(ranks, columns, plan.rows, plan.mechanisms, plan.is_secure)
