"""Sets of records' names of any size: ascending, each once, and no more of them in memory than are looked at together.

Names are the first bytes of digests, so they spread evenly over all that there can be: sorted pieces are cut at the
same even bounds, and what lies between two bounds is merged in memory.

An earlier version knew records by the first half of their names. Such a half stands for every record whose name starts
with it; sets of halves have a type of their own.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from parties.storage.spool import WINDOW_ROWS, ArraySpool

# Bytes of a record's name: no two records will share one.
NAME_BYTES = 16

Names = NDArray[np.bytes_]
"""Names of records in the ledger, `NAME_BYTES` bytes each. Numpy shows them without zero bytes at their end."""

NAME, HALF_NAME = np.dtype(f"S{NAME_BYTES}"), np.dtype(f"S{NAME_BYTES // 2}")


class KeySet(Protocol):
    """Names or half names, ascending and each once, of which slices are read; an array is one."""

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> Names: ...


def distinct(names: Names) -> Names:
    """Each name once, ascending. A stable sort merges a million names in ascending pieces in 0.05 s."""
    ascending = np.sort(names, kind="stable")
    is_first = np.ones(len(names), dtype=np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending if is_first.all() else ascending[is_first]


def kept_set(pieces: Iterable[Names], n_names: int, *, kind: np.dtype[Any] = NAME) -> KeySet:
    """The set of at most `n_names` names that come in pieces in any order; a large one lies on disk."""
    if n_names <= WINDOW_ROWS:
        return distinct(np.concatenate([np.empty(0, kind), *pieces]))
    runs, kept = ArraySpool(), ArraySpool()
    sorted_runs = [runs.view(runs.put(np.sort(piece, kind="stable"))) for piece in pieces]
    n_parts, n_bits = -(-n_names // WINDOW_ROWS), 8 * HALF_NAME.itemsize
    bounds = [((i << n_bits) // n_parts).to_bytes(HALF_NAME.itemsize, "big") for i in range(1, n_parts)]
    for part in merged(sorted_runs, bounds):
        kept.put(part)
    runs.close()
    return kept.joined(kind)


def merged(sets: Sequence[KeySet], bounds: Iterable[bytes]) -> Iterator[Names]:
    """The union of ascending names, cut before each of the ascending bounds."""
    starts = [0] * len(sets)
    for bound in [*bounds, None]:
        ends = [len(names) if bound is None else place_in(names, bound) for names in sets]
        parts = [names[start:end] for names, start, end in zip(sets, starts, ends, strict=True)]
        yield distinct(np.concatenate([np.empty(0, HALF_NAME), *parts]))
        starts = ends


def union(sets: Sequence[KeySet]) -> Iterator[Names]:
    """All records of some sets, ascending and each once, in pieces that hold few names of every set.

    A half name is left out where a whole one starts with it, and has zero bytes at its end otherwise.
    """
    longest = max(sets, key=len, default=np.empty(0, NAME))
    # Cut between halves, so that a whole name and its half are in one piece.
    bounds = (longest[i : i + 1][0][: HALF_NAME.itemsize] for i in range(WINDOW_ROWS, len(longest), WINDOW_ROWS))
    pieces = merged(sets, bounds)
    return map(_without_known, pieces) if any(names.dtype == HALF_NAME for names in sets) else pieces


def windows(names: KeySet) -> Iterator[Names]:
    """The names of a set, some at a time."""
    return (names[start : start + WINDOW_ROWS] for start in range(0, len(names), WINDOW_ROWS))


def is_member(names: Names, members: KeySet) -> Mask:
    """Mask of the ascending names that belong to a set; a set of half names is compared by first halves."""
    belongs, names = np.zeros(len(names), np.bool_), names.astype(members.dtype, copy=False)
    if not len(names):
        return belongs
    first, end = place_in(members, names[0]), place_in(members, names[-1]) + 1
    for start in range(first, min(end, len(members)), WINDOW_ROWS):
        window = members[start : min(start + WINDOW_ROWS, end)]
        places = np.searchsorted(window, names)
        belongs |= window[np.minimum(places, len(window) - 1)] == names
    return belongs


def _without_known(names: Names) -> Names:
    """Ascending names without the halves that a whole one starts with, which comes next."""
    halves = names.astype(HALF_NAME)
    is_known = np.zeros(len(names), np.bool_)
    is_known[:-1] = (names[:-1] == halves[:-1]) & (halves[1:] == halves[:-1])
    return names[~is_known]


def place_in(keys: KeySet, bound: bytes) -> int:
    """Number of names of a set before the bound."""
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, bound))
    # Numpy shows names without zero bytes at their end.
    return bisect_left(range(len(keys)), bound.rstrip(b"\0"), key=lambda i: keys[i : i + 1][0])
