"""Answers about held-out records, kept in the journal: a run that begins again asks for none of them twice."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from parties.storage.atomic_files import make_folder, write_array

Bytes = NDArray[np.uint8]


class KeptAnswers:
    """Batches of answers, each a file ``<occasion>.<first record>.npy``.

    Parameters
    ----------
    folder : Path
    occasion : str
        Digest that identifies the records and the questions about them.
    n_bytes : mapping of str to int
        Bytes of an answer by passive party.
    """

    def __init__(self, folder: Path, occasion: str, n_bytes: Mapping[str, int]) -> None:
        self._folder = folder
        self._occasion = occasion
        self._n_bytes = dict(sorted(n_bytes.items()))

    def batch(self, first: int, n_rows: int) -> tuple[dict[str, Bytes], Bytes] | None:
        """Packed answers by party and statuses of so many records from this one on; None if they are not there."""
        try:
            kept = np.load(self._path(first))
        except (EOFError, OSError, ValueError):
            return None
        if kept.dtype != np.uint8 or kept.shape != (n_rows, 1 + sum(self._n_bytes.values())):
            return None
        status, *answers = np.split(kept, np.cumsum([1, *self._n_bytes.values()])[:-1], axis=1)
        return dict(zip(self._n_bytes, answers, strict=True)), status[:, 0]

    def note(self, first: int, answers: Mapping[str, Bytes], status: Bytes) -> None:
        """Keep a batch that begins with this record.

        Raises
        ------
        RunFolderError
        """
        make_folder(self._folder)
        write_array(self._path(first), np.column_stack([status, *(answers[peer] for peer in self._n_bytes)]))

    def _path(self, first: int) -> Path:
        return self._folder / f"{self._occasion}.{first}.npy"
