"""Cache: arrays that follow from some content, in a folder named after it, in files that anyone may remove."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from protocols.private_files import private_folder, private_opener

# Folders that are kept, the latest ones: a table, and those of its rows that were common, of two versions of a file.
KEPT_FOLDERS = 4

Arrays = Mapping[str, Any]


class ArrayCache:
    """Arrays in a folder; what is written there counts once it is settled.

    Parameters
    ----------
    folder : Path
        Named after the content that the arrays follow from.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self._waiting = folder, folder.with_name(f".{uuid4().hex}")

    def get(self, name: str, make: Callable[[], Arrays]) -> Arrays:
        """Arrays whose checksums hold; else they are made and, if that can be done, written."""
        # Damaged archives make numpy and zipfile raise whatever they come upon.
        with suppress(Exception), (self._folder / name).open("rb") as file, np.load(file) as arrays:
            return dict(arrays)
        made = make()
        with suppress(OSError):
            private_folder(self._waiting)
            with open(self._waiting / name, "wb", opener=private_opener) as target:
                np.savez(target, **made)
        return made

    def settle(self, is_valid: Callable[[], bool] = lambda: True) -> None:
        """Let what was written count, or forget it; the oldest folders beside this one make room."""
        with suppress(OSError):
            if self._waiting.exists() and is_valid():
                private_folder(self._folder)
                for file in self._waiting.iterdir():
                    file.replace(self._folder / file.name)
            shutil.rmtree(self._waiting)
            for folder in sorted(self._folder.parent.iterdir(), key=lambda path: path.stat().st_mtime)[:-KEPT_FOLDERS]:
                shutil.rmtree(folder)
