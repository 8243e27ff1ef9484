"""First draws under Dask: what a release of partitions takes over from the store of single draws, and adds to it.

The draws of new records are made on the workers like all others. The driver finds out before which records have draws,
writes these beside the plan for the workers to put in place, and keeps the new ones when all parts are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from parties.cluster.release_plan import PartitionPlan
from parties.cluster.release_tasks import codes_of, kept_codes, kept_path
from parties.cluster.survey import Surveyed
from parties.errors import LedgerError
from parties.ledger.budget import Budget
from parties.ledger.ledger_lines import Occasion, Release, Reuse
from parties.ledger.release_ledger import Ledger
from parties.ledger.release_store import NOT_DRAWN, Drawn, Names, ReleaseStore
from parties.storage.atomic_files import make_folder, replacing
from parties.tables.key_sets import distinct


def find_kept(surveyed: Surveyed, store: ReleaseStore, *, is_secure: bool) -> list[tuple[Release, Drawn]]:
    """Per column, what drawing the records without a draw costs, and the draws of the others, in the records' order."""
    names = surveyed.names
    order, found = np.argsort(names), []
    for release in surveyed.releases(is_secure=is_secure):
        drawn = store.answers(release.family, names[order])
        codes = np.empty_like(drawn.codes)
        codes[order] = drawn.codes
        records = _keys(names[codes == NOT_DRAWN])
        found.append((replace(release, cost=replace(release.cost, records=records)), Drawn(codes, drawn.charges)))
    return found


def has_all(surveyed: Surveyed, store: ReleaseStore, *, is_secure: bool) -> bool:
    """Whether every record has a draw in every column."""
    found = find_kept(surveyed, store, is_secure=is_secure)
    return not any(len(release.cost.records) for release, _ in found)


def charge_new(
    surveyed: Surveyed,
    folder: Path,
    ledger: Ledger,
    store: ReleaseStore,
    occasion: Occasion,
    budget: Budget,
    *,
    is_secure: bool,
) -> tuple[int, ...]:
    """Pay for the records without a draw, and write down the draws of the others; returns the charge of each column.

    A column of which nothing is to be drawn has the charge 0.
    """
    ledger.refresh()
    found = find_kept(surveyed, store, is_secure=is_secure)
    reuses = {
        release.cost.column: Reuse(drawn.charges, int((drawn.codes != NOT_DRAWN).sum()))
        for release, drawn in found
        if drawn.charges
    }
    charged = [release for release, _ in found if len(release.cost.records)]
    numbers = iter(ledger.charge(charged, reuses, occasion, budget))
    for column, (_, drawn) in enumerate(found):
        if drawn.charges:
            _write_kept(folder, column, drawn.codes, [one.n_rows for one in surveyed.surveys])
    return tuple(next(numbers) if len(release.cost.records) else 0 for release, _ in found)


def keep_new(plan: PartitionPlan, folder: Path, surveyed: Surveyed, ledger: Ledger, store: ReleaseStore) -> None:
    """Put the draws of new records into the store, once all parts are drawn; what is there already is left.

    Raises
    ------
    LedgerError
        If something else was drawn for a charge than the ledger says.
    """
    families = [release.family for release in surveyed.releases(is_secure=plan.is_secure)]
    for column, charge in enumerate(plan.charges):
        if not charge or store.holds(charge):
            continue
        pieces = [_new_of_part(plan, folder, surveyed, part, column) for part in range(len(plan.parts))]
        codes, names = (np.concatenate(one) for one in zip(*pieces, strict=True))
        content = store.put(charge, codes, family=families[column], names=names)
        if ledger.content(charge) not in (None, content):
            raise LedgerError(
                f"what was drawn for line {charge} of the ledger is not what it says. Nothing was released"
            )
        if ledger.content(charge) is None:
            ledger.note_stored({charge: content})


def _new_of_part(
    plan: PartitionPlan, folder: Path, surveyed: Surveyed, part: int, column: int
) -> tuple[KeptCodes, Names]:
    """Codes and names of the records of a part that had no draw."""
    codes, kept = codes_of(plan, folder, part, column), kept_codes(folder, part, column)
    is_new: NDArray[np.bool_] = np.ones(len(codes), np.bool_) if kept is None else kept == NOT_DRAWN
    return codes[is_new], surveyed.surveys[part].names[is_new]


def _write_kept(folder: Path, column: int, codes: KeptCodes, rows: Sequence[int]) -> None:
    """Put the draws that a column takes over where each part's worker finds them."""
    ends = np.cumsum(rows).tolist()
    for part, end in enumerate(ends):
        path = kept_path(folder, part, column)
        make_folder(path.parent)
        with replacing(path) as unfinished, unfinished.open("wb") as file:
            np.save(file, codes[end - rows[part] : end])


def _keys(names: Names) -> NDArray[np.uint64]:
    """The ledger's keys of records: the first half of their names."""
    return distinct(names.view("<u8").reshape(-1, 2)[:, 0].astype(np.uint64))
