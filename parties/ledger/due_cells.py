"""Cells of a block that are due to be drawn, the charges that they are due to, and the drawing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import ColumnMechanism, desensitize
from opboost.rng import BitSource
from parties.ledger.cell_store import NOT_DRAWN, Found
from parties.ledger.ledger_lines import ChargedColumn
from parties.tables.blocks import Block, by_row, encoded_column
from parties.tables.key_sets import KeySet, is_member

RunBlocks = Callable[[Callable[[Block], None], Sequence[Block]], None]
"""Calls a function on every block, in this process or on a cluster."""


def run_in_process(draw: Callable[[Block], None], blocks: Sequence[Block]) -> None:
    """Call a function on every block in the calling process."""
    for block in blocks:
        draw(block)


# The charge that a cell is due to is a line number of the ledger, or one of these: none, since the cell was drawn; or
# a charge that is still to be made.
DRAWN, NEW = 0, -1

# An order to draw the cells that are due to one charge. With `of_all`, all other cells of the column are drawn too and
# thrown away, so that the time does not show how many were due.
ORDER = np.dtype([("due", "<i8"), ("charge", "<i8"), ("key", "V32"), ("is_secure", "?"), ("of_all", "?")])


@dataclass(frozen=True, slots=True)
class DueCells:
    """One column of all blocks: how many cells were drawn, and under which charges the others are due.

    Attributes
    ----------
    release : ChargedColumn
        Of the records that are to be charged.
    n_found : int
        Cells that were drawn before.
    charges : tuple of int
        Ledger lines that charged those.
    unfinished : tuple of (int, bytes)
        Earlier charges, with their keys, that have cells still to be drawn.
    """

    release: ChargedColumn
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


def draw_due(mechanisms: Sequence[ColumnMechanism], block: Block) -> None:
    """Draw the due cells of a block; a repetition draws the same codes, in any process.

    Every charge draws in the order of the records' names. Its bits come from its key, the names and the exact codes.
    """
    # Gathers by numbers of another type, or by indexing, take twice as long.
    names, order = block["names"], block["order"].astype(np.intp)
    of_all = hashlib.sha256(names)
    for c, mechanism in enumerate(mechanisms):
        orders, due = block.get(f"{c}.orders"), block.get(f"{c}.due")
        if orders is None or (due is not None and not len(due) and not orders["of_all"].any()):
            continue
        exact, codes = block[f"{c}.exact"], block.get(f"{c}.found", block.get(f"{c}.codes"))
        codes = np.full(len(exact), NOT_DRAWN, np.int8) if codes is None else codes.copy()
        for draw_order in orders:
            rows = rows_due(block, c, int(draw_order["due"]))
            drawn_rows = slice(None) if draw_order["of_all"] else rows
            own = order[drawn_rows]
            if len(own):
                own_exact = exact.take(own)
                label = of_all.copy() if isinstance(drawn_rows, slice) else hashlib.sha256(names[rows])
                label.update(f"{draw_order['charge']} {exact.dtype} ".encode())
                label.update(own_exact)
                bits = BitSource(draw_order["key"].tobytes(), is_secure=bool(draw_order["is_secure"]))
                rng = bits.fork(label.hexdigest())
                drawn = desensitize(mechanism, encoded_column(own_exact), rng=rng).marked
                codes = codes.astype(np.result_type(codes, drawn), copy=False)
                codes[order[rows]] = drawn[rows] if draw_order["of_all"] else drawn
        block[f"{c}.codes"] = codes


def due_of(known: Found, block: Block, pending: Sequence[tuple[int, bytes, KeySet]]) -> NDArray[np.signedinteger]:
    """The charge that each cell is due to: `DRAWN`, an earlier charge under which it was not drawn, or `NEW`."""
    kind = np.int64 if pending else np.int8
    due = np.where(known.codes == NOT_DRAWN, kind(NEW), kind(DRAWN))
    for charge, _, members in pending:
        is_paid = is_member(block["names"], members)
        for rows in known.drawn_under.get(charge, ()):
            is_paid[rows] = False
        due[is_paid & (due == NEW)] = charge
    return due


def note_due(block: Block, c: int, codes: KeptCodes, due: NDArray[np.signedinteger]) -> None:
    """Note in a block a column's found codes, by row, and the due charges, by name; neither if all cells are new."""
    for entry in (f"{c}.found", f"{c}.due", f"{c}.orders"):
        block.pop(entry, None)
    if len(due) and (due == NEW).all():
        return
    is_drawn = (due == DRAWN).all()
    block[f"{c}.codes" if is_drawn else f"{c}.found"] = by_row(block, codes)
    block[f"{c}.due"] = due[:0] if is_drawn else due


def rows_due(block: Block, c: int, value: int) -> slice | NDArray[np.intp]:
    """Positions of the names whose cell is due to this charge."""
    due = block.get(f"{c}.due")
    if due is None:
        return slice(None) if value == NEW else slice(0)
    rows = np.flatnonzero(due == value)
    return slice(None) if 0 < len(rows) == len(due) else rows


def rows_key(rows: slice | NDArray[np.intp]) -> str:
    """A dictionary key for a selection of rows."""
    return str(rows) if isinstance(rows, slice) else hashlib.sha256(rows).hexdigest()
