"""Creation of private files and folders (modes 0600 and 0700), whatever the umask of the process is.

Everything that a party writes is created here: folders with mode 0700, files with mode 0600. A umask can only take
permissions away, so none has to be set, which would hold for other threads and for the caches of libraries, too.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path

# Up to this size temporary files stay in memory.
MEMORY_BYTES = 4 << 20


def private_folder(path: Path) -> None:
    """Make a folder, and those above it that are not there yet, each with mode 0700; one that is there stays as it is.

    Raises
    ------
    OSError
        If it cannot be made, or something else has its name.
    """
    try:
        path.mkdir(mode=0o700)
    except FileNotFoundError:
        if path.parent == path:
            raise
        private_folder(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except OSError:
        if not path.is_dir():
            raise


def private_opener(path: str, flags: int) -> int:
    """The `opener` of the built-in `open`: a file that is created has mode 0600 from the beginning."""
    return os.open(path, flags, 0o600)


def sync_folder(path: Path) -> None:
    """Flush a folder's names to disk, where that can be: what was renamed stays so after a power cut."""
    # Some file systems cannot, and a folder that may only be written to is not opened.
    with suppress(OSError):
        flush(path)


def flush(path: Path) -> None:
    """Flush a file or a folder to disk, whoever wrote it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def temporary_file(owner: object) -> tempfile.SpooledTemporaryFile[bytes]:
    """A file without a name, in memory while it is small, that is closed with its owner."""
    file = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES)  # noqa: SIM115 - closed with its owner
    weakref.finalize(owner, _closed, file)
    return file


def _closed(file: tempfile.SpooledTemporaryFile[bytes]) -> None:
    # What no disk had room for is written once more, and raised about once more.
    with suppress(OSError):
        file.close()
