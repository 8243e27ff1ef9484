"""Number of threads of the compiled kernels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from numba import get_num_threads, set_num_threads

# Cells of a table that keep a further thread busy. Below, threads wait for each other longer than they work.
CELLS_PER_THREAD = 50_000

# What the system counts: "0.20 0.18 0.12 1/80 11206", of 80 threads one is running or waits for a core.
LOAD = Path("/proc/loadavg")


def n_threads() -> int:
    """The threads that loops take now."""
    return int(get_num_threads())


def threads_of(n_cells: int) -> int:
    """The threads that loops may take now, and no more than a table of so many cells keeps busy."""
    return max(1, min(n_threads(), n_cells // CELLS_PER_THREAD))


def idle_cores() -> int:
    """Cores that this thread finds without other work at this moment, its own included; all where the load is unknown.

    The threads of a loop wait for the slowest. One that shares its core with other work holds up all of them, at every
    level of every tree: on a busy machine two threads were seen to take twenty times as long as one.
    """
    n_cores = os.cpu_count() or 1
    try:
        running = int(LOAD.read_text().split()[3].partition("/")[0])
    except (OSError, ValueError, IndexError):
        return n_cores
    return max(1, n_cores - max(running - 1, 0))


@contextmanager
def threads_for(n_cells: int) -> Iterator[Callable[[], None]]:
    """Take no more threads than a table of so many cells keeps busy, nor than there are idle cores.

    Yields
    ------
    callable
        Looks again how many cores are idle.
    """
    allowed, wanted = n_threads(), threads_of(n_cells)

    def look() -> None:
        set_num_threads(min(wanted, idle_cores()) if wanted > 1 else 1)

    look()
    try:
        yield look
    finally:
        set_num_threads(allowed)


@contextmanager
def at_most_threads(n: int | None) -> Iterator[None]:
    """Take no more than so many threads; None and -1 bound nothing."""
    allowed = n_threads()
    set_num_threads(allowed if n in (None, -1) else min(allowed, n))
    try:
        yield
    finally:
        set_num_threads(allowed)
