"""Lock of a folder against other processes, which ends with the process that holds it."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from parties.storage.paths import reading, writing

# Who looks whether a folder is locked holds its lock for a moment, which is no reason to refuse a job.
LOOK_S = 0.3


@contextmanager
def locked(folder: Path, *, wait_s: float = LOOK_S) -> Iterator[bool]:
    """Lock a folder against other processes, if none holds it for so long; yields whether that is so.

    The lock ends with the process, however that ends.
    """
    with writing(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        yield _has_lock(descriptor, fcntl.LOCK_EX, wait_s=wait_s)
    finally:
        os.close(descriptor)


def is_locked(folder: Path) -> bool:
    """Whether another process holds the lock of a folder; whoever else looks at the same time does not count."""
    with reading(folder):
        descriptor = os.open(folder, os.O_RDONLY)
    try:
        return not _has_lock(descriptor, fcntl.LOCK_SH)
    finally:
        os.close(descriptor)


def _has_lock(descriptor: int, kind: int, *, wait_s: float = 0) -> bool:
    deadline = time.monotonic() + wait_s
    while True:
        with suppress(BlockingIOError):
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.01)
