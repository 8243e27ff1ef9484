"""Taking over what an earlier version drew, from ``ledger.releases.sqlite`` into the ledger's file.

There, a column was stored under its charge as an array, without the names of its records: these come from the table
that it was drawn from, if its ids and exact codes still have the digests that the charge has. Single draws have names;
where first draws were kept these are the records', else they are found again from records and exact codes.

What cannot be taken over stays charged; its cells are drawn and charged anew when they are needed.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from opboost.arrays import KeptCodes, Mask
from opboost.preprocess import EncodedColumn
from parties.errors import LedgerError
from parties.ledger.ledger_lines import Fields, family_of, migrated_fields
from parties.ledger.pricing import exact_bytes
from parties.ledger.release_ledger import Ledger
from parties.storage.sqlite import beside, connect, reporting
from parties.tables.blocks import exact_codes, record_names
from parties.tables.key_sets import NAME, NAME_BYTES, Names
from parties.tables.record_ids import Ids, digest_of_ids, each_id

# Stands for an exact code that is not known; no domain goes so far.
_UNKNOWN = 1 << 30


@dataclass(frozen=True, slots=True)
class OldTable:
    """The table that an earlier version drew from.

    Attributes
    ----------
    ids : Ids
    columns : dict of str to EncodedColumn
    """

    ids: Ids
    columns: dict[str, EncodedColumn]


@dataclass(frozen=True, slots=True)
class Migrated:
    """Number of charges whose draws were migrated, and the lines of those that were not."""

    n_taken: int
    lost: tuple[int, ...]


def migrate(path: Path, table: OldTable | None) -> Migrated:
    """Take over the store of an earlier version; the file is kept under another name.

    Parameters
    ----------
    path : Path
        The ledger.
    table : OldTable, optional

    Raises
    ------
    LedgerError
        If ledger or store cannot be trusted, or there is nothing to take over. Nothing was changed.
    """
    old = beside(path, ".releases.sqlite")
    with Ledger(path, create=False, migrates=True) as ledger:
        if not old.exists() or ledger.sums.is_migrated:
            raise LedgerError(f"{path} has no {old.name} beside it that is to be taken over. Nothing was changed")
        with reporting(old), closing(connect(old, ())) as store:
            owner = store.execute("SELECT ledger FROM owner").fetchone()
            if owner is None or owner[0] != ledger.name:
                raise LedgerError(f"{old} belongs to another ledger than {path}. Restore the one. Nothing was changed")
            lost = []
            with ledger.changing() as add:
                for charge, content in ledger.sums.old_contents.items():
                    row = store.execute("SELECT content FROM drawn WHERE charge = ?", (charge,)).fetchone()
                    if row is not None and hashlib.sha256(row[0]).hexdigest() != content:
                        raise LedgerError(
                            f"{old}: the release that line {charge} charged is not the one that was drawn. Restore the "
                            "file. Nothing was changed"
                        )
                    if row is None or not _take(ledger, charge, row[0], table):
                        lost.append(charge)
                add(migrated_fields(len(ledger.sums.old_contents) - len(lost), lost))
        with reporting(old):
            old.rename(old.with_name(f"{old.name}.migrated"))
    return Migrated(len(ledger.sums.old_contents) - len(lost), tuple(lost))


def _take(ledger: Ledger, charge: int, content: bytes, table: OldTable | None) -> bool:
    """Store what an entry holds under its records' names; False if these are not known."""
    line, file = ledger.line(charge), io.BytesIO(content)
    drawn, old_names = np.load(file), np.load(file).reshape(-1).view(NAME)
    if len(old_names) and "changed_values" in line["terms"]:
        found = old_names, drawn, np.full(len(drawn), _UNKNOWN)
    elif table is None or line["column"] not in table.columns:
        return False
    else:
        column = table.columns[line["column"]]
        is_whole = not len(old_names)
        known = _whole(ledger, line, table, column, drawn) if is_whole else _single(table, column, old_names, drawn)
        if known is None:
            return False
        found = known
    names, codes, exact = found
    order = np.argsort(names)
    ledger.cells.put(charge, family_of(line), ledger.cells.names.put(names[order]), codes[order], exact[order])
    return True


def _whole(
    ledger: Ledger, line: Fields, table: OldTable, column: EncodedColumn, drawn: KeptCodes
) -> tuple[Names, KeptCodes, KeptCodes] | None:
    """A column of the records that were charged, in the order of their ids."""
    names = record_names(table.ids)
    charged = ledger.records_of(line["number"])[:]
    is_in: Mask = np.isin(names.astype(charged.dtype), charged)
    rows = np.flatnonzero(is_in)
    own = EncodedColumn(column.codes[rows], column.is_missing[rows], 0)
    is_same = digest_of_ids(table.ids[rows]) == line["ids"]
    if not is_same or hashlib.sha256(exact_bytes(own)).hexdigest() != line["data"]:
        return None
    return names[rows], drawn, exact_codes(own)


def _single(
    table: OldTable, column: EncodedColumn, old_names: Names, drawn: KeptCodes
) -> tuple[Names, KeptCodes, KeptCodes] | None:
    """Draws whose names are digests of record and exact code; those of records that the table has so still."""
    cells = dict(zip(old_names.view(f"V{NAME_BYTES}").tolist(), range(len(drawn)), strict=True))
    places = [(row, cells[name]) for row, name in enumerate(_cell_names(table.ids, column)) if name in cells]
    if len(places) < len(drawn):
        return None
    rows, at = np.array(places).T
    return record_names(table.ids)[rows], drawn[at], exact_codes(column)[rows]


def _cell_names(ids: Ids, column: EncodedColumn) -> Iterator[bytes]:
    exact = exact_bytes(column)
    for row, name in enumerate(each_id(ids)):
        cell = hashlib.sha256(name.encode()).digest() + exact[8 * row : 8 * row + 8]
        yield hashlib.sha256(cell).digest()[:NAME_BYTES]
