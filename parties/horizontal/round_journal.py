"""Round journal: what a coordinator keeps so that a new process of it goes on with the same run.

Everything that a coordinator does follows from its random key, the drawing of the public bits and the sums of the
rounds. A new process trains again on the sums that are kept, and asks for those that are not. The file lies in the run
folder, readable by its owner alone, while a worker may need the coordinator: the sums are those that the coordinator
has seen anyway, and from the key comes the noise that it adds.
"""

from __future__ import annotations

import json
import sqlite3
import weakref
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from opboost.rng import BitSource, secure
from parties.errors import RunFolderError
from parties.storage.sqlite import connect, reporting, transaction
from protocols.messages.horizontal import Commitments, Reveals

_TABLES = (
    "CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, content BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS sums (number INTEGER PRIMARY KEY, vector BLOB NOT NULL)",
)


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
        If the file cannot be used.
    """

    def __init__(self, path: Path | None = None, *, begin: Callable[[], None] = lambda: None) -> None:
        self._path = path or Path("memory")
        self._begin = begin
        if path is not None:
            self._database = connect(path, _TABLES)
            return
        self._database = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        weakref.finalize(self, self._database.close)
        for table in _TABLES:
            self._database.execute(table)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def bits(self) -> BitSource:
        """The coordinator's own bits: the same in every process of the run."""
        if (key := self._fact("key")) is None:
            key = secure().words(4).tobytes()
            self._keep("key", key)
        return BitSource(key, is_secure=True)

    @property
    def commitments(self) -> Commitments | None:
        """The commitments for which workers were asked to reveal their bytes; None before that.

        Raises
        ------
        RunFolderError
            If they are malformed.
        """
        names, rows = self._fact("names"), self._fact("commitments")
        if names is None or rows is None:
            return None
        try:
            return Commitments(
                names=tuple(json.loads(names)), rows=np.frombuffer(rows, np.uint8).reshape(-1, 32), is_open=True
            )
        except (TypeError, ValueError):
            raise self._malformed() from None

    def note_commitments(self, committed: Commitments | None) -> None:
        """Keep the commitments before anybody is asked to reveal, or None to have the next drawing begin anew."""
        with reporting(self._path), transaction(self._database):
            self._database.execute("DELETE FROM facts WHERE name IN ('names', 'commitments')")
            if committed is not None:
                self._keep("names", json.dumps(committed.names).encode())
                self._keep("commitments", committed.rows.tobytes())
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
        with reporting(self._path):
            row = self._database.execute("SELECT vector FROM sums WHERE number = ?", (number,)).fetchone()
        return None if row is None else np.frombuffer(row[0], "<i8").astype(np.int64)

    def note_sum(self, number: int, total: NDArray[np.int64]) -> None:
        """Keep a sum."""
        with reporting(self._path):
            self._database.execute("INSERT INTO sums VALUES (?, ?)", (number, total.astype("<i8").tobytes()))

    def survivors(self, number: int) -> frozenset[str]:
        """The workers over whom the sum with this number may have been opened; nobody for none."""
        found = self._fact(f"survivors of {number}")
        return frozenset(() if found is None else json.loads(found))

    def note_survivors(self, number: int, names: list[str]) -> None:
        """Keep over whom a sum is opened, before anybody is asked to."""
        self._keep(f"survivors of {number}", json.dumps(names).encode())

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

    def _fact(self, name: str) -> bytes | None:
        with reporting(self._path):
            row = self._database.execute("SELECT content FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def _keep(self, name: str, content: bytes) -> None:
        with reporting(self._path):
            self._database.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, content))
