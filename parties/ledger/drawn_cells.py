"""Cells that were drawn before, and those that are still to be drawn, column by column.

A cell is known by its record and its exact code, so that a changed value is a cell that was never drawn. Where first
draws are kept, it is known by its record alone: a record has one cell, whatever its value.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from opboost.desensitize import ColumnMechanism
from opboost.preprocess import EncodedColumn
from parties.ledger.ledger_lines import Release, Reuse
from parties.ledger.pricing import Rows, exact_bytes, id_digests, priced, unpriced
from parties.ledger.release_store import KEY_BYTES, NAME, NOT_DRAWN, Drawn, Names, ReleaseStore
from parties.tables.record_ids import Ids


@dataclass(frozen=True, slots=True)
class _Asked:
    """The cells that rows ask for.

    Attributes
    ----------
    names : Names
        Ascending, each once.
    first : ndarray of int
        Per name, the first row that has it.
    place : ndarray of int
        Per row, which name it has.
    """

    names: Names
    first: NDArray[np.intp]
    place: NDArray[np.intp]

    @classmethod
    def of(cls, each: Names) -> Self:
        return cls(*np.unique(each, return_index=True, return_inverse=True))


@dataclass(frozen=True, slots=True)
class DrawnCells:
    """One column of the rows that are asked for.

    Attributes
    ----------
    column : str
    new : ndarray of int
        Rows whose cells are to be drawn, ascending, each cell once.
    release : Release
        What drawing them costs.
    """

    column: str
    new: NDArray[np.intp]
    release: Release
    _asked: _Asked
    _found: Drawn

    @property
    def n_found(self) -> int:
        """Cells that were drawn before."""
        return len(self._asked.names) - len(self.new)

    @property
    def reuse(self) -> Reuse:
        """What the ledger is told of them."""
        return Reuse(self._found.charges, self.n_found)

    @property
    def names_of_new(self) -> Names:
        """Of the cells of `new`, in that order."""
        return self._asked.names[self._asked.place[self.new]]

    def complete(self, drawn: KeptCodes) -> KeptCodes:
        """The codes of all rows, given those of `new`."""
        codes = self._found.codes.astype(np.result_type(self._found.codes, drawn))
        codes[self._asked.place[self.new]] = drawn
        whole: KeptCodes = codes[self._asked.place]
        return whole


def find_cells(
    mechanisms: Sequence[ColumnMechanism],
    encoded: Sequence[EncodedColumn],
    ids: Ids,
    store: ReleaseStore,
    *,
    is_secure: bool,
    keeps: bool,
) -> list[DrawnCells]:
    """Find out which cells of some columns were drawn before.

    Parameters
    ----------
    mechanisms, encoded : sequences of equal length
    ids : Index of str
        Of the rows; one may come twice.
    store : ReleaseStore
    is_secure : bool
        Whether draws are from secret bits.
    keeps : bool
        Whether a cell is known by its record alone.

    Raises
    ------
    LedgerError
        If a stored draw is not what the ledger says was drawn.
    """
    of_records = _Asked.of(record_names(ids)) if keeps else None
    records = list(id_digests(ids)) if not keeps else []
    cells, rows_of = [], _RowsOnce(ids)
    for mechanism, column in zip(mechanisms, encoded, strict=True):
        asked = of_records or _Asked.of(_cell_names(records, column))
        offer = unpriced(mechanism, is_secure=is_secure, keeps=keeps)
        found = store.answers(offer.family, asked.names)
        new = np.sort(asked.first[found.codes == NOT_DRAWN])
        release = priced(offer, taken(column, new), rows_of(new))
        cells.append(DrawnCells(mechanism.schema.name, new, release, asked, found))
    return cells


def record_names(ids: Ids) -> Names:
    """Names of cells that are known by their record alone; the ledger's key of a record is the first half of it."""
    return np.frombuffer(b"".join(digest[:KEY_BYTES] for digest in id_digests(ids)), NAME)


def taken(column: EncodedColumn, rows: NDArray[np.intp]) -> EncodedColumn:
    """Some rows of a column."""
    return EncodedColumn(column.codes[rows], column.is_missing[rows], 0)


class _RowsOnce:
    """Which records some rows are of; asked for the same rows again, the same."""

    def __init__(self, ids: Ids) -> None:
        self._ids = ids
        self._known: tuple[NDArray[np.intp], Rows] | None = None

    def __call__(self, rows: NDArray[np.intp]) -> Rows:
        if self._known is None or not np.array_equal(self._known[0], rows):
            self._known = rows, Rows.of(self._ids if len(rows) == len(self._ids) else self._ids[rows])
        return self._known[1]


def _cell_names(records: Sequence[bytes], column: EncodedColumn) -> Names:
    """Names of cells that are known by record and exact code."""
    exact = exact_bytes(column)
    digests = (hashlib.sha256(record + exact[8 * i : 8 * i + 8]).digest() for i, record in enumerate(records))
    return np.frombuffer(b"".join(digest[:KEY_BYTES] for digest in digests), NAME)
