"""Memory-mapped ranks: a column in a file, of which only the requested rows are mapped."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class MappedRanks:
    """A memory-mapped column of ranks.

    Attributes
    ----------
    path : Path
        Holds numbers of one kind, one per row, and nothing else.
    kind : dtype
        Little-endian unsigned integers.
    n_rows : int
    """

    path: Path
    kind: np.dtype[np.unsignedinteger]
    n_rows: int

    def __len__(self) -> int:
        return self.n_rows

    def __getitem__(self, rows: slice, /) -> NDArray[np.unsignedinteger]:
        start, stop, _ = rows.indices(self.n_rows)
        if start >= stop:
            return np.empty(0, self.kind)
        place = start * self.kind.itemsize
        return np.memmap(self.path, dtype=self.kind, mode="r", offset=place, shape=(stop - start,))
