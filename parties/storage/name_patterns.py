"""Patterns of file names, as a run file may name partitions: one * is any letters, and nothing else is special."""

from __future__ import annotations

import os
import re
from pathlib import Path


def fits(name: str, pattern: str) -> bool:
    """Whether a file's name fits a pattern; one that begins with a dot fits only a pattern that does."""
    if name.startswith(".") and not pattern.startswith("."):
        return False
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name, re.DOTALL) is not None


def is_named_by(path: Path, pattern: Path) -> bool:
    """Whether a file, by its path without links to folders, lies in the folder of a pattern and its name fits."""
    return fits(path.name, pattern.name) and path.parent == Path(os.path.realpath(pattern.parent))
