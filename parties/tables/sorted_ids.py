"""Ids in ascending order, of tables of any size: sorted in pieces, merged between bounds, and kept on disk.

Pieces are sorted in memory and put aside. Every so many of their texts one is noted; from these come bounds, and what
lies between two bounds is taken from all sorted pieces and sorted again. Equal ids lie between the same bounds, so
whether an id comes twice is seen there.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, overload

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.storage.spool import WINDOW_ROWS, ArraySpool, SpooledArray

if TYPE_CHECKING:
    import pyarrow as pa

Duplicates = Literal["refuse", "first", "last", "drop"]
"""What to do with rows of one id: refuse the file; keep the first or the last row in it; leave all of them out."""

# Sorted texts from one noted text to the next.
STEP = 1 << 10


@dataclass(frozen=True, slots=True)
class StoredIds:
    """Ids on disk; slices of them are read as an index, and whatever else is asked for comes from the whole."""

    offsets: SpooledArray
    letters: SpooledArray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, rows: slice | NDArray[np.integer], /) -> pd.Index:
        if not isinstance(rows, slice):
            return self[:][rows]
        start, end, _ = rows.indices(len(self))
        return pd.Index(pd.array(self.texts(start, end), dtype="string[pyarrow]"))

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), WINDOW_ROWS):
            yield from self[start : start + WINDOW_ROWS]

    def get_indexer(self, wanted: pd.Index) -> NDArray[np.intp]:
        """Rows of some ids, and -1 for one that is not here; all ids are in memory meanwhile."""
        return self[:].get_indexer(wanted)

    def rows_of(self, wanted: StoredIds) -> NDArray[np.intp]:
        """Rows of those of some ids that are here, of which few are in memory at a time."""
        import pyarrow.compute as pc

        rows, at = [np.empty(0, np.intp)], 0
        for first in range(0, len(wanted), WINDOW_ROWS):
            texts = wanted.texts(first, first + WINDOW_ROWS)
            end = bisect_right(range(len(self)), texts[-1].as_py(), lo=at, key=lambda row: self[row : row + 1][0])
            for start in range(at, end, WINDOW_ROWS):
                is_wanted = pc.is_in(self.texts(start, min(start + WINDOW_ROWS, end)), value_set=texts)
                rows.append(start + np.flatnonzero(is_wanted.to_numpy(zero_copy_only=False)))
            at = end
        return np.concatenate(rows)

    def taken(self, rows: NDArray[np.integer]) -> pd.Index | StoredIds:
        """The ids of some rows; those of ascending ones are on disk again."""
        import pyarrow as pa

        if (rows[1:] <= rows[:-1]).any():
            return self[rows]
        writer = _Writer()
        for start in range(0, len(self), WINDOW_ROWS):
            end = min(start + WINDOW_ROWS, len(self))
            own = rows[slice(*np.searchsorted(rows, [start, end]))]
            if len(own):
                writer.put(self.texts(start, end).take(pa.array(own - start)), own)
        return writer.close()[0]

    def texts(self, start: int, end: int) -> pa.LargeStringArray:
        """The ids from `start` to `end`."""
        import pyarrow as pa

        offsets = self.offsets[start : max(start, end) + 1]
        letters = self.letters[int(offsets[0]) : int(offsets[-1])]
        return pa.LargeStringArray.from_buffers(
            len(offsets) - 1, pa.py_buffer(offsets - offsets[0]), pa.py_buffer(letters)
        )


@dataclass(frozen=True, slots=True)
class EncodedIds(Sequence[bytes]):
    """Ids on disk as bytes, for a comparison with another party's."""

    ids: StoredIds

    def __len__(self) -> int:
        return len(self.ids)

    @overload
    def __getitem__(self, at: int) -> bytes: ...
    @overload
    def __getitem__(self, at: slice) -> list[bytes]: ...
    def __getitem__(self, at: int | slice) -> bytes | list[bytes]:
        import pyarrow as pa

        if not isinstance(at, slice):
            row = range(len(self))[at]
            start, end = self.ids.offsets[row : row + 2].tolist()
            return self.ids.letters[start:end].tobytes()
        start, end, _ = at.indices(len(self))
        found: list[bytes] = self.ids.texts(start, end).cast(pa.large_binary()).to_pylist()
        return found


@dataclass(frozen=True, slots=True)
class SortedIds:
    """Which rows of a file remain, in ascending order of their ids.

    Attributes
    ----------
    ids : StoredIds
    rows : SpooledArray
        Numbers of rows in the file.
    n_repeated : int
        Rows whose id came before.
    n_rows : int
        Of the file.
    """

    ids: StoredIds
    rows: SpooledArray
    n_repeated: int
    n_rows: int


@dataclass(frozen=True, slots=True)
class _Run:
    """A sorted piece."""

    ids: StoredIds
    rows: SpooledArray
    noted: list[str]

    def place(self, bound: str) -> int:
        """How many texts come before the bound."""
        import pyarrow.compute as pc

        end = bisect_left(self.noted, bound) * STEP
        start, end = max(0, end - STEP), min(end, len(self.ids))
        return start + (pc.sum(pc.less(self.ids.texts(start, end), bound)).as_py() or 0)


def sort_ids(pieces: Iterable[pd.Index], duplicates: Duplicates) -> SortedIds:
    """Sort ids that come in the order of a file's rows; equal ones stay as they stand.

    With `duplicates: refuse`, the first of the rows of one id are kept: whoever asks refuses by `n_repeated`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    kept, n_rows, n_repeated = _Writer(), 0, 0
    for texts, rows in _ascending(_runs(pieces)):
        is_first = np.ones(len(texts), np.bool_)
        is_first[1:] = pc.not_equal(texts[1:], texts[:-1]).to_numpy(zero_copy_only=False)
        n_rows, n_repeated = n_rows + len(texts), n_repeated + int((~is_first).sum())
        is_last = np.append(is_first[1:], True)
        is_kept = {"last": is_last, "drop": is_first & is_last}.get(duplicates, is_first)
        kept.put(texts if is_kept.all() else texts.filter(pa.array(is_kept)), rows[is_kept])
    # What sorting took is given back to the system, which Arrow does not do by itself.
    pa.default_memory_pool().release_unused()
    return SortedIds(*kept.close(), n_repeated, n_rows)


def _runs(pieces: Iterable[pd.Index]) -> Iterator[tuple[pa.LargeStringArray, NDArray[np.integer]]]:
    """The ids in sorted pieces of even size, with numbers of rows."""
    import pyarrow as pa
    import pyarrow.compute as pc

    start, waiting = 0, pa.array([], pa.large_string())
    for piece in chain(_windows(pieces), [None]):
        if piece is not None:
            waiting = pa.concat_arrays([waiting, piece])
        if len(waiting) >= WINDOW_ROWS or (piece is None and len(waiting)):
            order = pc.array_sort_indices(waiting)
            yield waiting.take(order), start + order.to_numpy().astype(np.int64)
            start, waiting = start + len(waiting), waiting[:0]


def _windows(pieces: Iterable[pd.Index]) -> Iterator[pa.LargeStringArray]:
    import pyarrow as pa

    for piece in pieces:
        for start in range(0, len(piece), WINDOW_ROWS):
            yield pa.array(piece[start : start + WINDOW_ROWS].to_numpy(dtype=object), pa.large_string())


def _ascending(
    sorted_pieces: Iterator[tuple[pa.LargeStringArray, NDArray[np.integer]]],
) -> Iterator[tuple[pa.LargeStringArray, NDArray[np.integer]]]:
    """All ids in ascending order, equal ones in one piece."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # One spool for all of them: each would keep a piece in memory.
    runs, spool = [], ArraySpool()
    for texts, numbers in sorted_pieces:
        offsets, letters, own_rows = (spool.view(spool.put(array)) for array in (*_parts(texts), numbers))
        runs.append(_Run(StoredIds(offsets, letters), own_rows, texts[::STEP].to_pylist()))
    if not runs:
        return
    noted, every = sorted(text for run in runs for text in run.noted), WINDOW_ROWS // STEP
    starts = [0] * len(runs)
    for bound in [*noted[every::every], None]:
        ends = [len(run.ids) if bound is None else run.place(bound) for run in runs]
        parts = list(zip(runs, starts, ends, strict=True))
        texts = pa.concat_arrays([run.ids.texts(start, end) for run, start, end in parts])
        rows = np.concatenate([run.rows[start:end] for run, start, end in parts])
        order = pc.array_sort_indices(texts)
        starts = ends
        # Between two equal bounds there is nothing.
        if len(rows):
            yield texts.take(order), rows[order.to_numpy()]


class _Writer:
    """Takes texts and numbers of rows, one piece after the other."""

    def __init__(self) -> None:
        self._offsets, self._letters, self._rows = ArraySpool(), ArraySpool(), ArraySpool()
        self._offsets.put(np.zeros(1, np.int64))
        self._end = 0

    def put(self, texts: pa.LargeStringArray, rows: NDArray[np.integer]) -> None:
        """Keep some texts."""
        if not len(texts):
            return
        offsets, letters = _parts(texts)
        self._offsets.put(self._end + offsets[1:])
        self._letters.put(letters)
        self._rows.put(rows.astype(np.int64, copy=False))
        self._end += len(letters)

    def close(self) -> tuple[StoredIds, SpooledArray]:
        """Everything that was put."""
        offsets, letters = self._offsets.joined(np.dtype(np.int64)), self._letters.joined(np.dtype(np.uint8))
        return StoredIds(offsets, letters), self._rows.joined(np.dtype(np.int64))


def _parts(texts: pa.LargeStringArray) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Where texts begin and end, and their letters."""
    _, offsets, letters = texts.buffers()
    places = np.frombuffer(offsets, np.int64)[texts.offset : texts.offset + len(texts) + 1]
    return places - places[0], np.frombuffer(letters or b"", np.uint8)[places[0] : places[-1]]
