"""External sort of rows of bytes, one per id, by a key whose first two bytes are as good as random.

Rows are put in any order, with the position of each one's id. Runs of them are sorted in memory by those two bytes and
written to a temporary file without a name; they are read again by even ranges of keys, so that one run or one range is
in memory at a time, and some four bytes for each 2^10 of 2^26 rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from protocols.alignment.bit_matrices import BitMatrix
from protocols.messages.fields import ByteRows
from protocols.private_files import temporary_file

IdPositions = NDArray[np.int64]

# A run, and a range on average, has so many rows at least, and of more than 2^28 rows 2^-12 of them.
RUN_BITS, MAX_RUNS_BITS = 16, 12

_POSITION_BYTES = 8


class Ascending(Protocol):
    """Interface of rows that are read in ascending order, with the positions of their ids."""

    def ascending(self) -> Iterator[tuple[IdPositions, ByteRows]]: ...


class ExternalSort:
    """Rows of one width on disk, with the positions of their ids.

    Parameters
    ----------
    n_rows : int
        How many will be put.
    n_bytes : int
        Of a row.
    key : slice
        The bytes of a row by which the rows are sorted.
    """

    def __init__(self, n_rows: int, n_bytes: int, *, key: slice = slice(None)) -> None:
        bits = (n_rows - 1).bit_length()
        self.n_range_bits = bits - min(bits, max(RUN_BITS, bits - MAX_RUNS_BITS))
        self._n_bytes, self._key, self._run_rows = n_bytes, key, 1 << (bits - self.n_range_bits)
        self._file = temporary_file(self)
        self._cuts: list[NDArray[np.int64]] = []
        self._waiting: list[BitMatrix] = []

    def put(self, positions: IdPositions, rows: ByteRows) -> None:
        """Add rows, no more than are left to be put."""
        numbers = positions.astype("<i8")[:, None].view(np.uint8)
        self._waiting.append(np.concatenate([rows, numbers], axis=1))
        if sum(map(len, self._waiting)) >= self._run_rows:
            self._write()

    def ascending(self) -> Iterator[tuple[IdPositions, ByteRows]]:
        """All rows in the order of their keys, some at a time."""
        return map(self.range, range(1 << self.n_range_bits))

    def range(self, number: int) -> tuple[IdPositions, ByteRows]:
        """The rows of one of the even ranges of keys, in the order of these."""
        if self._waiting:
            self._write()
        parts = []
        for cuts in self._cuts:
            start, end = cuts[number : number + 2].tolist()
            self._file.seek(self._width * start)
            parts.append(self._file.read(self._width * (end - start)))
        found = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, self._width)
        found = found[np.argsort(as_words(found[:, : self._n_bytes][:, self._key]), kind="stable")]
        return found[:, self._n_bytes :].copy().view("<i8")[:, 0], found[:, : self._n_bytes]

    @property
    def _width(self) -> int:
        return self._n_bytes + _POSITION_BYTES

    def _write(self) -> None:
        """Write what waits as a run."""
        rows = np.concatenate(self._waiting)
        self._waiting = []
        ranges = first_bits(rows[:, : self._n_bytes][:, self._key], self.n_range_bits)
        order = np.argsort(ranges, kind="stable")
        start = self._file.seek(0, 2) // self._width
        self._file.write(rows[order].tobytes())
        self._cuts.append(start + np.searchsorted(ranges[order], np.arange((1 << self.n_range_bits) + 1)))


def joined(pieces: Iterable[IdPositions], length: int) -> IdPositions:
    """Positions that come in pieces, so many in all, of which there is one copy."""
    found, start = np.empty(length, np.int64), 0
    for piece in pieces:
        found[start : start + len(piece)] = piece
        start += len(piece)
    return found


def first_bits(keys: ByteRows, n_bits: int) -> NDArray[np.uint16]:
    """The number that the first bits of each key are; at most 16 bits."""
    words = np.ascontiguousarray(keys[:, :2]).view(">u2")[:, 0]
    return (words.astype(np.uint32) >> (16 - n_bits)).astype(np.uint16)


def as_words(rows: ByteRows) -> NDArray[np.bytes_]:
    """Rows as words of one width, which are equal exactly if all their bytes are."""
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").reshape(-1)
