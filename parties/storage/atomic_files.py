"""Atomic files: written whole or not at all, and readable by their owner alone (`protocols.private_files`)."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from parties.errors import RunFolderError
from protocols.private_files import private_folder, private_opener, sync_folder

_SUFFIX = ".partial"

# Who looks whether a folder is locked holds its lock for a moment, which is no reason to refuse a job.
LOOK_S = 0.3


@contextmanager
def replacing(path: Path, *, writer: str = "") -> Iterator[Path]:
    """Replace a file atomically: yields an empty file of mode 0600 to write, which then takes its place.

    It is flushed to disk before that, and its name afterwards: what is written, such as the model of a run whose
    journal goes next, is there after a power cut.

    Parameters
    ----------
    path : Path
    writer : str
        Tells apart writers that may be at work on one file at the same time; the last one's stays.

    Raises
    ------
    RunFolderError
        If it cannot be written, or is there and no file: a device or a pipe would be gone for everybody.
    """
    _check_kind(path)
    try:
        with replacing_any(path, writer=writer) as partial:
            yield partial
    except OSError as error:
        raise RunFolderError(f"{path} cannot be written: {error.strerror or type(error).__name__}") from None


@contextmanager
def replacing_any(path: Path, *, writer: str = "") -> Iterator[Path]:
    """Replace as `replacing` does, whatever is there, and with errors of the file system as they are."""
    partial = partial_of(path, writer=writer)
    try:
        partial.unlink(missing_ok=True)
        open(partial, "x", opener=private_opener).close()
        yield partial
        _flush(partial)
        partial.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


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


def check_writable(path: Path, *, makes_folders: bool = False) -> None:
    """Refuse a place at which nothing can be written, before there is anything to write.

    Parameters
    ----------
    path : Path
    makes_folders : bool
        Whether folders above it will be made.

    Raises
    ------
    RunFolderError
    """
    _check_kind(path)
    folder = path.absolute().parent
    if makes_folders:
        folder = nearest_there(folder)
    if not takes_files(folder):
        raise RunFolderError(f"{path} cannot be written: {folder} is no folder, or may not be written to")


def nearest_there(path: Path) -> Path:
    """What is at a path, or else at the nearest place above it, in which missing folders would be made.

    A link that leads nowhere is such a thing: no folder is made in its place, nor where it leads.
    """
    path = path.absolute()
    return next(one for one in (path, *path.parents) if os.path.lexists(one))


def takes_files(folder: Path) -> bool:
    """Whether a folder is there, and files and folders may be made in it."""
    return is_folder(folder) and os.access(folder, os.W_OK | os.X_OK)


def _check_kind(path: Path) -> None:
    with writing(path):
        kind = odd_kind(path) if path.exists() else None
    if kind is not None:
        raise RunFolderError(f"{path} cannot be written: it is {kind}, which no file replaces")


def partial_of(path: Path, *, writer: str = "") -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}{writer}{_SUFFIX}")


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the file system on a file or folder that is written into one sentence, a `RunFolderError`."""
    return _telling(path, "written")


def reading(path: Path) -> AbstractContextManager[None]:
    """The same of what is read."""
    return _telling(path, "read")


@contextmanager
def _telling(path: Path, what_for: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"{path} cannot be {what_for}: {error.strerror}") from None


def is_there(path: Path) -> bool:
    """Whether anything is at a place to read from.

    Raises
    ------
    RunFolderError
        If that may not be known: run folders are their owner's alone, and somebody else may ask for a status.
    """
    with reading(path):
        return path.exists()


def is_taken(path: Path) -> bool:
    """Whether anything is at a place to write to; a link that leads nowhere is something, too.

    Raises
    ------
    RunFolderError
        If nothing can be there: the path is too long, or goes through a file.
    """
    with writing(path):
        return path.is_symlink() or path.exists()


def real_places(path: Path) -> tuple[Path, Path]:
    """Where a path leads, and where it lies itself, which is another place if it is a link."""
    return Path(os.path.realpath(path)), Path(os.path.realpath(path.parent), path.name)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for its owner alone; an existing one stays as it is.

    Raises
    ------
    RunFolderError
        If it cannot be made.
    """
    with writing(path):
        private_folder(path)


def _flush(path: Path) -> None:
    """Flush a file to disk, whoever wrote it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, in UTF-8 whatever the terminal's encoding is: so are run files and schemas read.

    Bytes of a file's name that are no text are written as escapes.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def read_file(path: Path) -> bytes:
    """Read a file as a whole.

    Raises
    ------
    RunFolderError
        If it cannot be read, or is no regular file: opening a named pipe waits for a writer.
    """
    with reading(path):
        kind = odd_kind(path)
        if kind is None:
            return path.read_bytes()
    raise RunFolderError(f"{path} cannot be read: it is {kind}, where a file is needed")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises
    ------
    RunFolderError
    """
    try:
        document = json.loads(read_file(path).decode())
    except (ValueError, RecursionError):
        raise RunFolderError(f"{path} is not JSON") from None
    if not isinstance(document, dict):
        raise RunFolderError(f"{path} holds no JSON object")
    return document


def copy(source: Path, target: Path) -> None:
    """Copy a file's content atomically."""
    with replacing(target) as partial:
        shutil.copyfile(source, partial)


def is_folder(path: Path) -> bool:
    """Whether a folder is there; no for whatever may not be looked at, which is told where it is read."""
    return os.path.isdir(path)


def odd_kind(path: Path) -> str | None:
    """Kind of what is at a path, if it is no regular file; None for a regular file.

    Opening a named pipe waits for a writer, and some devices never end.

    Raises
    ------
    OSError
        If nothing is there, or it cannot be looked at.
    """
    mode = path.stat().st_mode
    if stat.S_ISREG(mode):
        return None
    kinds = {stat.S_ISDIR: "a folder", stat.S_ISFIFO: "a named pipe", stat.S_ISSOCK: "a socket"}
    return next((words for holds, words in kinds.items() if holds(mode)), "a device")


def sweep(folder: Path) -> None:
    """Remove partial files that a crash left."""
    for partial in folder.iterdir():
        if is_half_written(partial):
            partial.unlink(missing_ok=True)


def is_half_written(path: Path) -> bool:
    """Whether this is the partial file of a replacement that did not end."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)
