"""Answers about held-out records, kept in the journal as they come: a run that begins again asks for none twice."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.storage.atomic_files import make_folder, read_digested, write_digested

Bytes = NDArray[np.uint8]


class KeptAnswers:
    """Batches of one questioning, each a file ``<occasion>.<first record>``.

    Parameters
    ----------
    folder : Path
    occasion : str
        Tells the records and what is asked about them from all others.
    n_bytes : mapping of str to int
        Bytes of an answer by passive party.
    """

    def __init__(self, folder: Path, occasion: str, n_bytes: Mapping[str, int]) -> None:
        self._folder = folder
        self._occasion = occasion
        self._n_bytes = dict(sorted(n_bytes.items()))

    def batches(self) -> list[tuple[dict[str, Bytes], Bytes]]:
        """Packed answers by party, and statuses, of all batches up to the first that is missing or damaged."""
        widths = [1, *self._n_bytes.values()]
        found, first = [], 0
        while n_rows := len(table := self._table(first, sum(widths))):
            status, *answers = np.split(table, np.cumsum(widths)[:-1], axis=1)
            found.append((dict(zip(self._n_bytes, answers, strict=True)), status[:, 0]))
            first += n_rows
        return found

    def _table(self, first: int, n_bytes: int) -> Bytes:
        """A batch with a row per record; without rows if it is missing or damaged."""
        content = None
        with suppress(OSError):
            content = read_digested(self._path(first))
        if content is None or len(content) % n_bytes:
            return np.empty((0, n_bytes), np.uint8)
        return np.frombuffer(content, np.uint8).reshape(-1, n_bytes)

    def note(self, first: int, answers: Mapping[str, Bytes], status: Bytes) -> None:
        """Keep a batch that begins with this record.

        Raises
        ------
        RunFolderError
        """
        make_folder(self._folder)
        table = np.column_stack([status, *(answers[peer] for peer in self._n_bytes)])
        write_digested(self._path(first), table.tobytes())

    def _path(self, first: int) -> Path:
        return self._folder / f"{self._occasion}.{first}"
