"""Spool: arrays and encoded columns on disk, so that a passive party holds one column in memory at a time."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from parties.errors import RunFolderError
from protocols.private_files import temporary_file

# Up to this size an active party's columns stay in memory.
MAPPED_BYTES = 1 << 30

# Rows that are looked at together where a column, or what tells its rows, is gone through on disk.
WINDOW_ROWS = 1 << 16

# Rows of an array that is filled in any order, of which so many are in memory.
BLOCK_ROWS = 1 << 20


@contextmanager
def on_disk(what: str) -> Iterator[None]:
    """Turn errors of temporary files into one sentence.

    Raises
    ------
    RunFolderError
        If the disk is full, or there is no folder for them.
    """
    try:
        yield
    except OSError as error:
        # Not `gettempdir`, which raises where there is none.
        place = tempfile.tempdir or "a temporary folder"
        raise RunFolderError(f"{what} cannot be written to {place}: {error.strerror}. No ranks were sent") from None


class KeptNumbers(Protocol):
    """Interface of integers that are read by slices; an array is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> NDArray[np.integer]: ...


class ArraySpool:
    """Append-only store of one-dimensional arrays in an anonymous temporary file."""

    def __init__(self) -> None:
        # What reads from a spool may outlive the function that made it.
        self._file = temporary_file(self)
        self._places: list[tuple[int, int, np.dtype[Any]]] = []

    def __len__(self) -> int:
        return len(self._places)

    def put(self, array: NDArray[Any]) -> int:
        """Keep an array; returns its number.

        Raises
        ------
        RunFolderError
            If the disk is full.
        """
        self._places.append((self._file.seek(0, 2), 0, array.dtype))
        self.extend(array)
        return len(self._places) - 1

    def extend(self, piece: NDArray[Any]) -> None:
        """Add to the array that was put last.

        Raises
        ------
        RunFolderError
            If the disk is full.
        """
        start, length, kind = self._places[-1]
        with on_disk("columns that wait for their turn"):
            self._file.seek(0, 2)
            self._file.write(np.ascontiguousarray(piece, kind).view(np.uint8))
            self._file.flush()
        self._places[-1] = start, length + len(piece), kind

    def joined(self, kind: np.dtype[Any]) -> SpooledArray:
        """Concatenation of all arrays, which must be of one kind."""
        self._places.append((0, sum(length for _, length, _ in self._places), kind))
        return self.view(len(self._places) - 1)

    def view(self, number: int) -> SpooledArray:
        """An array that is read when a part of it is asked for; it holds on to the spool."""
        _, length, kind = self._places[number]
        return SpooledArray(self, number, length, kind)

    def get(self, number: int, start: int = 0, end: int | None = None) -> NDArray[Any]:
        """An array, or the part of it from `start` to `end`."""
        place, length, kind = self._places[number]
        start, end, _ = slice(start, end).indices(length)
        self._file.seek(place + start * kind.itemsize)
        return np.frombuffer(self._file.read((end - start) * kind.itemsize), dtype=kind)

    def close(self) -> None:
        """Close and delete the file."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class SpooledArray:
    """A spooled one-dimensional array that is read by slices."""

    spool: ArraySpool
    number: int
    length: int
    dtype: np.dtype[Any]

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        start, end, _ = rows.indices(self.length)
        return self.spool.get(self.number, start, max(start, end))


def mapped(columns: Iterable[NDArray[np.float64]], *, n_bytes: int) -> Iterable[NDArray[np.float64]]:
    """Columns as they are, or, beyond `MAPPED_BYTES`, in an anonymous file that the system keeps in memory if it can.

    Raises
    ------
    RunFolderError
        If the disk is full.
    """
    if n_bytes <= MAPPED_BYTES:
        return columns
    lengths = []
    with on_disk("own columns"), tempfile.TemporaryFile() as file:
        for column in columns:
            file.write(np.ascontiguousarray(column).view(np.uint8))
            lengths.append(len(column))
        file.flush()
        # Whoever writes to them does so in memory.
        found = np.memmap(file, np.float64, mode="c").view(np.ndarray)
    return np.split(found, np.cumsum(lengths)[:-1])


def scattered(
    pieces: Iterable[tuple[NDArray[np.integer], NDArray[Any]]], length: int, kind: np.dtype[Any], *, fill: int = 0
) -> SpooledArray:
    """Scatter: an array on disk from pieces of values, each with the positions of its values.

    One block of the array is in memory at a time. Where there are several, every piece is put aside, ordered by block.
    """
    result, aside = ArraySpool(), ArraySpool()
    n_blocks = max(1, -(-length // BLOCK_ROWS))
    blocks = (np.full(min(BLOCK_ROWS, length - i * BLOCK_ROWS), fill, kind) for i in range(n_blocks))
    if n_blocks == 1:
        block = next(blocks)
        for places, values in pieces:
            block[places] = values
        result.put(block)
        return result.joined(kind)
    runs = []
    for places, values in pieces:
        block_of = places // BLOCK_ROWS
        order = np.argsort(block_of, kind="stable")
        cuts = np.searchsorted(block_of[order], np.arange(n_blocks + 1)).tolist()
        runs.append((*(aside.view(aside.put(part[order])) for part in (places, values)), cuts))
    for i, block in enumerate(blocks):
        for own_places, own_values, cuts in runs:
            part = slice(cuts[i], cuts[i + 1])
            block[own_places[part] - i * BLOCK_ROWS] = own_values[part]
        result.put(block)
    aside.close()
    return result.joined(kind)
