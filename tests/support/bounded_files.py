"""A bound for the sizes of files, at which a write ends as on a full disk: some bytes find room, the rest none."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bounded_files(n_bytes: int) -> Iterator[None]:
    """Let no file of this process grow beyond so many bytes while the block runs."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
