"""Number of threads of the compiled kernels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from numba import get_num_threads, set_num_threads

# Cells of a table that keep a further thread busy. Below, threads wait for each other longer than they work.
CELLS_PER_THREAD = 50_000


def n_threads() -> int:
    """The threads that loops take now."""
    return int(get_num_threads())


def threads_for(n_cells: int) -> AbstractContextManager[None]:
    """Take no more threads than a table of so many cells keeps busy."""
    return at_most_threads(max(1, n_cells // CELLS_PER_THREAD))


@contextmanager
def at_most_threads(n: int | None) -> Iterator[None]:
    """Take no more than so many threads; None and -1 bound nothing."""
    allowed = get_num_threads()
    set_num_threads(allowed if n in (None, -1) else min(allowed, n))
    try:
        yield
    finally:
        set_num_threads(allowed)
