"""Rehearsals: dummy work for cells that were drawn before, so that they take as much time as new ones.

A peer that may ask for single records can measure the time of the answer. If a record that was drawn before took less
reading, drawing or writing than a new one, the time would reveal whether it was released to somebody else. So a release
that hides reuse reads a stored cell for each that is not stored, draws for all records, charges and stores columns
without new cells, and always writes. The dummy work is rolled back or thrown away, and never leaves the party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from secrets import token_bytes

import numpy as np

from opboost.arrays import Mask
from parties.errors import OverBudget
from parties.ledger.budget import Budget
from parties.ledger.cell_store import NOT_DRAWN, CellStore, Found
from parties.ledger.due_cells import DRAWN, NEW, DueCells
from parties.ledger.ledger_lines import Occasion, Reuse
from parties.ledger.name_sets import NameSet
from parties.ledger.pricing import priced
from parties.ledger.release_ledger import Ledger
from parties.tables.blocks import Block
from parties.tables.key_sets import NAME, NAME_BYTES, Names, kept_set

# Stands for the charge in the draws of a rehearsal.
NO_CHARGE = 0


def rehearse_lookup(cells: CellStore, family: str, block: Block, c: int, known: Found) -> None:
    """If no cell of a column is stored, read as many cells from the column's first set of records."""
    if (known.codes == NOT_DRAWN).all() and (hit := cells.in_first_set(family, block["names"])):
        cells.find(family, [hit], block, c, keeps=False)


def rehearse_charges(
    ledger: Ledger,
    cells: Sequence[DueCells],
    blocks: Sequence[Block],
    reuses: Mapping[str, Reuse],
    occasion: Occasion,
    budget: Budget,
) -> None:
    """Charge the columns without new cells, enter a reuse for those without one, and roll it back.

    Exceeded limits are ignored.
    """
    n_names = sum(len(block["names"]) for block in blocks)
    names, unknown = kept_set((block["names"] for block in blocks), n_names), _unknown(n_names)
    offers = [column.release for column in cells if not column.n_new]
    others = dict.fromkeys({column.release.cost.column for column in cells} - set(reuses), Reuse((), 1))
    with ledger.undone():
        with suppress(OverBudget):
            ledger.sums.balances.check([priced(offer, names).cost for offer in offers], budget)
        releases = [priced(offer, unknown) for offer in offers]
        for release, number in zip(releases, ledger.charge(releases, others, occasion, Budget()), strict=True):
            ledger.cells.put_key(number, release.family, bytes(32))


def rehearse_store(ledger: Ledger, cells: Sequence[DueCells], block: Block, new_sets: Sequence[NameSet]) -> None:
    """Store earlier draws again, and a set of names unless new cells stored one, and roll it back."""
    store, order = ledger.cells, block["order"].astype(np.intp)
    with ledger.undone():
        if new_sets:
            stored = new_sets[0]
            store.names.put_members(block["names"][_is_drawn(cells, block)], NO_CHARGE)
        else:
            stored = store.names.put(_unknown(len(block["names"])))
        for c, column in enumerate(cells):
            if column.is_drawn:
                codes, exact = block[f"{c}.codes"].take(order), block[f"{c}.exact"].take(order)
                store.put(NO_CHARGE, column.release.family, stored, codes, exact)
                store.n_drawn(NO_CHARGE)
                store.remove_keys([NO_CHARGE])


def _unknown(n_names: int) -> Names:
    """Random names that no record has: the set of the real names may be stored already, and would not be again."""
    return np.sort(np.frombuffer(token_bytes(n_names * NAME_BYTES), NAME))


def _is_drawn(cells: Sequence[DueCells], block: Block) -> Mask:
    """Mask of the names of a block that have no new cell in any column."""
    is_drawn = np.ones(len(block["names"]), np.bool_)
    for c, column in enumerate(cells):
        if not column.is_drawn:
            is_drawn &= block.get(f"{c}.due", np.full(len(is_drawn), NEW)) == DRAWN
    return is_drawn
