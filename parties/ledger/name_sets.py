"""Sets of records that were drawn together, by their names, and the pieces in which names and codes are stored.

A piece lies under its digest. A set is known by the digest of its pieces' digests and first names. Where the names of
small sets stand is in an index; large ones are looked through by their pieces.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from parties.errors import LedgerError
from parties.storage.spool import ArraySpool, KeptNumbers
from parties.tables.key_sets import NAME, NAME_BYTES, Names

# Names, or codes of one column, that are read and verified together.
PIECE = 1 << 12

# Names per question to the index.
_BATCH = 500

_PLACE = np.dtype([("first", NAME), ("digest", "V32")])

NAME_TABLES = (
    "CREATE TABLE IF NOT EXISTS pieces (digest BLOB PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS name_sets (number INTEGER PRIMARY KEY, digest BLOB UNIQUE, length INTEGER, "
    "places BLOB)",
    "CREATE TABLE IF NOT EXISTS members (name BLOB, number INTEGER, place INTEGER, PRIMARY KEY (name, number)) "
    "WITHOUT ROWID",
)


class NameSet(NamedTuple):
    """A stored set of records."""

    number: int
    digest: bytes


class Hit(NamedTuple):
    """A stored set that holds some of the names looked up: their positions in the query and in the set."""

    names: int
    rows: KeptNumbers
    places: KeptNumbers

    def put_aside(self, spool: ArraySpool) -> Hit:
        """Move the positions to a spool on disk."""
        rows, places = (spool.view(spool.put(part[:])) for part in (self.rows, self.places))
        return Hit(self.names, rows, places)


class NameSets:
    """The sets of records of a ledger's file.

    Parameters
    ----------
    path : Path
    database : Connection
    """

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self._path, self._database = path, database

    def locate(self, names: Names) -> list[Hit]:
        """Find the sets that hold some records, whose names must be unique and ascending.

        Raises
        ------
        LedgerError
            If names are not those that were stored.
        """
        hits = []
        ask = self._database.execute
        large = ask("SELECT number, digest, places FROM name_sets WHERE length > ?", (PIECE,)).fetchall()
        for number, digest, packed in large:
            index = self._index(digest, packed)
            cuts = [*np.searchsorted(names, index["first"]).tolist(), len(names)]
            positions = []
            for piece, (start, end) in enumerate(pairwise(cuts)):
                if start < end:
                    stored = np.frombuffer(self.piece(bytes(index["digest"][piece])), NAME)
                    at = np.minimum(np.searchsorted(stored, names[start:end]), len(stored) - 1)
                    own = np.flatnonzero(stored[at] == names[start:end])
                    positions.append((start + own, piece * PIECE + at[own]))
            if positions:
                rows, places = (np.concatenate(part) for part in zip(*positions, strict=True))
                hits.append(Hit(number, rows, places))
        rows_of: dict[int, list[tuple[int, int]]] = {}
        for row, number, place in self._members(names):
            rows_of.setdefault(number, []).append((row, place))
        for number, pairs in rows_of.items():
            rows, places = np.array(sorted(pairs), np.int64).T
            stored = self._names_of(number)
            at = np.minimum(np.searchsorted(stored, names[rows]), len(stored) - 1)
            if (stored[at] != names[rows]).any() or (at != places).any():
                raise self.damaged("names of records")
            hits.append(Hit(number, rows, places))
        return [hit for hit in hits if len(hit.rows)]

    def _members(self, names: Names) -> Iterator[tuple[int, int, int]]:
        """Membership of ascending names in small sets, as triples of row, set and place in the set."""
        n_members = self._database.execute("SELECT COALESCE(SUM(length), 0) FROM name_sets WHERE length <= ?", (PIECE,))
        if not (n_all := n_members.fetchone()[0]) or not len(names):
            return
        if n_all <= len(names):
            yield from self._rows(names, self._database.execute("SELECT name, number, place FROM members"))
            return
        for start in range(0, len(names), _BATCH):
            batch = _as_bytes(names[start : start + _BATCH])
            marks = ", ".join("?" * len(batch))
            yield from self._rows(
                names, self._database.execute(f"SELECT name, number, place FROM members WHERE name IN ({marks})", batch)
            )

    def _rows(self, names: Names, members: Iterable[tuple[bytes, int, int]]) -> Iterator[tuple[int, int, int]]:
        found = list(members)
        wanted = np.frombuffer(b"".join(name for name, _, _ in found), NAME)
        rows = np.minimum(np.searchsorted(names, wanted), len(names) - 1)
        for row, is_asked, (_, number, place) in zip(rows.tolist(), names[rows] == wanted, found, strict=True):
            if is_asked:
                yield row, number, place

    def check_index(self, number: int) -> None:
        """Compare the index with the names of a small set.

        Raises
        ------
        LedgerError
            If it lacks one or has one in another place.
        """
        names = _as_bytes(self._names_of(number))
        for start in range(0, len(names), _BATCH):
            batch = names[start : start + _BATCH]
            found = self._database.execute(
                f"SELECT name, place FROM members WHERE number = ? AND name IN ({', '.join('?' * len(batch))})",
                (number, *batch),
            )
            if dict(found) != {name: start + i for i, name in enumerate(batch)}:
                raise self.damaged("names of records")

    def _names_of(self, number: int) -> Names:
        """All names of a small set, verified."""
        row = self._database.execute("SELECT digest, places FROM name_sets WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise self.damaged("names of records")
        return np.frombuffer(b"".join(self.pieces_of(*row)), NAME)

    def put(self, names: Names) -> NameSet:
        """Keep a set of records, whose names ascend."""
        index = np.zeros(-(-len(names) // PIECE), _PLACE)
        index["first"] = names[::PIECE]
        pieces = [names[i : i + PIECE].tobytes() for i in range(0, len(names), PIECE)]
        index["digest"] = np.frombuffer(b"".join(hashlib.sha256(piece).digest() for piece in pieces), "V32")
        digest = hashlib.sha256(index.tobytes()).digest()
        row = self._database.execute("SELECT number FROM name_sets WHERE digest = ?", (digest,)).fetchone()
        if row is not None:
            return NameSet(row[0], digest)
        for piece in pieces:
            self.put_piece(piece)
        insert = "INSERT INTO name_sets (digest, length, places) VALUES (?, ?, ?)"
        number = self._database.execute(insert, (digest, len(names), index.tobytes())).lastrowid
        assert number is not None
        if len(names) <= PIECE:
            self.put_members(names, number)
        return NameSet(number, digest)

    def last(self) -> int:
        """The number of the set that was stored last."""
        number: int | None = self._database.execute("SELECT MAX(number) FROM name_sets").fetchone()[0]
        return number or 0

    def put_members(self, names: Names, number: int) -> None:
        """Enter into the index where the names of a small set stand."""
        members = ((name, number, place) for place, name in enumerate(_as_bytes(names)))
        self._database.executemany("INSERT INTO members VALUES (?, ?, ?)", members)

    def put_piece(self, content: bytes) -> bytes:
        """Keep names or codes; returns their digest."""
        digest = hashlib.sha256(content).digest()
        self._database.execute("INSERT OR IGNORE INTO pieces VALUES (?, ?)", (digest, content))
        return digest

    def piece(self, digest: bytes) -> bytes:
        """Names or codes, verified."""
        row = self._database.execute("SELECT content FROM pieces WHERE digest = ?", (digest,)).fetchone()
        if row is None or hashlib.sha256(row[0]).digest() != digest:
            raise self.damaged("cells")
        content: bytes = row[0]
        return content

    def _index(self, digest: bytes, packed: bytes) -> NDArray[np.void]:
        if hashlib.sha256(packed).digest() != digest:
            raise self.damaged("names of records")
        return np.frombuffer(packed, _PLACE)

    def pieces_of(self, digest: bytes, packed: bytes) -> Iterator[bytes]:
        """All names of a set, verified, piece by piece."""
        return (self.piece(bytes(place["digest"])) for place in self._index(digest, packed))

    def damaged(self, what: str) -> LedgerError:
        """The error for content that differs from what was written."""
        return LedgerError(
            f"{self._path}: {what} are not those that were drawn. Restore the file and its head from the same backup. "
            "Nothing was released"
        )


def _as_bytes(names: Names) -> list[bytes]:
    """Names with all their bytes."""
    whole: list[bytes] = np.ascontiguousarray(names).view(f"V{NAME_BYTES}").tolist()
    return whole
