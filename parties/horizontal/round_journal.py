"""Round journal: what a coordinator keeps so that a new process of it goes on with the same run.

Everything that a coordinator does follows from its random key, the drawing of the public bits and the sums of the
rounds. A new process trains again on the sums that are kept, and asks for those that are not. Workers answer no earlier
question again, so all is kept in two files, each entry with its digest: what a power cut or a bad sector has damaged is
read from the other one. They lie in the run folder, readable by its owner alone, while a worker may need the
coordinator: the sums are those that the coordinator has seen anyway, and from the key comes the noise that it adds.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.rng import BitSource, secure
from parties.errors import RunFolderError
from parties.runs.installed_versions import check_same_version, package_version
from parties.storage.sqlite import connect, reporting
from protocols.messages.horizontal import Commitments, Reveals

_TABLE = "CREATE TABLE IF NOT EXISTS kept (name TEXT PRIMARY KEY, content BLOB NOT NULL, digest BLOB NOT NULL)"


class RoundJournal:
    """The journal of one run.

    Parameters
    ----------
    path : Path, optional
        None for a journal in memory, from which no other process goes on.
    begin : callable
        Called when public bits are about to be drawn: from then on a new process goes on with the run.

    Raises
    ------
    LedgerError
        If a file cannot be used.
    """

    def __init__(self, path: Path | None = None, *, begin: Callable[[], None] = lambda: None) -> None:
        self._path = path or Path("memory")
        self._begin = begin
        if path is None:
            self._copies = [sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)]
            weakref.finalize(self, self._copies[0].close)
            self._copies[0].execute(_TABLE)
            return
        places = [path, path.with_suffix(".copy.sqlite")]
        is_damaged = [_is_damaged(place) for place in places]
        for place, is_bad in zip(places, is_damaged, strict=True):
            with reporting(place):
                for part in ("", "-wal", "-shm") if is_bad else ():
                    Path(f"{place}{part}").unlink(missing_ok=True)
        self._copies = [connect(place, [_TABLE]) for place in places]
        if any(is_damaged):
            self._restore()

    def close(self) -> None:
        """Close the files."""
        for database in self._copies:
            database.close()

    def bits(self) -> BitSource:
        """The coordinator's own bits: the same in every process of the run.

        Raises
        ------
        RunFolderError
            If another version of the package has drawn from them.
        """
        if (key := self._fact("key")) is None:
            key = secure().words(4).tobytes()
            self._keep("version", package_version().encode())
            self._keep("key", key)
        check_same_version((self._fact("version") or b"").decode(errors="replace"), self._path)
        return BitSource(key, is_secure=True)

    @property
    def commitments(self) -> Commitments | None:
        """The commitments for which workers were asked to reveal their bytes; None before that.

        Raises
        ------
        RunFolderError
            If they are malformed.
        """
        kept = self._fact("commitments")
        if not kept:
            return None
        try:
            document = json.loads(kept)
            rows = np.frombuffer(bytes.fromhex(document["rows"]), np.uint8).reshape(-1, 32)
            return Commitments(names=tuple(document["names"]), rows=rows, is_open=True)
        except (KeyError, TypeError, ValueError):
            raise self._malformed() from None

    def note_commitments(self, committed: Commitments | None) -> None:
        """Keep the commitments before anybody is asked to reveal, or None to have the next drawing begin anew."""
        document = committed and {"names": committed.names, "rows": committed.rows.tobytes().hex()}
        self._keep("commitments", json.dumps(document).encode() if document else b"")
        self._begin()

    @property
    def drawing(self) -> tuple[Commitments, Reveals] | None:
        """The drawing of the public bits, as those are told who were not there; None before it.

        Raises
        ------
        RunFolderError
            If it is malformed.
        """
        committed, revealed = self.commitments, self._fact("reveals")
        if committed is None or revealed is None:
            return None
        try:
            rows = np.frombuffer(revealed, np.uint8).reshape(-1, 32)
        except ValueError:
            raise self._malformed() from None
        return committed.model_copy(update={"is_open": False}), Reveals(rows=rows)

    def note_reveals(self, revealed: Reveals) -> None:
        """Keep what was revealed for the commitments, before anybody is told."""
        self._keep("reveals", revealed.rows.tobytes())

    def sum(self, number: int) -> NDArray[np.int64] | None:
        """The sum with this number; None if it is not known yet."""
        kept = self._fact(f"sum {number}")
        return None if kept is None else np.frombuffer(kept, "<i8").astype(np.int64)

    def note_sum(self, number: int, total: NDArray[np.int64]) -> None:
        """Keep a sum."""
        self._keep(f"sum {number}", total.astype("<i8").tobytes())

    def survivors(self, number: int) -> frozenset[str]:
        """The workers over whom the sum with this number may have been opened; nobody for none."""
        found = self._fact(f"survivors of {number}")
        return frozenset(() if found is None else json.loads(found))

    def rounds_of(self, n_sums: int) -> dict[str, int]:
        """Of so many sums, in how many each worker is."""
        return dict(Counter(name for number in range(n_sums) for name in self.survivors(number)))

    def note_survivors(self, number: int, names: list[str]) -> None:
        """Keep over whom a sum is opened, before anybody is asked to."""
        self._keep(f"survivors of {number}", json.dumps(names).encode())

    def bound(self, number: int) -> dict[str, frozenset[str]]:
        """Workers that may have given shares of the sum with this number, and over whom."""
        found = self._fact(f"bound by {number}")
        return {} if found is None else {name: frozenset(over) for name, over in json.loads(found).items()}

    def note_bound(self, number: int, bound: Mapping[str, frozenset[str]]) -> None:
        """Keep who may have given shares of a sum, before anybody is asked for them."""
        document = {name: sorted(over) for name, over in bound.items()}
        self._keep(f"bound by {number}", json.dumps(document).encode())

    @property
    def done(self) -> frozenset[str]:
        """The workers that have kept the model."""
        found = self._fact("done")
        return frozenset(() if found is None else json.loads(found))

    def note_done(self, name: str) -> None:
        """Keep that a worker has the model."""
        self._keep("done", json.dumps(sorted({*self.done, name})).encode())

    def _malformed(self) -> RunFolderError:
        return RunFolderError(f"{self._path} is malformed; choose another run_id. Nothing was sent")

    def _restore(self) -> None:
        """Keep in both files what is left in one of them."""
        with reporting(self._path):
            found = {name for database in self._copies for (name,) in database.execute("SELECT name FROM kept")}
        for name in found:
            self._keep(name, self._fact(name) or b"")

    def _fact(self, name: str) -> bytes | None:
        is_damaged = False
        for database in self._copies:
            with reporting(self._path):
                row = database.execute("SELECT content, digest FROM kept WHERE name = ?", (name,)).fetchone()
            if row is not None and row[1] == _digest(name, row[0]):
                return bytes(row[0])
            is_damaged |= row is not None
        if is_damaged:
            raise self._malformed()
        return None

    def _keep(self, name: str, content: bytes) -> None:
        for database in self._copies:
            with reporting(self._path):
                values = (name, content, _digest(name, content))
                database.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", values)


def _digest(name: str, content: bytes) -> bytes:
    return hashlib.sha256(repr((name, content)).encode()).digest()


def _is_damaged(path: Path) -> bool:
    """Whether a file is there that SQLite cannot read; one that cannot be opened now is not damaged."""
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(path)) as database:
            return bool(database.execute("PRAGMA quick_check").fetchone() != ("ok",))
    except sqlite3.OperationalError:
        return False
    except sqlite3.DatabaseError:
        return True
