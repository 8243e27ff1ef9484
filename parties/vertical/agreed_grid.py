"""The grid of cells that a passive party answers with: made from a release, entered into the ledger, never changed.

For each number of cells, a column keeps the cuts of the first run in which it had any: two grids together would reveal
more of a value than either. A run whose column lacks codes around a cut omits that cut.
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

# Most cells in all mechanisms that a passive party shares, of sixty bytes each: enough for 4,000 columns whose domains
# of a thousand points have the smallest cells.
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
    """Make or look up the cuts of released columns; returns them as ranks, and the tests that give a record's cells.

    Parameters
    ----------
    columns : sequence of OfferedRanks
    mechanisms : sequence of ColumnMechanism
    book : ResolvedTests
        Its ledger keeps the cuts.
    n_cells : int
        Most cells of a column.
    share_codes : bool
        Whether the active party can correct for the noise: then cells hold equal shares of the exact codes.
    is_secure : bool
        Whether the noise is secret.

    Notes
    -----
    Privacy: the cuts are post-processing of a release: this one or, where cuts were kept, the one they were made from.
    Cuts of a release without secret noise are not used for a release with secret noise.
    """
    grids, ledger = [], book.ledger
    # Computed once per column, since the description names each of its categories.
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
                # A grid without cuts is not kept, so that a later, larger release may make one.
                if add is not None and kept:
                    add(grid_fields(key, kept, book.occasion))
            grids.append(within(ranking.table, np.array(kept, np.float64)))
    thresholds: list[Values] = [values for _, values in grids]
    return [cuts.tolist() for cuts, _ in grids], cell_tests([column.ranking for column in columns], thresholds)


def shared_router(
    peer: str, document: Mapping[str, JsonValue], offer: Offer, *, n_asked: int, by_cells: bool
) -> Router:
    """Read and check the router that a peer shares.

    Raises
    ------
    UnexpectedMessage
        If the router cannot be read, or its size is not that of the offer and the tests that were asked; if it answers
        with cells in place of tests, with tests in place of cells, or with other cells than the offer's.
    """
    columns, tests = document.get("columns"), document.get("tests")
    if not isinstance(columns, list) or not isinstance(tests, list):
        raise UnexpectedMessage(f"{peer} sent thresholds that cannot be used: they lack columns or tests")
    if len(columns) > len(offer.columns):
        raise UnexpectedMessage(
            f"{peer} sent thresholds of {len(columns)} columns where {len(offer.columns)} were offered"
        )
    n_tests = n_asked + sum(len(column.cuts) + 1 for column in offer.columns if column.cuts is not None)
    if len(tests) != n_tests:
        raise UnexpectedMessage(f"{peer} resolved {len(tests)} of {n_tests} split ranks")
    try:
        router = router_from_dict(document, most_cells=MOST_SHARED_CELLS)
    except ConfigError as error:
        raise UnexpectedMessage(f"{peer} sent thresholds that cannot be used: {error}") from None
    _check_answers(router.tests, offer, peer, by_cells=by_cells)
    return router


def _check_answers(tests: SplitTests, offer: Offer, peer: str, *, by_cells: bool) -> None:
    """Refuse a router whose answer bits are not those that the model reads."""
    expected = [len(column.cuts) + 1 for column in offer.columns if column.cuts is not None]
    runs = [len(list(run)) for _, run in groupby(tests.sources)]
    is_of_offer = runs == list(Counter(tests.sources).values()) == expected
    if tests.by_cells is not by_cells or (by_cells and not is_of_offer):
        raise UnexpectedMessage(
            f"{peer} sent thresholds that cannot be used: they do not answer with "
            f"{'the cells that were offered' if by_cells else 'one bit for each test'}. Nothing more was asked"
        )


def coarse_grids(ledger: Ledger, mechanisms: Sequence[ColumnMechanism], *, n_cells: int, is_secure: bool) -> list[str]:
    """Numeric columns whose kept cuts make at most half of the possible cells."""
    names = []
    for mechanism in mechanisms:
        key = mechanism.schema.name, _described(mechanism, is_secure=is_secure), None, n_cells
        kept = ledger.sums.grids.get(key)
        if kept is not None and 2 * (len(kept) + 1) <= min(n_cells, mechanism.settings.domain.size):
            names.append(mechanism.schema.name)
    return names


def other_grids(ledger: Ledger, mechanisms: Sequence[ColumnMechanism], *, n_cells: int, is_secure: bool) -> list[str]:
    """Columns with cuts of another grid or with resolved split tests, which together with this grid reveal more."""
    names = []
    for mechanism in mechanisms:
        name, current = mechanism.schema.name, (_described(mechanism, is_secure=is_secure), n_cells)
        is_cut = any(key[0] == name and (key[1], key[3]) != current for key in ledger.sums.grids)
        if is_cut or ledger.sums.n_tests(name):
            names.append(name)
    return names


def _described(mechanism: ColumnMechanism, *, is_secure: bool) -> str:
    """Digest of a column's description, its mapped domain, and whether its noise is secret."""
    domain, is_noised = mechanism.settings.domain, is_secure and math.isfinite(mechanism.value.epsilon)
    described: list[JsonValue] = [unpriced(mechanism, is_secure=True).schema, domain.lo, domain.hi]
    return digest_of(described if is_noised else [*described, "exact"])


def _counts(column: OfferedRanks) -> NDArray[np.int64]:
    """Number of released cells per rank, and last the missing ones."""
    counts = np.zeros(column.ranking.table.n_ranks + 1, np.int64)
    for ranks in column.ranks():
        counts += np.bincount(ranks, minlength=len(counts))
    return counts


def _release(column: OfferedRanks, mechanism: ColumnMechanism) -> ColumnRelease | None:
    """The noise channel of a column, for noise correction; None if there is none to correct."""
    value = mechanism.value
    if isinstance(value, RandomisedResponse) or math.isinf(value.epsilon):
        return None
    return ColumnRelease(value, mechanism.missingness, column.ranking.table.codes - value.domain.lo)
