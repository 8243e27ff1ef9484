"""The grid of cells that a passive party answers with: made once of a release, entered into the ledger, kept for good.

The cuts of a column stay what they were in the first run of a grid of so many cells that had any, whatever is released
later: two grids together would tell more of a value than either. A run whose column lacks codes around a cut goes
without it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from opboost.arrays import Values
from opboost.cell_grid import cell_tests, grid_cuts, within
from opboost.denoise.channel import ColumnRelease
from opboost.desensitize import ColumnMechanism
from opboost.fitting.noise_correction import LEAST_ROWS
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.local import RandomisedResponse
from opboost.routing import Router, SplitTests
from parties.errors import ConfigError
from parties.ledger.ledger_lines import digest_of, grid_fields
from parties.ledger.pricing import unpriced
from parties.ledger.release_ledger import Ledger
from parties.storage.serialization import router_from_dict
from parties.vertical.release_offer import OfferedRanks
from parties.vertical.resolution_limit import ResolvedTests
from protocols.errors import UnexpectedMessage
from protocols.messages.vertical import Offer

# Cells of all mechanisms that a passive party shares, each of which takes sixty bytes: the columns of 4,000 domains of
# a thousand points, parted as finely as they can be.
MOST_SHARED_CELLS = 1 << 21


def agree_grid(
    columns: Sequence[OfferedRanks],
    mechanisms: Sequence[ColumnMechanism],
    book: ResolvedTests,
    *,
    n_cells: int,
    share_codes: bool,
    is_secure: bool = True,
) -> tuple[list[list[int]], SplitTests]:
    """Cuts of released columns, as ranks for the active party, and the tests that number a record's cells.

    Parameters
    ----------
    columns : sequence of OfferedRanks
    mechanisms : sequence of ColumnMechanism
    book : ResolvedTests
        Has the ledger where cuts are kept.
    n_cells : int
        Of a column, at most.
    share_codes : bool
        Whether the active party can learn through the noise: then cells hold equal shares of the exact codes.
    is_secure : bool
        Whether the noise is secret.

    Notes
    -----
    Privacy: a function of releases, this one or, where cuts were kept, the one that they were made of. Cuts of a
    release without secret noise serve no release that has some.
    """
    found, ledger = [], book.ledger
    # Once for all categories of a column: it names each of them.
    described = [_described(mechanism, is_secure=is_secure) for mechanism in mechanisms]
    with nullcontext() if ledger is None else ledger.changing() as add:
        for column in columns:
            mechanism, ranking = mechanisms[column.number], column.ranking
            key = mechanism.schema.name, described[column.number], ranking.category, n_cells
            kept = ledger.sums.grids.get(key) if ledger is not None else None
            if kept is None:
                counts = _counts(column)
                is_learnt = share_codes and counts.sum() >= LEAST_ROWS
                release = _release(column, mechanism) if is_learnt else None
                domain = mechanism.settings.domain if ranking.category is None else IntegerDomain(0, 1)
                cuts = grid_cuts(counts, ranking.table, domain, n_cells=n_cells, release=release)
                kept = [ranking.table.threshold(rank) for rank in cuts.tolist()]
                # Without a cut it tells nothing, and must not take a later, larger release's cells away.
                if add is not None and kept:
                    add(grid_fields(key, kept, book.occasion))
            found.append(within(ranking.table, np.array(kept, np.float64)))
    thresholds: list[Values] = [own for _, own in found]
    return [cuts.tolist() for cuts, _ in found], cell_tests([column.ranking for column in columns], thresholds)


def shared_router(
    peer: str, document: Mapping[str, JsonValue], offer: Offer, *, n_asked: int, by_cells: bool
) -> Router:
    """Read what a peer shares to answer with.

    Raises
    ------
    UnexpectedMessage
        If it is of another size than what was offered and asked for, or cannot be read; if it answers with cells
        where tests were asked for, with tests in place of cells, or with other cells than those of the offer.
    """
    columns, tests = document.get("columns"), document.get("tests")
    if not isinstance(columns, list) or not isinstance(tests, list):
        raise UnexpectedMessage(f"{peer} sent thresholds that cannot be used: they lack columns or tests")
    if len(columns) > len(offer.columns):
        raise UnexpectedMessage(
            f"{peer} sent thresholds of {len(columns)} columns where {len(offer.columns)} were offered"
        )
    n_tests = n_asked + sum(len(one.cuts) + 1 for one in offer.columns if one.cuts is not None)
    if len(tests) != n_tests:
        raise UnexpectedMessage(f"{peer} resolved {len(tests)} of {n_tests} split ranks")
    try:
        router = router_from_dict(document, most_cells=MOST_SHARED_CELLS)
    except ConfigError as error:
        raise UnexpectedMessage(f"{peer} sent thresholds that cannot be used: {error}") from None
    _check_answers(router.tests, offer, peer, by_cells=by_cells)
    return router


def _check_answers(tests: SplitTests, offer: Offer, peer: str, *, by_cells: bool) -> None:
    """Refuse to be answered with other bits than those that the model reads."""
    due = [len(one.cuts) + 1 for one in offer.columns if one.cuts is not None]
    runs = [len(list(run)) for _, run in groupby(tests.sources)]
    is_of_offer = runs == list(Counter(tests.sources).values()) == due
    if tests.by_cells is not by_cells or (by_cells and not is_of_offer):
        raise UnexpectedMessage(
            f"{peer} sent thresholds that cannot be used: they do not answer with "
            f"{'the cells that were offered' if by_cells else 'one bit for each test'}. Nothing more was asked"
        )


def coarse_grids(ledger: Ledger, mechanisms: Sequence[ColumnMechanism], *, n_cells: int, is_secure: bool) -> list[str]:
    """Columns of numbers whose kept cuts leave at most half of the cells that there could be."""
    found = []
    for mechanism in mechanisms:
        key = mechanism.schema.name, _described(mechanism, is_secure=is_secure), None, n_cells
        kept = ledger.sums.grids.get(key)
        if kept is not None and 2 * (len(kept) + 1) <= min(n_cells, mechanism.settings.domain.size):
            found.append(mechanism.schema.name)
    return found


def other_grids(ledger: Ledger, mechanisms: Sequence[ColumnMechanism], *, n_cells: int, is_secure: bool) -> list[str]:
    """Columns with cuts of another grid, or with resolved split tests: beside a grid of theirs these tell more."""
    found = []
    for mechanism in mechanisms:
        name, own = mechanism.schema.name, (_described(mechanism, is_secure=is_secure), n_cells)
        is_cut = any(key[0] == name and (key[1], key[3]) != own for key in ledger.sums.grids)
        if is_cut or ledger.sums.n_tests(name):
            found.append(name)
    return found


def _described(mechanism: ColumnMechanism, *, is_secure: bool) -> str:
    """Digest of a column's description and mapped domain; without secret noise another one."""
    domain, is_noised = mechanism.settings.domain, is_secure and math.isfinite(mechanism.value.epsilon)
    described: list[JsonValue] = [unpriced(mechanism, is_secure=True).schema, domain.lo, domain.hi]
    return digest_of(described if is_noised else [*described, "exact"])


def _counts(column: OfferedRanks) -> NDArray[np.int64]:
    """How often each rank was released, and a missing cell."""
    counts = np.zeros(column.ranking.table.n_ranks + 1, np.int64)
    for ranks in column.ranks():
        counts += np.bincount(ranks, minlength=len(counts))
    return counts


def _release(column: OfferedRanks, mechanism: ColumnMechanism) -> ColumnRelease | None:
    """What the active party knows of the noise of a column that it learns through."""
    value = mechanism.value
    if isinstance(value, RandomisedResponse) or math.isinf(value.epsilon):
        return None
    return ColumnRelease(value, mechanism.missingness, column.ranking.table.codes - value.domain.lo)
