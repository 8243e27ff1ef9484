"""Rehearsals: what is done for new cells is done for those that were drawn before, too, and undone or thrown away.

Who may ask for single records sees how long the answer takes. If a record that was drawn before took less reading,
drawing or writing than a new one, that would tell whether it was released to somebody else. So a release that hides
reuse reads a stored cell for each that is not stored, draws for all records, charges and stores columns of which
nothing is new, and writes what it wrote in any case. None of this is kept, or leaves the party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np
from Crypto.Random import get_random_bytes

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

# In place of a charge, where nothing is due.
NO_CHARGE = 0


def rehearse_look(cells: CellStore, family: str, block: Block, c: int, known: Found) -> None:
    """Where no cell of a column is stored, read as many, where they would stand in its first set of records."""
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
    """Charge the columns of which no cell is new, and enter a reuse of those that have none here, and undo it.

    Limits that would be exceeded are passed over.
    """
    n_names = sum(len(block["names"]) for block in blocks)
    names, unknown = kept_set((block["names"] for block in blocks), n_names), _unknown(n_names)
    offers = [one.release for one in cells if not one.n_new]
    others = dict.fromkeys({one.release.cost.column for one in cells} - set(reuses), Reuse((), 1))
    with ledger.undone():
        with suppress(OverBudget):
            ledger.sums.balances.check([priced(offer, names).cost for offer in offers], budget)
        releases = [priced(offer, unknown) for offer in offers]
        for release, number in zip(releases, ledger.charge(releases, others, occasion, Budget()), strict=True):
            ledger.cells.put_key(number, release.family, bytes(32))


def rehearse_store(ledger: Ledger, cells: Sequence[DueCells], block: Block, new_sets: Sequence[NameSet]) -> None:
    """Store what was drawn before once more, and a set of names unless new cells needed new ones, and undo it."""
    store, order = ledger.cells, block["order"].astype(np.intp)
    with ledger.undone():
        if new_sets:
            stored = new_sets[0]
            store.names.put_members(block["names"][_is_drawn(cells, block)], NO_CHARGE)
        else:
            stored = store.names.put(_unknown(len(block["names"])))
        for c, one in enumerate(cells):
            if one.is_drawn:
                codes, exact = block[f"{c}.codes"].take(order), block[f"{c}.exact"].take(order)
                store.put(NO_CHARGE, one.release.family, stored, codes, exact)
                store.n_drawn(NO_CHARGE)
                store.remove_keys([NO_CHARGE])


def _unknown(n_names: int) -> Names:
    """So many names that no record has: the set of those that were asked for may be stored, and would not be again."""
    return np.sort(np.frombuffer(get_random_bytes(n_names * NAME_BYTES), NAME))


def _is_drawn(cells: Sequence[DueCells], block: Block) -> Mask:
    """Which names of a block have no new cell in any column."""
    found = np.ones(len(block["names"]), np.bool_)
    for c, one in enumerate(cells):
        if not one.is_drawn:
            found &= block.get(f"{c}.due", np.full(len(found), NEW)) == DRAWN
    return found
