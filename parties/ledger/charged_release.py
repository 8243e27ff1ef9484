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
    Run,
    draw_due,
    due_of,
    here,
    note_due,
    rows_due,
    which_rows,
)
from parties.ledger.ledger_lines import Occasion, Reuse
from parties.ledger.name_sets import NameSet
from parties.ledger.pricing import priced, unpriced
from parties.ledger.rehearsals import NO_CHARGE, rehearse_charges, rehearse_look, rehearse_store
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
        Where keys come from. What is drawn from seeded ones is charged as if there were no noise: whoever knows the
        seed can take it off.
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
        """Find out, column by column, what of some blocks is to be drawn; each block is told.

        Raises
        ------
        LedgerError
            If a stored draw is not what the ledger says was drawn.
        """
        cells, found = self.ledger.cells, []
        # Columns of which the same records are to be charged share their set.
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
                    rehearse_look(cells, offer.family, block, c, known)
                due = due_of(known, block, pending)
                note_due(block, c, known.codes, due)
                n_found += int(np.count_nonzero(due == DRAWN))
                paid.update(known.charges)
                due_to.update(charge for charge, _, _ in pending if (due == charge).any())
                n_new += int(np.count_nonzero(due == NEW))
            unfinished = tuple((charge, key) for charge, key, _ in pending if charge in due_to)
            new = [rows_due(block, c, NEW) for block in blocks]
            which = tuple(map(which_rows, new))
            if which not in sets:
                names = (block["names"][rows] for block, rows in zip(blocks, new, strict=True))
                sets[which] = kept_set(names, n_new)
            found.append(DueCells(priced(offer, sets[which]), n_found, tuple(sorted(paid)), unfinished))
        return found

    def release(
        self,
        mechanisms: Sequence[ColumnMechanism],
        blocks: Sequence[Block],
        *,
        may_draw: bool = True,
        hides_reuse: bool = False,
        run: Run = here,
    ) -> list[DueCells]:
        """Release columns of some records; afterwards every block has the codes of each.

        Parameters
        ----------
        mechanisms : sequence of ColumnMechanism
        blocks : sequence of Block
            With names and exact codes; no record is in two of them.
        may_draw : bool
            False if this run has released before: then all cells must be stored.
        hides_reuse : bool
            Whether as much is done for cells that were drawn before as for others (`parties.ledger.rehearsals`).
        run : callable
            Draws, in every block.

        Returns
        -------
        cells : list of DueCells
            Per column, what was to be drawn at the beginning.

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
                if not may_draw and (absent := sum(not one.is_drawn for one in cells)):
                    raise LedgerError(
                        f"this run has released before, and for {absent} of its {len(cells)} columns the ledger lacks "
                        "the draws of some records: data, ids, schema or mechanism were changed. Drawing them is "
                        "another release: choose another run_id. Nothing was released"
                    )
                found = {one.release.cost.column: self._reuse(one) for one in cells if one.n_found and first is None}
                reuses = {column: reuse for column, (reuse, _) in found.items() if reuse.n_records}
                orders = self._charge(cells, blocks, reuses, hides_reuse=hides_reuse)
                others_paid = any(one.n_found or one.unfinished for one in cells)
                if first is None and self.occasion.task == "train" and others_paid:
                    n_records = sum(len(block["names"]) for block in blocks)
                    self.ledger.note_released(kept_set((one["names"] for one in blocks), n_records), self.occasion)
            # Not before the lines are there: a refused request has entered nothing, and nothing of it waits.
            self._reused.update({column: counts for column, (_, counts) in found.items()})
            first = first or cells
            for c, own in enumerate(orders):
                for block in blocks if len(own) else ():
                    block[f"{c}.orders"] = own
            if any(map(len, orders)):
                run(partial(draw_due, tuple(mechanisms)), blocks)
            is_stored = self._store(cells, orders, blocks, hides_reuse=hides_reuse)
            for c, block in product(range(len(cells)), blocks):
                block.pop(f"{c}.orders", None)
            if is_stored:
                return first

    def records(
        self, mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids
    ) -> tuple[list[ReleasedColumn], list[DueCells]]:
        """Release single records, for prediction: whoever was released before gets the same draw again.

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
        names, rows, place = np.unique(record_names(ids), return_index=True, return_inverse=True)
        block: Block = {"names": names, "order": np.arange(len(names))}
        for c, column in enumerate(encoded):
            block[f"{c}.exact"] = exact_codes(EncodedColumn(column.codes[rows], column.is_missing[rows], 0))
        found = self.release(mechanisms, [block], hides_reuse=True)
        columns = [
            ReleasedColumn.of_marked(mechanism.schema, block[f"{c}.codes"][place])
            for c, mechanism in enumerate(mechanisms)
        ]
        return columns, found

    def _charge(
        self, cells: Sequence[DueCells], blocks: Sequence[Block], reuses: Mapping[str, Reuse], *, hides_reuse: bool
    ) -> list[NDArray[np.void]]:
        """Charge what is new, with keys; returns per column what each cell is drawn under."""
        charged = [c for c in cells if c.n_new]
        numbers = self.ledger.charge([c.release for c in charged], reuses, self.occasion, self.budget)
        keys = [self._key() for _ in numbers]
        for one, number, key in zip(charged, numbers, keys, strict=True):
            self.ledger.cells.put_key(number, one.release.family, key)
        if hides_reuse:
            rehearse_charges(self.ledger, cells, blocks, reuses, self.occasion, self.budget)
        made = iter(zip(numbers, keys, strict=True))
        secure = self.rng.is_secure
        return [
            np.array(
                [
                    *((charge, charge, key, secure, hides_reuse) for charge, key in c.unfinished),
                    *((NEW, *next(made), secure, hides_reuse) for _ in range(c.n_new > 0)),
                    *((NEW, NO_CHARGE, self._key(), secure, True) for _ in range(hides_reuse and c.is_drawn)),
                ],
                ORDER,
            )
            for c in cells
        ]

    def _key(self) -> bytes:
        return self.rng.words(4).tobytes()

    def _reuse(self, cells: DueCells) -> tuple[Reuse, tuple[int, int]]:
        """What is entered of a column's cells that are used again, and how many are entered and wait for it then.

        For predictions nothing is entered until it doubles what was: nobody fills the ledger by asking again.
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
        """Keep what was drawn, and remove the keys; False if somebody else has drawn under one of them meanwhile."""
        wanted = [
            (c, int(order["due"]), int(order["charge"]), order["key"].tobytes())
            for c, own in enumerate(orders)
            for order in own
            if order["charge"] != NO_CHARGE
        ]
        if not wanted and not hides_reuse:
            return True
        store = self.ledger.cells
        with self.ledger.changing(always_writes=hides_reuse):
            last = store.names.last()
            for c, _, charge, key in wanted:
                if (charge, key) not in store.keys(cells[c].release.family):
                    return False
            for block in blocks:
                names, order = block["names"], block["order"].astype(np.intp)
                known: dict[str, NameSet] = {}
                for c, value, charge, _ in wanted:
                    rows = rows_due(block, c, value)
                    if not len(own := order[rows]):
                        continue
                    which = which_rows(rows)
                    known[which] = known.get(which) or store.names.put(names[rows])
                    codes, exact = block[f"{c}.codes"].take(own), block[f"{c}.exact"].take(own)
                    store.put(charge, cells[c].release.family, known[which], codes, exact)
                if hides_reuse:
                    rehearse_store(self.ledger, cells, block, [one for one in known.values() if one.number > last])
            for c, _, charge, _ in wanted:
                # The noise of the others comes from another key, since this one takes the noise off these.
                if store.n_drawn(charge) < self.ledger.line(charge)["n_records"]:
                    store.put_key(charge, cells[c].release.family, self._key())
                else:
                    store.remove_keys([charge])
        self.ledger.checkpoint()
        return True
