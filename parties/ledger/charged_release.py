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

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize
from opboost.preprocess import EncodedColumn
from opboost.rng import BitSource
from parties.errors import LedgerError
from parties.ledger.budget import Budget
from parties.ledger.cell_store import NOT_DRAWN, Found, NameSet
from parties.ledger.ledger_lines import Occasion, Release, Reuse
from parties.ledger.pricing import priced, unpriced
from parties.ledger.release_ledger import Ledger
from parties.tables.blocks import Block, encoded_column, exact_codes, record_keys, record_names
from parties.tables.key_sets import KeySet, RecordKeys, is_member, kept_set
from parties.tables.record_ids import Ids

Run = Callable[[Callable[[Block], None], Sequence[Block]], None]
"""Calls a function on every block, here or on a cluster."""


def here(draw: Callable[[Block], None], blocks: Sequence[Block]) -> None:
    """Call a function on every block in this process."""
    for block in blocks:
        draw(block)


# What a cell is due to, in place of a line of the ledger: nothing, since it was drawn; or a charge that is to be made.
_DRAWN, _NEW = 0, -1

_ORDER = np.dtype([("due", "<i8"), ("charge", "<i8"), ("key", "V32"), ("is_secure", "?")])


@dataclass(frozen=True, slots=True)
class DueCells:
    """One column of all blocks: what is to be drawn, and what was.

    Attributes
    ----------
    release : Release
        Of the records that are to be charged.
    n_found : int
        Cells that were drawn before.
    charges : tuple of int
        What paid for these.
    unfinished : tuple of (int, bytes)
        Earlier charges with their keys of which something is to be drawn.
    """

    release: Release
    n_found: int
    charges: tuple[int, ...]
    unfinished: tuple[tuple[int, bytes], ...]

    @property
    def n_new(self) -> int:
        """Records that are to be charged."""
        return len(self.release.cost.records)

    @property
    def is_drawn(self) -> bool:
        """Whether every cell was drawn before."""
        return not self.n_new and not self.unfinished


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

    def look_up(self, mechanisms: Sequence[ColumnMechanism], blocks: Sequence[Block]) -> list[DueCells]:
        """Find out, column by column, what of some blocks is to be drawn; each block is told.

        Raises
        ------
        LedgerError
            If a stored draw is not what the ledger says was drawn.
        """
        cells, found, sets = self.ledger.cells, [], _KeySets()
        located = [cells.locate(block["names"]) for block in blocks]
        keys_of = [record_keys(block["names"]) for block in blocks]
        for c, mechanism in enumerate(mechanisms):
            offer = unpriced(mechanism, is_secure=self.rng.is_secure)
            pending = [(charge, key, self.ledger.records_of(charge)) for charge, key in cells.keys(offer.family)]
            n_found, paid, due_to, selected = 0, set[int](), set[int](), []
            for block, hits, keys in zip(blocks, located, keys_of, strict=True):
                known = cells.find(offer.family, hits, block[f"{c}.exact"][block["order"]], keeps=self.keeps)
                due = _due(known, keys, pending)
                _note_due(block, c, known.codes, due)
                n_found += int((due == _DRAWN).sum())
                paid.update(known.charges)
                due_to.update(np.unique(due[due > 0]).tolist())
                selected.append(keys[due == _NEW])
            unfinished = tuple((charge, key) for charge, key, _ in pending if charge in due_to)
            found.append(DueCells(priced(offer, sets.of(selected)), n_found, tuple(sorted(paid)), unfinished))
        return found

    def release(
        self, mechanisms: Sequence[ColumnMechanism], blocks: Sequence[Block], *, may_draw: bool = True, run: Run = here
    ) -> list[DueCells]:
        """Release columns of some records; afterwards every block has the codes of each.

        Parameters
        ----------
        mechanisms : sequence of ColumnMechanism
        blocks : sequence of Block
            With names and exact codes; no record is in two of them.
        may_draw : bool
            False if this run has released before: then all cells must be stored.
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
            with self.ledger.changing():
                cells = self.look_up(mechanisms, blocks)
                if not may_draw and (absent := sum(not one.is_drawn for one in cells)):
                    raise LedgerError(
                        f"this run has released before, and for {absent} of its {len(cells)} columns the ledger lacks "
                        "the draws of some records: data, ids, schema or mechanism were changed. Drawing them is "
                        "another release: choose another run_id. Nothing was released"
                    )
                orders = self._charge(cells, notes_reuse=first is None)
            first = first or cells
            for c, own in enumerate(orders):
                for block in blocks if len(own) else ():
                    block[f"{c}.orders"] = own
            if any(map(len, orders)):
                run(partial(draw_due, tuple(mechanisms)), blocks)
            is_stored = self._store(cells, orders, blocks)
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
        found = self.release(mechanisms, [block])
        columns = [
            ReleasedColumn.of_marked(mechanism.schema, block[f"{c}.codes"][place])
            for c, mechanism in enumerate(mechanisms)
        ]
        return columns, found

    def _charge(self, cells: Sequence[DueCells], *, notes_reuse: bool) -> list[NDArray[np.void]]:
        """Charge what is new, with keys; returns per column what each cell is drawn under."""
        reuses = {c.release.cost.column: Reuse(c.charges, c.n_found) for c in cells if c.n_found and notes_reuse}
        charged = [c for c in cells if c.n_new]
        numbers = self.ledger.charge([c.release for c in charged], reuses, self.occasion, self.budget)
        keys = [self.rng.words(4).tobytes() for _ in numbers]
        for one, number, key in zip(charged, numbers, keys, strict=True):
            self.ledger.cells.put_key(number, one.release.family, key)
        made = iter(zip(numbers, keys, strict=True))
        secure = self.rng.is_secure
        return [
            np.array(
                [
                    *((charge, charge, key, secure) for charge, key in c.unfinished),
                    *((_NEW, *next(made), secure) for _ in range(c.n_new > 0)),
                ],
                _ORDER,
            )
            for c in cells
        ]

    def _store(self, cells: Sequence[DueCells], orders: Sequence[NDArray[np.void]], blocks: Sequence[Block]) -> bool:
        """Keep what was drawn, and remove the keys; False if somebody else has drawn under one of them meanwhile."""
        wanted = [
            (c, int(order["due"]), int(order["charge"]), order["key"].tobytes())
            for c, own in enumerate(orders)
            for order in own
        ]
        if not wanted:
            return True
        store = self.ledger.cells
        with self.ledger.changing():
            for c, _, charge, key in wanted:
                if (charge, key) not in store.keys(cells[c].release.family):
                    return False
            for block in blocks:
                names, order = block["names"], block["order"]
                known: dict[str, NameSet] = {}
                for c, value, charge, _ in wanted:
                    rows = _rows_due(block, c, value)
                    if not len(own := order[rows]):
                        continue
                    which = str(rows) if isinstance(rows, slice) else hashlib.sha256(rows).hexdigest()
                    known[which] = known.get(which) or store.put_names(names[rows])
                    codes, exact = block[f"{c}.codes"][own], block[f"{c}.exact"][own]
                    store.put(charge, cells[c].release.family, known[which], codes, exact)
            for c, _, charge, _ in wanted:
                # The noise of the others comes from another key, since this one takes the noise off these.
                if store.n_drawn(charge) < len(self.ledger.records_of(charge)):
                    store.put_key(charge, cells[c].release.family, self.rng.words(4).tobytes())
                else:
                    store.remove_keys([charge])
        self.ledger.checkpoint()
        return True


class _KeySets:
    """Sets of records that are to be charged; those of columns that are alike are one."""

    def __init__(self) -> None:
        self._known: dict[bytes, KeySet] = {}

    def of(self, pieces: Sequence[RecordKeys]) -> KeySet:
        digest = hashlib.sha256()
        for piece in pieces:
            digest.update(piece)
        if digest.digest() not in self._known:
            self._known[digest.digest()] = kept_set(iter(pieces), sum(map(len, pieces)))
        return self._known[digest.digest()]


def draw_due(mechanisms: Sequence[ColumnMechanism], block: Block) -> None:
    """Draw what is due in a block; again and wherever this runs, the same codes.

    Every charge draws in the order of the records' names, from bits named after these and after the exact codes.
    """
    names, order = block["names"], block["order"]
    of_all = hashlib.sha256(names)
    for c, mechanism in enumerate(mechanisms):
        if (orders := block.get(f"{c}.orders")) is None:
            continue
        exact, codes = block[f"{c}.exact"], block.get(f"{c}.found")
        codes = np.full(len(exact), NOT_DRAWN, np.int8) if codes is None else codes.copy()
        for one in orders:
            rows = _rows_due(block, c, int(one["due"]))
            own = order[rows]
            if len(own):
                label = of_all.copy() if isinstance(rows, slice) else hashlib.sha256(names[rows])
                label.update(f"{one['charge']} {exact.dtype} ".encode())
                label.update(exact[own].tobytes())
                rng = BitSource(one["key"].tobytes(), is_secure=bool(one["is_secure"])).fork(label.hexdigest())
                drawn = desensitize(mechanism, encoded_column(exact[own]), rng=rng).marked
                codes = codes.astype(np.result_type(codes, drawn), copy=False)
                codes[own] = drawn
        block[f"{c}.codes"] = codes


def _due(known: Found, keys: RecordKeys, pending: Sequence[tuple[int, bytes, KeySet]]) -> NDArray[np.int64]:
    """What each cell is due to: nothing, an earlier charge of its record that it was not drawn under, or a new one."""
    due = np.where(known.codes == NOT_DRAWN, _NEW, _DRAWN)
    for charge, _, members in pending:
        by_key, is_paid = np.argsort(keys), np.zeros(len(keys), np.bool_)
        is_paid[by_key] = is_member(keys[by_key], members)
        is_paid[known.drawn_under.get(charge, [])] = False
        due[is_paid & (due == _NEW)] = charge
    return due


def _note_due(block: Block, c: int, codes: KeptCodes, due: NDArray[np.int64]) -> None:
    """Tell a block what of a column was found, by row, and what is due, by name; both absent if all is new."""
    for entry in (f"{c}.found", f"{c}.due", f"{c}.orders"):
        block.pop(entry, None)
    if len(due) and (due == _NEW).all():
        return
    by_row = np.empty_like(codes)
    by_row[block["order"]] = codes
    if (due == _DRAWN).all():
        block[f"{c}.codes"] = by_row
    block[f"{c}.found"], block[f"{c}.due"] = by_row, due


def _rows_due(block: Block, c: int, value: int) -> slice | NDArray[np.intp]:
    """Which names have a cell that is due to this."""
    due = block.get(f"{c}.due")
    if due is None:
        return slice(None) if value == _NEW else slice(0)
    rows = np.flatnonzero(due == value)
    return slice(None) if len(rows) == len(due) else rows
