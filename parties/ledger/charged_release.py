"""Draw once: take from the store what was drawn before, charge the ledger for the rest, draw it, keep it.

What was drawn before is known by the exact values: if one of a column changed, the column is drawn anew, and so is a
single record's cell. Whoever compares two releases then sees that something changed. An account that keeps first draws
knows them by record and column alone, and nothing of a change shows.

The order is what the promise rests on. Under the store's lock, so that a second start of the same run waits and then
finds the release: look it up; charge what is absent, or be refused; draw; put it into the store; enter its digest into
the ledger; commit the store; only then does anything leave. A crash anywhere loses at most a draw that was paid and
that nobody has seen. The next attempt pays again: nothing is ever drawn twice for one charge.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from opboost.arrays import KeptCodes
from opboost.desensitize import ColumnMechanism, ReleasedColumn, desensitize
from opboost.preprocess import EncodedColumn
from opboost.rng import BitSource
from parties.errors import LedgerError
from parties.ledger.budget import Budget
from parties.ledger.drawn_cells import DrawnCells, find_cells, taken
from parties.ledger.ledger_lines import Occasion, Reuse
from parties.ledger.pricing import planned
from parties.ledger.release_ledger import Ledger
from parties.ledger.release_store import ReleaseStore
from parties.tables.record_ids import Ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A party's ledger and store, and on which occasion and terms it releases now.

    Attributes
    ----------
    ledger : Ledger
    store : ReleaseStore
    budget : Budget
    occasion : Occasion
    rng : BitSource
        Draws from seeded bits are charged as if there were no noise: whoever knows the seed can take it off.
    keeps : bool
        Whether the first draw of every record and column stays, even if the value is changed.
    note : callable
        Told, after a release, how many columns or cells were drawn and how many taken from the store.
    """

    ledger: Ledger
    store: ReleaseStore
    budget: Budget
    occasion: Occasion
    rng: BitSource
    keeps: bool = False
    note: Callable[[int, int], None] = field(default=lambda drawn, reused: None)

    def columns(
        self,
        mechanisms: Sequence[ColumnMechanism],
        encoded: Sequence[EncodedColumn],
        ids: Ids,
        *,
        may_draw: bool = True,
    ) -> Iterator[ReleasedColumn]:
        """Release whole columns, for training; each is drawn when it is asked for, all are charged before.

        Parameters
        ----------
        mechanisms, encoded : sequences of equal length
        ids : Index of str
            Of the rows, in their order.
        may_draw : bool
            False if this run has released before: then the store must hold every column.

        Raises
        ------
        LedgerError
            Before anything is drawn: over budget, or a store or ledger that cannot be trusted.
        """
        if self.keeps:
            yield from self._kept_columns(mechanisms, encoded, ids, may_draw=may_draw)
            return
        releases = planned(mechanisms, encoded, ids, is_secure=self.rng.is_secure)
        with self.store.changing():
            self.ledger.refresh()
            held = {release.cost.column: self.store.find(release.key) for release in releases}
            stored = {column: charge for column, charge in held.items() if charge is not None}
            for charge in stored.values():
                # What is damaged is refused before anything else is charged.
                self.store.column(charge)
            absent = [release for release in releases if release.cost.column not in stored]
            if absent and not may_draw:
                raise LedgerError(
                    f"this run has released before, and for {len(absent)} of its {len(releases)} columns the store "
                    "holds no release that fits: data, ids, schema or mechanism were changed, or the store was. "
                    "Drawing anew is another release: choose another run_id. Nothing was released"
                )
            reuses = {column: Reuse((charge,), len(ids)) for column, charge in stored.items()}
            new = iter(self.ledger.charge(absent, reuses, self.occasion, self.budget))
            contents = {}
            for mechanism, column in zip(mechanisms, encoded, strict=True):
                name = mechanism.schema.name
                if name in stored:
                    yield _released(mechanism, self.store.column(stored[name]))
                    continue
                number = next(new)
                codes = _codes_of(desensitize(mechanism, column, rng=self.rng.fork(name)))
                contents[number] = self.store.put(number, codes)
                yield _released(mechanism, codes)
            self.ledger.note_stored(contents)
        self.note(len(absent), len(reuses))

    def records(
        self, mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids
    ) -> list[ReleasedColumn]:
        """Release single records, for prediction: whoever was answered before gets the same answer again.

        Parameters
        ----------
        mechanisms, encoded : sequences of equal length
        ids : Index of str
            Of the rows; one that comes twice is drawn once.

        Raises
        ------
        LedgerError
            As for `columns`.
        """
        with self.store.changing():
            cells = self._cells(mechanisms, encoded, ids)
            released = list(self._drawn(cells, mechanisms, encoded))
        self.note(sum(len(c.new) for c in cells), sum(c.n_found for c in cells))
        return released

    def _kept_columns(
        self, mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids, *, may_draw: bool
    ) -> Iterator[ReleasedColumn]:
        """Release whole columns of which every record keeps its first draw."""
        with self.store.changing():
            cells = self._cells(mechanisms, encoded, ids)
            n_absent = sum(len(c.new) > 0 for c in cells)
            if n_absent and not may_draw:
                raise LedgerError(
                    f"this run has released before, and for {n_absent} of its {len(cells)} columns the store lacks the "
                    "draws of some records: ids, schema or mechanism were changed, or the store was. Drawing them is "
                    "another release: choose another run_id. Nothing was released"
                )
            yield from self._drawn(cells, mechanisms, encoded)
        self.note(n_absent, len(cells) - n_absent)

    def _cells(
        self, mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn], ids: Ids
    ) -> list[DrawnCells]:
        """Which cells were drawn before, in this process or another one."""
        self.ledger.refresh()
        return find_cells(mechanisms, encoded, ids, self.store, is_secure=self.rng.is_secure, keeps=self.keeps)

    def _drawn(
        self, cells: Sequence[DrawnCells], mechanisms: Sequence[ColumnMechanism], encoded: Sequence[EncodedColumn]
    ) -> Iterator[ReleasedColumn]:
        """Charge all cells that are new; then draw and keep them, column by column as they are asked for."""
        reuses = {c.column: c.reuse for c in cells if c.n_found}
        charged = [c.release for c in cells if len(c.new)]
        numbers = iter(self.ledger.charge(charged, reuses, self.occasion, self.budget))
        contents = {}
        for c, mechanism, column in zip(cells, mechanisms, encoded, strict=True):
            drawn: KeptCodes = np.empty(0, np.int8)
            if len(c.new):
                number = next(numbers)
                drawn = _codes_of(desensitize(mechanism, taken(column, c.new), rng=self.rng))
                contents[number] = self.store.put(number, drawn, family=c.release.family, names=c.names_of_new)
            yield _released(mechanism, c.complete(drawn))
        self.ledger.note_stored(contents)


@contextmanager
def open_ledger_and_store(path: Path) -> Iterator[tuple[Ledger, ReleaseStore]]:
    """Open the ledger at `path` and the store beside it, both verified; begin them where neither is there."""
    with Ledger(path) as ledger, ReleaseStore(ledger) as store:
        yield ledger, store


def _codes_of(released: ReleasedColumn) -> KeptCodes:
    """A released column as one array, a missing cell as -1."""
    return np.where(released.is_missing, -1, released.codes)


def _released(mechanism: ColumnMechanism, codes: KeptCodes) -> ReleasedColumn:
    """The inverse of `_codes_of`."""
    is_missing = codes < 0
    return ReleasedColumn(mechanism.schema, np.where(is_missing, 0, codes), is_missing)
