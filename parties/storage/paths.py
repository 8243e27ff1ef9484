"""Paths: what lies at them, whether that can be read or replaced, and errors of the file system as one sentence."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from parties.errors import RunFolderError


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the file system on a file or folder that is written into one sentence, a `RunFolderError`."""
    return _rephrasing(path, "written")


def reading(path: Path) -> AbstractContextManager[None]:
    """Turn errors of the file system on a file or folder that is read into one sentence, a `RunFolderError`."""
    return _rephrasing(path, "read")


@contextmanager
def _rephrasing(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise RunFolderError(f"{path} cannot be {action}: {error.strerror}") from None


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


def real_places(path: Path) -> tuple[Path, Path]:
    """The target of a path, and the place of the path itself, which differ if it is a link."""
    return Path(os.path.realpath(path)), Path(os.path.realpath(path.parent), path.name)


def nearest_there(path: Path) -> Path:
    """The path if something is there, or else the nearest folder above it, where missing folders would be made.

    A link that leads nowhere counts as something: no folder is made in its place, nor where it leads.
    """
    path = path.absolute()
    return next(place for place in (path, *path.parents) if os.path.lexists(place))


def takes_files(folder: Path) -> bool:
    """Whether a folder is there, and files and folders may be made in it."""
    return is_folder(folder) and os.access(folder, os.W_OK | os.X_OK)


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
    check_replaceable(path)
    folder = path.absolute().parent
    if makes_folders:
        folder = nearest_there(folder)
    if not takes_files(folder):
        raise RunFolderError(f"{path} cannot be written: {folder} is no folder, or may not be written to")


def check_replaceable(path: Path) -> None:
    """Refuse a place at which something is that no file replaces."""
    with writing(path):
        kind = odd_kind(path) if path.exists() else None
    if kind is not None:
        raise RunFolderError(f"{path} cannot be written: it is {kind}, which no file replaces")


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
