"""Which files and folders other users of a machine could read or change, and a look at them while jobs are at work."""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self


@contextmanager
def open_umask() -> Iterator[None]:
    """Let the system take no permission away from what this process and its children create."""
    before = os.umask(0)
    try:
        yield
    finally:
        os.umask(before)


def exposed(root: Path) -> set[str]:
    """Files and folders at or below `root` that others may use, with their modes."""
    return {f"{mode:04o} {path}" for path, mode in _modes(root) if _is_exposed(path, mode)}


def _is_exposed(path: Path, mode: int) -> bool:
    # Others may read a public key, and never change it.
    return bool(mode & (0o022 if path.suffix == ".public" else 0o077))


def _modes(root: Path) -> Iterator[tuple[Path, int]]:
    for folder, _, files in os.walk(root):
        for path in (Path(folder), *(Path(folder, file) for file in files)):
            try:
                found = path.stat(follow_symlinks=False).st_mode
            except FileNotFoundError:
                continue
            # Sockets and links hold nothing.
            if stat.S_ISREG(found) or stat.S_ISDIR(found):
                yield path, stat.S_IMODE(found)


class Watch:
    """Looks at folders again and again, so that what is removed before the end is seen too.

    Parameters
    ----------
    roots : Path
        Folders that are there already.

    Attributes
    ----------
    names : set of str
        Of everything that was seen.
    exposed : set of str
        What others could use at any time.
    """

    def __init__(self, *roots: Path) -> None:
        self.names: set[str] = set()
        self.exposed: set[str] = set()
        self._roots = roots
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        self._look()

    def _run(self) -> None:
        while not self._is_over.wait(0.01):
            self._look()

    def _look(self) -> None:
        for root in self._roots:
            for path, mode in _modes(root):
                self.names.add(path.name)
                if _is_exposed(path, mode):
                    self.exposed.add(f"{mode:04o} {path}")
