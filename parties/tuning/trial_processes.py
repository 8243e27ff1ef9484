"""Processes of a tuning, each of which runs trials until there are enough of them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from pathlib import Path

from parties.errors import WorkersLost


def in_processes(n_jobs: int, work: Callable[[int], None], *, kept: Path) -> None:
    """Do the work in so many processes, each of which is told its number.

    Parameters
    ----------
    n_jobs : int
    work : callable
    kept : Path
        The journal of what was done.

    Raises
    ------
    WorkersLost
        If one of them was killed, as the system does where memory is short.
    """
    try:
        with ProcessPoolExecutor(n_jobs, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
            for done in [pool.submit(work, number) for number in range(n_jobs)]:
                done.result()
    except BrokenProcessPool:
        raise WorkersLost(
            f"one of {n_jobs} processes was killed; where memory is short, fewer --jobs need less of it. The trials in "
            f"{kept} are kept, and count next time"
        ) from None


def _end_with_parent() -> None:
    """Have this process end with the one that began it: if that was killed, it would wait for work for ever."""
    parent = parent_process()
    assert parent is not None

    def watch() -> None:
        wait([parent.sentinel])
        os._exit(1)

    threading.Thread(target=watch, name="opboost parent", daemon=True).start()
