"""Many small sets of records as few sorted runs: which sets a record is in is looked up in all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from parties.storage.spool import WINDOW_ROWS, ArraySpool, KeptNumbers
from parties.tables.key_sets import KeySet, Names, place_in

# Names of a run: when it has so many it goes to disk, and another is begun.
RUN_NAMES = 1 << 18


class SmallSets:
    """Small sets of records; the last run is in memory.

    Parameters
    ----------
    kind : dtype
        Of names or of half names.
    """

    def __init__(self, kind: np.dtype[Any]) -> None:
        self._names, self._set_of = np.empty(0, kind), np.empty(0, np.int64)
        self._new: list[tuple[Names, int]] = []
        self._n_new = 0
        self._full: list[tuple[KeySet, KeptNumbers]] = []
        self._spool = ArraySpool()

    def add(self, records: Names, number: int) -> None:
        """Keep a set under a number."""
        self._new.append((records, number))
        self._n_new += len(records)
        if self._n_new >= RUN_NAMES:
            self._merge()

    def runs(self) -> list[KeySet]:
        """The names of all sets, ascending in each run."""
        self._merge()
        return [names for names, _ in (*self._full, (self._names, self._set_of)) if len(names)]

    def sets_of(self, records: Names) -> Iterator[tuple[NDArray[np.intp], NDArray[np.integer]]]:
        """Which sets some ascending records are in: rows of records, each once, and a set of each; and so on."""
        self._merge()
        if not len(records):
            return
        for names, set_of in [*self._full, (self._names, self._set_of)]:
            for start in range(place_in(names, records[0]), len(names), WINDOW_ROWS):
                window, sets = names[start : start + WINDOW_ROWS], set_of[start : start + WINDOW_ROWS]
                if window[0] > records[-1]:
                    break
                first, end = (np.searchsorted(window, records, side) for side in ("left", "right"))
                for k in range(int((end - first).max())):
                    rows = np.flatnonzero(first + k < end)
                    yield rows, sets[first[rows] + k]

    def _merge(self) -> None:
        """Take up new sets in the last run."""
        if not self._new:
            return
        names = np.concatenate([records for records, _ in self._new])
        set_of = np.concatenate([np.full(len(records), number) for records, number in self._new])
        order = np.argsort(names, kind="stable")
        places = np.searchsorted(self._names, names[order])
        self._names = np.insert(self._names, places, names[order])
        self._set_of = np.insert(self._set_of, places, set_of[order])
        self._new, self._n_new = [], 0
        if len(self._names) >= RUN_NAMES:
            parts = self._names, self._set_of
            names_kept, sets_kept = (self._spool.view(self._spool.put(part)) for part in parts)
            self._full.append((names_kept, sets_kept))
            self._names, self._set_of = self._names[:0].copy(), self._set_of[:0].copy()
