"""Number of threads of the compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from numba import get_num_threads, set_num_threads

# Cells of a table that keep a further thread busy. Below, threads wait for each other longer than they work.
CELLS_PER_THREAD = 50_000


def n_threads() -> int:
    """The threads that loops take now."""
    return int(get_num_threads())


@contextmanager
def threads_for(n_cells: int) -> Iterator[None]:
    """Take no more threads than a table of so many cells keeps busy."""
    allowed = get_num_threads()
    set_num_threads(max(1, min(allowed, n_cells // CELLS_PER_THREAD)))
    try:
        yield
    finally:
        set_num_threads(allowed)
