"""Sets of records' keys of any size: ascending, each once, and no more of them in memory than are looked at together.

Keys are the first bytes of digests, so they spread evenly over all numbers: sorted pieces are cut at the same even
bounds, and what lies between two bounds is merged in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Mask
from parties.storage.spool import WINDOW_ROWS, ArraySpool

RecordKeys = NDArray[np.uint64]


class KeySet(Protocol):
    """Keys of records, ascending and each once, of which slices are read; an array is one."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice, /) -> RecordKeys: ...


def distinct(keys: RecordKeys) -> RecordKeys:
    """Each key once, ascending. Sorting is several times as fast as `numpy.unique` on a million random keys."""
    ascending = np.sort(keys)
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending if is_first.all() else ascending[is_first]


def kept_set(pieces: Iterable[RecordKeys], n_keys: int) -> KeySet:
    """The set of at most `n_keys` keys that come in pieces in any order; a large one lies on disk."""
    if n_keys <= WINDOW_ROWS:
        return distinct(np.concatenate([np.empty(0, np.uint64), *pieces]))
    runs, kept = ArraySpool(), ArraySpool()
    sorted_runs = [runs.view(runs.put(np.sort(piece))) for piece in pieces]
    n_parts = -(-n_keys // WINDOW_ROWS)
    bounds = [np.uint64((i << 64) // n_parts) for i in range(1, n_parts)]
    for part in merged(sorted_runs, bounds):
        kept.put(part)
    runs.close()
    return kept.joined(np.dtype(np.uint64))


def merged(sets: Sequence[KeySet], bounds: Iterable[np.uint64]) -> Iterator[RecordKeys]:
    """The union of ascending keys, cut before each of the ascending bounds."""
    starts = [0] * len(sets)
    for bound in [*bounds, None]:
        ends = [len(one) if bound is None else _place(one, bound) for one in sets]
        parts = [one[start:end] for one, start, end in zip(sets, starts, ends, strict=True)]
        yield distinct(np.concatenate([np.empty(0, np.uint64), *parts]))
        starts = ends


def union(sets: Sequence[KeySet]) -> Iterator[RecordKeys]:
    """All keys of some sets, ascending and each once, in pieces that hold few keys of every set."""
    longest = max(sets, key=len, default=np.empty(0, np.uint64))
    return merged(sets, [longest[i : i + 1][0] for i in range(WINDOW_ROWS, len(longest), WINDOW_ROWS)])


def windows(keys: KeySet) -> Iterator[RecordKeys]:
    """The keys of a set, some at a time."""
    return (keys[start : start + WINDOW_ROWS] for start in range(0, len(keys), WINDOW_ROWS))


def is_member(keys: RecordKeys, members: KeySet) -> Mask:
    """Which of some ascending keys belong to a set."""
    found = np.zeros(len(keys), np.bool_)
    if not len(keys):
        return found
    first, end = _place(members, keys[0]), _place(members, keys[-1]) + 1
    for start in range(first, min(end, len(members)), WINDOW_ROWS):
        window = members[start : min(start + WINDOW_ROWS, end)]
        places = np.searchsorted(window, keys)
        found |= window[np.minimum(places, len(window) - 1)] == keys
    return found


def _place(keys: KeySet, bound: np.uint64) -> int:
    """How many keys of a set lie before the bound."""
    if isinstance(keys, np.ndarray):
        return int(np.searchsorted(keys, bound))
    return bisect_left(range(len(keys)), bound, key=lambda i: keys[i : i + 1][0])
