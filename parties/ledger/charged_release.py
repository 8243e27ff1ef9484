"""Release through the privacy ledger: cells that were drawn before stay, all others are charged, drawn and stored.

::

    look up ─► charge, keys ─► draw ─► store, keys removed ─► (rank, send)
    └─── one transaction ──┘           └─ one transaction ─┘

A cell is a record's value in a column under a mechanism, in training and prediction alike. Where first draws are kept,
a record's draw stays whatever becomes of its value, and nothing of a change shows; else whoever compares two releases
sees that something changed.

The noise of a charge comes from a key that is stored with the charge. After a crash the next attempt finds charge and
key, draws the same codes and pays nothing. If it asks for other records or values than the first, their noise is
another, and nothing of the first was ever sent. Two processes that draw at once draw the same, too; the second to store
looks up again what the first has stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from opboost.desensitize import ColumnMechanism, ReleasedColumn
from opboost.preprocess import EncodedColumn
from opboost.rng import BitSource
from parties.errors import LedgerError
from parties.ledger.budget import Budget
from parties.ledger.due_cells import (
    DRAWN,
    NEW,
    ORDER,
    DueCells,
    RunBlocks,
    draw_due,
    due_of,
    note_due,
    rows_due,
    rows_key,
    run_in_process,
)
from parties.ledger.ledger_lines import Occasion, Reuse
from parties.ledger.name_sets import NameSet
from parties.ledger.pricing import priced, unpriced
from parties.ledger.rehearsals import NO_CHARGE, rehearse_charges, rehearse_lookup, rehearse_store
from parties.ledger.release_ledger import Ledger
from parties.storage.spool import ArraySpool
from parties.tables.blocks import Block, exact_codes, record_names
from parties.tables.key_sets import KeySet, kept_set
from parties.tables.record_ids import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A party's ledger, and on which occasion and terms it releases now.

    Attributes
    ----------
    ledger : Ledger
    budget : Budget
    occasion : Occasion
    rng : BitSource
        Source of the keys. Draws from a seeded one are charged as if there were no noise: whoever knows the seed can
        remove it.
    keeps : bool
        Whether the first draw of every record and column stays, even if the value is changed.
    """

    ledger: Ledger
    budget: Budget
    occasion: Occasion
    rng: BitSource
    keeps: bool = False
    _reused: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    def look_up(
        self, mechanisms: Sequence[ColumnMechanism], blocks: Sequence[Block], *, hides_reuse: bool = False
    ) -> list[DueCells]:
        """Find out, column by column, which cells of some blocks are to be drawn, and note it in the blocks.

        Raises
        ------
        LedgerError
            If a stored draw is not what the ledger says was drawn.
        """
        cells, columns = self.ledger.cells, []
        # Columns whose new cells are of the same records share the set of their names.
        sets: dict[tuple[str, ...], KeySet] = {}
        aside = ArraySpool()
        located = [[hit.put_aside(aside) for hit in cells.names.locate(block["names"])] for block in blocks]
        for c, mechanism in enumerate(mechanisms):
            offer = unpriced(mechanism, is_secure=self.rng.is_secure)
            pending = [(charge, key, self.ledger.records_of(charge)) for charge, key in cells.keys(offer.family)]
            n_found, n_new, paid, due_to = 0, 0, set[int](), set[int]()
            for block, hits in zip(blocks, located, strict=True):
                known = cells.find(offer.family, hits, block, c, keeps=self.keeps)
                if hides_reuse:
                    rehearse_lookup(cells, offer.family, block, c, known)
                due = due_of(known, block, pending)
                note_due(block, c, known.codes, due)
                n_found += int(np.count_nonzero(due == DRAWN))
                paid.update(known.charges)
                due_to.update(charge for charge, _, _ in pending if (due == charge).any())
                n_new += int(np.count_nonzero(due == NEW))
            unfinished = tuple((charge, key) for charge, key, _ in pending if charge in due_to)
            new = [rows_due(block, c, NEW) for block in blocks]
            selection = tuple(map(rows_key, new))
            if selection not in sets:
                names = (block["names"][rows] for block, rows in zip(blocks, new, strict=True))
                sets[selection] = kept_set(names, n_new)
            columns.append(DueCells(priced(offer, sets[selection]), n_found, tuple(sorted(paid)), unfinished))
        return columns

    def release(
        self,
        mechanisms: Sequence[ColumnMechanism],
        blocks: Sequence[Block],
        *,
        may_draw: bool = True,
        hides_reuse: bool = False,
        run_blocks: RunBlocks = run_in_process,
    ) -> list[DueCells]:
        """Release columns of some records, so that every block has the codes of each column.

        Parameters
        ----------
        mechanisms : sequence of ColumnMechanism
        blocks : sequence of Block
            With names and exact codes; no record is in two of them.
        may_draw : bool
            False if this run has released before: then all cells must be stored.
        hides_reuse : bool
            Whether cells that were drawn before take as much work as new ones (`parties.ledger.rehearsals`).
        run_blocks : callable
            Calls the drawing function on every block.

        Returns
        -------
        cells : list of DueCells
            Per column, the cells that were due before this call drew any.

        Raises
        ------
        LedgerError
            Before anything is drawn: over budget, or a ledger that cannot be trusted.

        Notes
        -----
        Privacy: every cell that leaves was charged, and is drawn once under ``mechanism.guarantee()``.
        """
        first: list[DueCells] | None = None
        while True:
            with self.ledger.changing(always_writes=hides_reuse):
                cells = self.look_up(mechanisms, blocks, hides_reuse=hides_reuse)
                if not may_draw and (absent := sum(not column.is_drawn for column in cells)):
                    raise LedgerError(
                        f"this run has released before, and for {absent} of its {len(cells)} columns the ledger lacks "
                        "the draws of some records: data, ids, schema or mechanism were changed. Drawing them is "
                        "another release: choose another run_id. Nothing was released"
                    )
                reused = [column for column in cells if column.n_found and first is None]
                found = {column.release.cost.column: self._reuse(column) for column in reused}
                reuses = {column: reuse for column, (reuse, _) in found.items() if reuse.n_records}
                orders = self._charge(cells, blocks, reuses, hides_reuse=hides_reuse)
                others_paid = any(column.n_found or column.unfinished for column in cells)
                if first is None and self.occasion.task == "train" and others_paid:
                    n_records = sum(len(block["names"]) for block in blocks)
                    self.ledger.note_released(kept_set((block["names"] for block in blocks), n_records), self.occasion)
            # Only after the lines are committed: a refused request enters nothing.
            self._reused.update({column: counts for column, (_, counts) in found.items()})
            first = first or cells
            for c, column_orders in enumerate(orders):
                for block in blocks if len(column_orders) else ():
                    block[f"{c}.orders"] = column_orders
            if any(map(len, orders)):
                run_blocks(partial(draw_due, tuple(mechanisms)), blocks)
            is_stored = self._store(cells, orders, blocks, hides_reuse=hides_reuse)
            for c, block in product(range(len(cells)), blocks):
                block.pop(f"{c}.orders", None)
            if is_stored:
                return first

    def records(
        self, mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids
    ) -> tuple[list[ReleasedColumn], list[DueCells]]:
        """Release single records, for prediction: a record that was released before has the same draw again.

        Parameters
        ----------
        mechanisms, encoded : sequences of equal length
        ids : Index of str
            Of the rows; one that comes twice is drawn once.

        Raises
        ------
        LedgerError
            As for `release`.
        """
        names, rows, name_of_row = np.unique(record_names(ids), return_index=True, return_inverse=True)
        block: Block = {"names": names, "order": np.arange(len(names))}
        for c, column in enumerate(encoded):
            block[f"{c}.exact"] = exact_codes(EncodedColumn(column.codes[rows], column.is_missing[rows], 0))
        cells = self.release(mechanisms, [block], hides_reuse=True)
        columns = [
            ReleasedColumn.of_marked(mechanism.schema, block[f"{c}.codes"][name_of_row])
            for c, mechanism in enumerate(mechanisms)
        ]
        return columns, cells

    def _charge(
        self, cells: Sequence[DueCells], blocks: Sequence[Block], reuses: Mapping[str, Reuse], *, hides_reuse: bool
    ) -> list[NDArray[np.void]]:
        """Charge the new cells and store a key per charge; returns per column the drawing orders."""
        charged = [c for c in cells if c.n_new]
        numbers = self.ledger.charge([c.release for c in charged], reuses, self.occasion, self.budget)
        keys = [self._key() for _ in numbers]
        for column, number, key in zip(charged, numbers, keys, strict=True):
            self.ledger.cells.put_key(number, column.release.family, key)
        if hides_reuse:
            rehearse_charges(self.ledger, cells, blocks, reuses, self.occasion, self.budget)
        new_charges = iter(zip(numbers, keys, strict=True))
        secure = self.rng.is_secure
        return [
            np.array(
                [
                    *((charge, charge, key, secure, hides_reuse) for charge, key in c.unfinished),
                    *((NEW, *next(new_charges), secure, hides_reuse) for _ in range(c.n_new > 0)),
                    *((NEW, NO_CHARGE, self._key(), secure, True) for _ in range(hides_reuse and c.is_drawn)),
                ],
                ORDER,
            )
            for c in cells
        ]

    def _key(self) -> bytes:
        return self.rng.words(4).tobytes()

    def _reuse(self, cells: DueCells) -> tuple[Reuse, tuple[int, int]]:
        """The ledger entry for a column's reused cells, and how many reuses are then entered and waiting.

        For predictions an entry waits until it doubles the entered number, so that repeated requests do not fill the
        ledger.
        """
        entered, waiting = self._reused.get(cells.release.cost.column, (0, 0))
        waiting += cells.n_found
        if self.occasion.task == "predict" and waiting < entered:
            return Reuse(cells.charges, 0), (entered, waiting)
        return Reuse(cells.charges, waiting), (entered + waiting, 0)

    def _store(
        self,
        cells: Sequence[DueCells],
        orders: Sequence[NDArray[np.void]],
        blocks: Sequence[Block],
        *,
        hides_reuse: bool,
    ) -> bool:
        """Store the draws and remove their keys; False if another process has stored draws under one of them."""
        drawn = [
            (c, int(order["due"]), int(order["charge"]), order["key"].tobytes())
            for c, column_orders in enumerate(orders)
            for order in column_orders
            if order["charge"] != NO_CHARGE
        ]
        if not drawn and not hides_reuse:
            return True
        store = self.ledger.cells
        with self.ledger.changing(always_writes=hides_reuse):
            last = store.names.last()
            for c, _, charge, key in drawn:
                if (charge, key) not in store.keys(cells[c].release.family):
                    return False
            for block in blocks:
                names, order = block["names"], block["order"].astype(np.intp)
                stored: dict[str, NameSet] = {}
                for c, value, charge, _ in drawn:
                    rows = rows_due(block, c, value)
                    if not len(own := order[rows]):
                        continue
                    selection = rows_key(rows)
                    stored[selection] = stored.get(selection) or store.names.put(names[rows])
                    codes, exact = block[f"{c}.codes"].take(own), block[f"{c}.exact"].take(own)
                    store.put(charge, cells[c].release.family, stored[selection], codes, exact)
                if hides_reuse:
                    new_sets = [name_set for name_set in stored.values() if name_set.number > last]
                    rehearse_store(self.ledger, cells, block, new_sets)
            for c, _, charge, _ in drawn:
                # The charge's other cells get a new key: the old one would remove the noise of the stored draws.
                if store.n_drawn(charge) < self.ledger.line(charge)["n_records"]:
                    store.put_key(charge, cells[c].release.family, self._key())
                else:
                    store.remove_keys([charge])
        self.ledger.checkpoint()
        return True
