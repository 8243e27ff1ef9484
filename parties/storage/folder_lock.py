"""Locks of folders and files against other processes, which end with the process that holds them."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from parties.storage.paths import reading, writing
from protocols.private_files import private_opener

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


@contextmanager
def locked_file(path: Path, *, wait_s: float) -> Iterator[bool]:
    """Lock a file, by one beside it that stays, if no other process holds that for so long; yields whether that is so.

    Whoever may read a folder can lock it; nobody but its owner opens this file.
    """
    beside = path.with_name(f".{path.name}.lock")
    with writing(beside):
        file = open(beside, "a", opener=private_opener)  # noqa: SIM115
    with file:
        yield _has_lock(file.fileno(), fcntl.LOCK_EX, wait_s=wait_s)


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
