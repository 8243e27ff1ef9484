"""Cache: arrays that follow from the content of files, in folders named after that content.

Whatever is absent or damaged is made anew, so a folder may be removed at any time.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from parties.errors import RunFolderError
from parties.storage.atomic_files import make_folder, replacing

# Folders that are kept, the latest ones: a table, and those of its rows that were common, of two versions of a file.
KEPT_FOLDERS = 4


def kept_arrays(path: Path) -> Mapping[str, NDArray[Any]] | None:
    """The arrays of a file, whose checksums hold; None if they are to be made anew."""
    try:
        with path.open("rb") as file, np.load(file) as arrays:
            return dict(arrays)
    except Exception:
        # Damaged archives make numpy and zipfile raise whatever they come upon.
        return None


def keep_arrays(path: Path, **arrays: Any) -> None:
    """Write arrays to a file of a cache, if that can be done; the oldest folders beside its own make room."""
    with suppress(RunFolderError, OSError):
        if not path.parent.exists():
            make_folder(path.parent)
            folders = sorted(path.parent.parent.iterdir(), key=lambda folder: folder.stat().st_mtime)
            for folder in folders[:-KEPT_FOLDERS]:
                shutil.rmtree(folder, ignore_errors=True)
        with replacing(path, writer=f".{uuid4().hex}") as unfinished, unfinished.open("wb") as file:
            np.savez(file, **arrays)
