"""Number of threads of the compiled kernels."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from numba import get_num_threads, set_num_threads

# Cells of a table that keep a further thread busy. Below, threads wait for each other longer than they work.
CELLS_PER_THREAD = 50_000

# What the system counts: "0.20 0.18 0.12 1/80 11206", of 80 threads one is running or waits for a core.
LOAD = Path("/proc/loadavg")

# Of every thread of this process: "11206 (python3) R 1 ...".
TASKS = Path("/proc/self/task")

# Seconds between two looks at what else the machine does.
INTERVAL = 0.05


def n_threads() -> int:
    """The threads that loops take now."""
    return int(get_num_threads())


def threads_of(n_cells: int) -> int:
    """The threads that loops may take now, and no more than a table of so many cells keeps busy."""
    return max(1, min(n_threads(), n_cells // CELLS_PER_THREAD))


def idle_cores() -> int:
    """Cores that this thread finds without other work at this moment, its own included; all where the load is unknown.

    The threads of a loop wait for the slowest. One that shares its core with other work holds up all of them, at every
    level of every tree: on a busy machine two threads were seen to take twenty times as long as one. The loop's own
    threads, which look for work for a while after it has ended, count as idle.
    """
    n_cores, n_helpers = os.cpu_count() or 1, n_threads() - 1
    try:
        # Counted first: those that rest before the system's count is read are then none of the others.
        running_helpers = min(_running_threads() - 1, n_helpers) if n_helpers else 0
        others = int(LOAD.read_text().split()[3].partition("/")[0]) - 1 - running_helpers
    except (OSError, ValueError, IndexError):
        return n_cores
    return max(1, n_cores - max(others, 0))


def _running_threads() -> int:
    """Threads of this process that are running or wait for a core."""
    states = (task.read_text().rpartition(") ")[2][:1] for task in TASKS.glob("*/stat"))
    return sum(state == "R" for state in states)


@contextmanager
def threads_for(n_cells: int) -> Iterator[Callable[[], None]]:
    """Take no more threads than a table of so many cells keeps busy, nor than there are idle cores.

    Yields
    ------
    callable
        Looks again how many cores are idle, if the last look is `INTERVAL` ago. A core counts as busy where two looks
        in a row find it so: even on a quiet machine, something short runs at many a moment.
    """
    allowed, wanted, looked, idle = n_threads(), threads_of(n_cells), -math.inf, 0

    def look() -> None:
        nonlocal looked, idle
        if wanted > 1 and time.monotonic() >= looked + INTERVAL:
            before, idle = idle, idle_cores()
            set_num_threads(min(wanted, max(before, idle)))
            looked = time.monotonic()

    set_num_threads(wanted)
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
