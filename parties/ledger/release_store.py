"""What was drawn, kept so that it never has to be drawn again. Private to its owner: it holds codes, not ranks.

Every drawn column is one entry under the number of the ledger's line that charged it: an array in numpy's own format,
the missing cells as -1. For single records (desensitized prediction, and first draws that are kept whatever becomes of
the values) a second array names them, and an index finds a record's draw. The digest of an entry stands in the ledger;
what does not match is refused, what the ledger does not know (a crash came between) is ignored, since it never left.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import KeptCodes
from parties.errors import LedgerError
from parties.ledger.release_ledger import Ledger
from parties.storage.spool import WINDOW_ROWS
from parties.storage.sqlite import connect, reporting, transaction

# Bytes of a record's key and of a family of releases in the index: no two records will share one.
KEY_BYTES = 16

Names = NDArray[np.bytes_]
"""What single draws are found by, `KEY_BYTES` bytes each. Numpy shows them without zero bytes at their end."""

NAME = np.dtype(f"S{KEY_BYTES}")

# Stands for a cell that was not drawn, among codes of which a missing cell is -1.
NOT_DRAWN = -2

# Names per question to the index.
_BATCH = 500

_TABLES = (
    "CREATE TABLE IF NOT EXISTS owner (ledger TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS drawn (charge INTEGER PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS answered (family BLOB, record BLOB, charge INTEGER, position INTEGER, "
    "PRIMARY KEY (family, record, charge)) WITHOUT ROWID",
)


@dataclass(frozen=True, slots=True)
class Drawn:
    """What was found of single draws.

    Attributes
    ----------
    codes : ndarray of signed integers
        Per name; `NOT_DRAWN` where there is none, a missing cell as -1.
    charges : tuple of int
        Lines of the ledger that paid for them.
    """

    codes: KeptCodes
    charges: tuple[int, ...]


class ReleaseStore:
    """The drawn columns that belong to one ledger.

    Parameters
    ----------
    ledger : Ledger
        The store lies beside it.

    Raises
    ------
    LedgerError
        If the store belongs to another ledger, or to a later state of this one.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.path = store_path(ledger)
        self._ledger = ledger
        self._database = connect(self.path, _TABLES)
        try:
            with self.changing():
                self._check_owner()
        except BaseException:
            self._database.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._database.close()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One process at a time; what was put is kept at the end, or not at all."""
        with reporting(self.path), transaction(self._database):
            yield

    def find(self, key: str) -> int | None:
        """The charge of a stored release that may stand for one of this key."""
        for charge in self._ledger.stored(key):
            if self.holds(charge):
                return charge
        return None

    def answers(self, family: str, names: Names) -> Drawn:
        """The draws of single records under names that ascend, each once; the first of several draws counts.

        Raises
        ------
        LedgerError
            If one is not what the ledger says was drawn.
        """
        wanted, charges, positions = self._places(family, names)
        codes, paid = np.full(len(names), NOT_DRAWN, np.int64), []
        for charge in np.unique(charges).tolist():
            if self._ledger.content(charge) is None:
                continue
            drawn, stored = self._read(charge)
            of_charge = charges == charge
            rows, places = np.searchsorted(names, wanted[of_charge]), positions[of_charge]
            if not ((places >= 0) & (places < len(stored))).all() or (stored[places] != wanted[of_charge]).any():
                raise self._damaged(charge)
            is_first = codes[rows] == NOT_DRAWN
            codes[rows[is_first]] = drawn[places[is_first]]
            paid.append(charge)
        smallest = np.min_scalar_type(min(NOT_DRAWN, -1 - int(codes.max(initial=0))))
        return Drawn(codes.astype(smallest), tuple(paid))

    def _places(self, family: str, names: Names) -> tuple[Names, NDArray[np.int64], NDArray[np.int64]]:
        """Of all draws under these names, in any order: name, charge, and place in the entry of that charge."""
        found: list[Names] = [np.empty(0, NAME)]
        numbers = [np.empty((0, 2), np.int64)]
        for start in range(0, len(names), _BATCH):
            batch = _as_bytes(names[start : start + _BATCH])
            rows = self._database.execute(
                "SELECT record, charge, position FROM answered WHERE family = ? AND record IN "
                f"({', '.join('?' * len(batch))})",
                (_short(family), *batch),
            ).fetchall()
            if rows:
                found.append(np.frombuffer(b"".join(row[0] for row in rows), NAME))
                numbers.append(np.array([row[1:] for row in rows], np.int64))
        charges, positions = np.concatenate(numbers).T
        return np.concatenate(found), charges, positions

    def verify(self) -> None:
        """Compare everything that is stored with the ledger.

        Raises
        ------
        LedgerError
            If an entry is not what the ledger says was drawn.
        """
        with self.changing():
            self._ledger.refresh()
            for (charge,) in self._database.execute("SELECT charge FROM drawn ORDER BY charge").fetchall():
                if self._ledger.content(charge) is not None:
                    self._read(charge)

    def holds(self, charge: int) -> bool:
        """Whether something is kept for a charge."""
        return self._database.execute("SELECT 1 FROM drawn WHERE charge = ?", (charge,)).fetchone() is not None

    def put(self, charge: int, codes: KeptCodes, *, family: str = "", names: Names | None = None) -> str:
        """Keep what was drawn for a charge; returns its digest, for the ledger."""
        names = np.empty(0, NAME) if names is None else names
        header, kept, end = _packed(codes, names)
        n_bytes, digest = len(header) + kept.itemsize * len(codes) + len(end), hashlib.sha256()
        self._database.execute("INSERT INTO drawn VALUES (?, zeroblob(?))", (charge, n_bytes))
        pieces = (codes[i : i + WINDOW_ROWS].astype(kept).tobytes() for i in range(0, len(codes), WINDOW_ROWS))
        with self._database.blobopen("drawn", "content", charge) as blob:
            for piece in chain([header], pieces, [end]):
                blob.write(piece)
                digest.update(piece)
        # In the order of the index, a million of them take half the time.
        order = np.argsort(names)
        places = zip(_as_bytes(names[order]), order.tolist(), strict=True)
        self._database.executemany(
            "INSERT INTO answered VALUES (?, ?, ?, ?)",
            ((_short(family), name, charge, position) for name, position in places),
        )
        return digest.hexdigest()

    def column(self, charge: int) -> KeptCodes:
        """What was drawn for a charge, a missing cell as -1.

        Raises
        ------
        LedgerError
            If it is not what the ledger says was drawn.
        """
        return self._read(charge)[0]

    def _read(self, charge: int) -> tuple[KeptCodes, Names]:
        row = self._database.execute("SELECT content FROM drawn WHERE charge = ?", (charge,)).fetchone()
        if row is None or hashlib.sha256(row[0]).hexdigest() != self._ledger.content(charge):
            raise self._damaged(charge)
        return _unpack(row[0])

    def _check_owner(self) -> None:
        owner = self._database.execute("SELECT ledger FROM owner").fetchone()
        if owner is None:
            self._database.execute("INSERT INTO owner VALUES (?)", (self._ledger.name,))
        elif owner[0] != self._ledger.name:
            raise LedgerError(
                f"{self.path} holds releases that were charged to another ledger than {self._ledger.path}. Restore the "
                "ledger that belongs to it. Nothing was released"
            )
        last = self._database.execute("SELECT MAX(charge) FROM drawn").fetchone()[0] or 0
        if last > self._ledger.n_lines:
            self._ledger.refresh()
        if last > self._ledger.n_lines:
            raise LedgerError(
                f"{self.path} holds a release that line {last} of {self._ledger.path} charged, but the ledger has "
                f"{self._ledger.n_lines} lines: an older copy has taken its place. Nothing was released"
            )

    def _damaged(self, charge: int) -> LedgerError:
        return LedgerError(
            f"{self.path}: the release that line {charge} of the ledger charged is not the one that was drawn. Restore "
            "the file, or remove it to draw and pay anew. Nothing was released"
        )


def store_path(ledger: Ledger) -> Path:
    """Where a ledger's releases are kept."""
    return ledger.path.with_suffix(".releases.sqlite")


def _packed(codes: KeptCodes, names: Names) -> tuple[bytes, np.dtype[Any], bytes]:
    """What stands before the codes in numpy's own format, the smallest type that holds them, and what stands after."""
    smallest = np.dtype(np.min_scalar_type(-1 - int(codes.max(initial=0))))
    header, end = io.BytesIO(), io.BytesIO()
    shape = {"descr": np.lib.format.dtype_to_descr(smallest), "fortran_order": False, "shape": codes.shape}
    np.lib.format.write_array_header_1_0(header, shape)
    np.save(end, names.view(np.uint8).reshape(-1, KEY_BYTES))
    return header.getvalue(), smallest, end.getvalue()


def _unpack(data: bytes) -> tuple[KeptCodes, Names]:
    content = io.BytesIO(data)
    return np.load(content), np.load(content).reshape(-1).view(NAME)


def _as_bytes(names: Names) -> list[bytes]:
    """Names with all their bytes."""
    whole: list[bytes] = names.view(f"V{KEY_BYTES}").tolist()
    return whole


def _short(digest: str) -> bytes:
    return bytes.fromhex(digest)[:KEY_BYTES]
