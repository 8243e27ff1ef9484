"""Store of drawn cells in the ledger's file, so that no cell is drawn twice.

A cell is a record's value in a column under a mechanism. The draws of one charge for the same records are stored
together: the records' names, ascending, and per column the released and the exact code of each. All of it is private to
its owner. Charges, keys and draws are in one file and change in one transaction.

==============  ======================================================================================
``name_sets``   records that were drawn together: digests and first names of pieces of `PIECE` names
``members``     positions of the names in small sets; large sets are searched by their pieces
``draws``       per charge and set, digests of the pieces of codes; the ledger has a digest of these
``pieces``      `PIECE` names, or `CODES` codes (`EARLIER_CODES` of an earlier version), by their digest
``draw_keys``   keys of charges with cells that are still to be drawn
==============  ======================================================================================

A key is kept from its charge until all charged cells are drawn and stored. Every process that draws in between uses it,
and so draws the same.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from parties.errors import LedgerError
from parties.ledger.ledger_lines import Fields, family_of
from parties.ledger.name_sets import NAME_TABLES, PIECE, Hit, NameSet, NameSets
from parties.tables.blocks import Block
from parties.tables.key_sets import NAME_BYTES, Names

if TYPE_CHECKING:
    import pyarrow as pa

# Codes of a column per piece, the unit of reading and verifying; and in an earlier version, whose smaller pieces took
# twice as long to pack. The ledger's digest of a draw shows which size its pieces have.
CODES, EARLIER_CODES = 1 << 14, 1 << 12

# The code of a cell that was not drawn; a missing cell has -1.
NOT_DRAWN = -2

CELL_TABLES = (
    *NAME_TABLES,
    "CREATE TABLE IF NOT EXISTS draws (number INTEGER PRIMARY KEY, charge INTEGER, names INTEGER, family BLOB, "
    "places BLOB, UNIQUE (names, family, charge))",
    "CREATE TABLE IF NOT EXISTS draw_keys (charge INTEGER PRIMARY KEY, family BLOB, key BLOB)",
)


class Contents(Protocol):
    """Interface of a ledger for its cell store: the lines about stored cells."""

    @property
    def path(self) -> Path: ...
    @property
    def n_stored(self) -> int: ...
    def content(self, charge: int, names: str) -> str | None: ...
    def line(self, number: int) -> Fields: ...
    def note_stored(self, charge: int, names: str, content: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Found:
    """The stored draws of one column for some records.

    Attributes
    ----------
    codes : ndarray of signed integers
        Per name; `NOT_DRAWN` where no draw can be used again, a missing cell as -1.
    charges : tuple of int
        Ledger lines that charged these codes.
    drawn_under : dict of int to list of ndarray of int
        Positions of the names that were drawn at each charge, also where the draw cannot be used again.
    """

    codes: KeptCodes
    charges: tuple[int, ...]
    drawn_under: dict[int, list[NDArray[np.integer]]]


class CellStore:
    """The drawn cells of a ledger."""

    def __init__(self, ledger: Contents, database: sqlite3.Connection) -> None:
        self.names = NameSets(ledger.path, database)
        self._ledger, self._database = ledger, database

    def find(self, family: str, hits: Sequence[Hit], block: Block, c: int, *, keeps: bool) -> Found:
        """Find the stored draws of a column for located records; the first of several draws counts.

        Parameters
        ----------
        family : str
        hits : sequence of Hit
        block : Block
        c : int
            Number of the column.
        keeps : bool
            Whether a draw from another exact code is used again.

        Raises
        ------
        LedgerError
            If a draw is not what the ledger says was drawn.
        """
        exact, order = block[f"{c}.exact"], block["order"]
        codes: KeptCodes = np.full(len(exact), NOT_DRAWN, np.int8)
        charges: set[int] = set()
        drawn_under: dict[int, list[NDArray[np.integer]]] = {}
        draws = [
            (charge, digest, places, hit)
            for hit in hits
            for charge, digest, places in self._database.execute(
                "SELECT charge, digest, draws.places FROM draws JOIN name_sets "
                "ON name_sets.number = draws.names WHERE names = ? AND family = ?",
                (hit.names, _short(family)),
            )
        ]
        for charge, digest, places, hit in sorted(draws, key=lambda draw: draw[0]):
            n_codes = self._check(charge, _short(family), digest, places)
            found, at = hit.rows[:], hit.places[:]
            drawn_under.setdefault(charge, []).append(found)
            # A slice for a whole block: it is faster than an index per row.
            rows: slice | NDArray[np.integer] = slice(None) if len(found) == len(exact) else found
            is_open = codes[rows] == NOT_DRAWN
            if not is_open.any():
                continue
            if not is_open.all():
                rows, at = found[is_open], at[is_open]
            drawn, was = self._codes(places, n_codes, at)
            serves = (was == exact.take(order[rows])) | keeps
            if serves.any():
                charges.add(charge)
            codes = codes.astype(np.result_type(codes, drawn), copy=False)
            codes[rows] = np.where(serves, drawn, NOT_DRAWN)
        return Found(codes, tuple(sorted(charges)), drawn_under)

    def in_first_set(self, family: str, names: Names) -> Hit | None:
        """A made-up hit for a rehearsal: ascending names placed in the first set drawn of a column; None without one.

        Names are digests, so they are placed evenly over the set.
        """
        ask = "SELECT names, length FROM draws JOIN name_sets ON name_sets.number = names WHERE family = ? "
        found = self._database.execute(f"{ask} ORDER BY draws.number LIMIT 1", (_short(family),)).fetchone()
        if found is None or not len(names):
            return None
        begins = np.ascontiguousarray(names).view(">u4").reshape(len(names), -1)[:, 0].astype(np.int64)
        return Hit(found[0], np.arange(len(names)), begins * found[1] >> 32)

    def put(self, charge: int, family: str, names: NameSet, codes: KeptCodes, exact: KeptCodes) -> None:
        """Store the draws of a charge for a set of records, and enter their digest into the ledger."""
        pieces = (_packed(codes[i : i + CODES], exact[i : i + CODES]) for i in range(0, len(codes), CODES))
        places = b"".join(map(self.names.put_piece, pieces))
        self._database.execute(
            "INSERT INTO draws (charge, names, family, places) VALUES (?, ?, ?, ?)",
            (charge, names.number, _short(family), places),
        )
        self._ledger.note_stored(charge, names.digest.hex(), _content(names.digest, places, CODES))

    def put_key(self, charge: int, family: str, key: bytes) -> None:
        """Keep the key of a charge until all its cells are drawn."""
        self._database.execute("INSERT OR REPLACE INTO draw_keys VALUES (?, ?, ?)", (charge, _short(family), key))

    def keys(self, family: str) -> list[tuple[int, bytes]]:
        """A family's charges with cells that are still to be drawn, and their keys."""
        return self._database.execute(
            "SELECT charge, key FROM draw_keys WHERE family = ? ORDER BY charge", (_short(family),)
        ).fetchall()

    def remove_keys(self, charges: Iterable[int]) -> None:
        """Delete keys, with which noise could be removed. SQLite overwrites them with zeros."""
        self._database.executemany("DELETE FROM draw_keys WHERE charge = ?", ((charge,) for charge in charges))

    def n_drawn(self, charge: int) -> int:
        """Number of records that were drawn at a charge."""
        ask = "SELECT SUM(length) FROM draws JOIN name_sets ON name_sets.number = draws.names WHERE charge = ?"
        return self._database.execute(ask, (charge,)).fetchone()[0] or 0

    def check(self) -> None:
        """Compare the number of stored draws and names with the ledger; done whenever a ledger is opened.

        Raises
        ------
        LedgerError
            If draws, names or keys are lost.
        """
        counts = self._database.execute(
            "SELECT (SELECT COUNT(*) FROM draws), (SELECT COUNT(*) FROM members), "
            f"(SELECT COALESCE(SUM(length), 0) FROM name_sets WHERE length <= {PIECE}), "
            "(SELECT COUNT(*) FROM draws WHERE names NOT IN (SELECT number FROM name_sets))"
        ).fetchone()
        if counts[0] != self._ledger.n_stored or counts[1] != counts[2] or counts[3]:
            raise LedgerError(
                f"{self._ledger.path} lacks cells that its lines say were drawn. Restore the file and its head from "
                "the same backup. Nothing was released"
            )

    def verify(self) -> None:
        """Read everything that is stored and compare it with the ledger, and SQLite's indexes with their tables.

        Raises
        ------
        LedgerError
        """
        self.check()
        # A cell that a damaged index does not find would be drawn a second time.
        if self._database.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",):
            raise self.names.damaged("indexes of cells")
        sets = "SELECT number, digest, length, places FROM name_sets"
        for number, digest, length, places in self._database.execute(sets).fetchall():
            for _ in self.names.pieces_of(digest, places):
                pass
            if length <= PIECE:
                self.names.check_index(number)
            draws = "SELECT charge, family, places FROM draws WHERE names = ?"
            for charge, family, packed in self._database.execute(draws, (number,)).fetchall():
                self._check(charge, family, digest, packed)
                for i in range(0, len(packed), 32):
                    self.names.piece(packed[i : i + 32])

    def _codes(self, packed: bytes, n_codes: int, places: NDArray[np.integer]) -> NDArray[np.signedinteger]:
        """Released and exact codes at ascending places of a set in pieces of `n_codes`, shape ``(2, n_places)``."""
        cuts = np.searchsorted(places, np.arange(0, n_codes * (len(packed) // 32) + 1, n_codes)).tolist()
        found = []
        for piece, (start, end) in enumerate(pairwise(cuts)):
            if start < end:
                both = _unpacked(self.names.piece(packed[32 * piece : 32 * piece + 32]))
                is_whole = both.shape[1] == end - start
                found.append(both if is_whole else both[:, places[start:end] - piece * n_codes])
        return np.concatenate(found, axis=1)

    def _check(self, charge: int, family: bytes, digest: bytes, places: bytes) -> int:
        """Compare a draw with its ledger lines; returns the number of codes per piece."""
        content = self._ledger.content(charge, digest.hex())
        sizes = [n_codes for n_codes in (CODES, EARLIER_CODES) if _content(digest, places, n_codes) == content]
        if not sizes or _short(family_of(self._ledger.line(charge))) != family:
            raise self.names.damaged(f"cells that line {charge} charged")
        return sizes[0]


def _packed(codes: KeptCodes, exact: KeptCodes) -> bytes:
    """Pack released and exact codes: smallest type, byte planes, compressed; a code of 10 bits takes 2.6 bytes.

    A header holds the width of a code in bytes and the number of codes.
    """
    both = np.stack([codes, exact])
    kind = np.min_scalar_type(min(int(both.min(initial=0)), -1 - int(both.max(initial=0))))
    planes = np.ascontiguousarray(both.astype(kind, copy=False).view(np.uint8).reshape(-1, kind.itemsize).T)
    return bytes([kind.itemsize]) + len(codes).to_bytes(4, "little") + _codec().compress(planes, asbytes=True)


def _unpacked(content: bytes) -> NDArray[np.signedinteger]:
    """The inverse of `_packed`, shape ``(2, n_codes)``."""
    width, n_codes = content[0], int.from_bytes(content[1:5], "little")
    planes = _codec().decompress(content[5:], decompressed_size=2 * width * n_codes, asbytes=True)
    both = np.empty((2 * n_codes, width), np.uint8)
    # Byte by byte takes half the time of a transposed copy.
    for place, plane in enumerate(np.frombuffer(planes, np.uint8).reshape(width, -1)):
        both[:, place] = plane
    return both.view(f"<i{width}").reshape(2, n_codes)


def _codec() -> pa.Codec:
    import pyarrow as pa

    return pa.Codec("zstd", 3)


def _content(digest: bytes, places: bytes, n_codes: int) -> str:
    """Digest of a draw for the ledger: of its names, its pieces and, unless it is `EARLIER_CODES`, their size."""
    size = b"" if n_codes == EARLIER_CODES else n_codes.to_bytes(4, "little")
    return hashlib.sha256(digest + places + size).hexdigest()


def _short(digest: str) -> bytes:
    return bytes.fromhex(digest)[:NAME_BYTES]
