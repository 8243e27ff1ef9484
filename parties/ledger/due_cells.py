"""What of a block is due to be drawn, under which charges, and the drawing of it, here or at a cluster process."""

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

Run = Callable[[Callable[[Block], None], Sequence[Block]], None]
"""Calls a function on every block, here or on a cluster."""


def here(draw: Callable[[Block], None], blocks: Sequence[Block]) -> None:
    """Call a function on every block in this process."""
    for block in blocks:
        draw(block)


# What a cell is due to, in place of a line of the ledger: nothing, since it was drawn; or a charge that is to be made.
DRAWN, NEW = 0, -1

# What cells that are due to the same are drawn under; with `of_all`, others are drawn with them and thrown away.
ORDER = np.dtype([("due", "<i8"), ("charge", "<i8"), ("key", "V32"), ("is_secure", "?"), ("of_all", "?")])


@dataclass(frozen=True, slots=True)
class DueCells:
    """One column of all blocks: what is to be drawn, and what was.

    Attributes
    ----------
    release : ChargedColumn
        Of the records that are to be charged.
    n_found : int
        Cells that were drawn before.
    charges : tuple of int
        What paid for these.
    unfinished : tuple of (int, bytes)
        Earlier charges with their keys of which something is to be drawn.
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
    """Draw what is due in a block; again and wherever this runs, the same codes.

    Every charge draws in the order of the records' names, from bits named after these and after the exact codes.
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
        for one in orders:
            rows = rows_due(block, c, int(one["due"]))
            asked = slice(None) if one["of_all"] else rows
            own = order[asked]
            if len(own):
                own_exact = exact.take(own)
                label = of_all.copy() if isinstance(asked, slice) else hashlib.sha256(names[rows])
                label.update(f"{one['charge']} {exact.dtype} ".encode())
                label.update(own_exact)
                rng = BitSource(one["key"].tobytes(), is_secure=bool(one["is_secure"])).fork(label.hexdigest())
                drawn = desensitize(mechanism, encoded_column(own_exact), rng=rng).marked
                codes = codes.astype(np.result_type(codes, drawn), copy=False)
                codes[order[rows]] = drawn[rows] if one["of_all"] else drawn
        block[f"{c}.codes"] = codes


def due_of(known: Found, block: Block, pending: Sequence[tuple[int, bytes, KeySet]]) -> NDArray[np.signedinteger]:
    """What each cell is due to: nothing, an earlier charge of its record that it was not drawn under, or a new one."""
    kind = np.int64 if pending else np.int8
    due = np.where(known.codes == NOT_DRAWN, kind(NEW), kind(DRAWN))
    for charge, _, members in pending:
        is_paid = is_member(block["names"], members)
        for rows in known.drawn_under.get(charge, ()):
            is_paid[rows] = False
        due[is_paid & (due == NEW)] = charge
    return due


def note_due(block: Block, c: int, codes: KeptCodes, due: NDArray[np.signedinteger]) -> None:
    """Tell a block what of a column was found, by row, and what is due, by name; both are absent if all is new."""
    for entry in (f"{c}.found", f"{c}.due", f"{c}.orders"):
        block.pop(entry, None)
    if len(due) and (due == NEW).all():
        return
    is_drawn = (due == DRAWN).all()
    block[f"{c}.codes" if is_drawn else f"{c}.found"] = by_row(block, codes)
    block[f"{c}.due"] = due[:0] if is_drawn else due


def rows_due(block: Block, c: int, value: int) -> slice | NDArray[np.intp]:
    """Which names have a cell that is due to this."""
    due = block.get(f"{c}.due")
    if due is None:
        return slice(None) if value == NEW else slice(0)
    rows = np.flatnonzero(due == value)
    return slice(None) if 0 < len(rows) == len(due) else rows


def which_rows(rows: slice | NDArray[np.intp]) -> str:
    """A name for some rows of a block."""
    return str(rows) if isinstance(rows, slice) else hashlib.sha256(rows).hexdigest()
