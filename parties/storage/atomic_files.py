"""Atomic files: written whole or not at all, and readable by their owner alone (`protocols.private_files`)."""

from __future__ import annotations

import errno
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from parties.errors import PartyError, RunFolderError
from parties.storage.paths import check_replaceable, is_taken, writing
from protocols.private_files import flush, private_folder, private_opener, sync_folder

_SUFFIX = ".partial"

_DIGEST_BYTES = 32


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
    check_replaceable(path)
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
        flush(partial)
        partial.replace(path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink()
        raise


def move_folder(source: Path, target: Path) -> None:
    """Move a folder of files to a place where nothing is, on another device, too: as a whole or not at all.

    Raises
    ------
    RunFolderError
        If something is there, or it cannot be written; the folder is then where it was.
    """
    partial = partial_of(target, writer=f".{uuid4().hex}")
    make_folder(target.parent)
    with writing(target):
        try:
            try:
                source.rename(partial)
            except OSError:
                # On another device.
                private_folder(partial)
                for file in source.iterdir():
                    copy(file, partial / file.name)
            if is_taken(target):
                raise FileExistsError(errno.EEXIST, "something else is there by now")
            partial.rename(target)
        except BaseException:
            if source.exists():
                shutil.rmtree(partial, ignore_errors=True)
            else:
                partial.rename(source)
            raise
    sync_folder(target.parent)
    shutil.rmtree(source, ignore_errors=True)


def write_or_keep(write: Callable[[], object], keep: Callable[[Path], object], kept: Path) -> None:
    """Write predictions, or else keep them at another place: the answers behind them were counted.

    Raises
    ------
    PartyError
        Of `write`, that says where they are kept instead, if they are.
    """
    try:
        write()
    except PartyError as error:
        try:
            keep(kept)
        except PartyError:
            raise error from None
        failed = type(error)(f"{str(error).removesuffix('. Nothing was sent')}. The predictions are in {kept}")
        for note in getattr(error, "__notes__", ()):
            failed.add_note(note)
        raise failed from None


def partial_of(path: Path, *, writer: str = "") -> Path:
    """Where a file is written before it takes its place."""
    return path.with_name(f".{path.name}{writer}{_SUFFIX}")


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for its owner alone; an existing one stays as it is.

    Raises
    ------
    RunFolderError
        If it cannot be made.
    """
    with writing(path):
        private_folder(path)


def write_text(path: Path, text: str) -> None:
    """Write a file atomically, in UTF-8 whatever the terminal's encoding is: so are run files and schemas read.

    Bytes of a file's name that are no text are written as escapes.
    """
    with replacing(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: Path, document: Any) -> None:
    """Write a JSON file atomically."""
    write_text(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_array(path: Path, array: NDArray[Any], *, writer: str = "") -> None:
    """Write an array of numbers or bytes atomically, as `numpy.load` reads it; `writer` as of `replacing`."""
    rows = np.ascontiguousarray(array)
    with replacing(path, writer=writer) as partial, partial.open("wb") as file:
        # `numpy.save` writes past the file object: where the last 4 KiB find no room, it returns as if they were there.
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.write(rows.data)


def write_digested(path: Path, content: bytes, *, writer: str = "") -> None:
    """Write bytes atomically, behind their SHA-256 digest; `writer` as of `replacing`."""
    with replacing(path, writer=writer) as partial:
        partial.write_bytes(hashlib.sha256(content).digest() + content)


def read_digested(path: Path) -> bytes | None:
    """Read what `write_digested` wrote; None if the file is damaged. An `OSError` if it cannot be read."""
    kept = path.read_bytes()
    content = kept[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == kept[:_DIGEST_BYTES] else None


def copy(source: Path, target: Path) -> None:
    """Copy a file's content atomically."""
    with replacing(target) as partial:
        shutil.copyfile(source, partial)


def sweep(folder: Path) -> None:
    """Remove partial files that a crash left."""
    for partial in folder.iterdir():
        if is_half_written(partial):
            partial.unlink(missing_ok=True)


def is_half_written(path: Path) -> bool:
    """Whether this is the partial file of a replacement that did not end."""
    return path.name.startswith(".") and path.name.endswith(_SUFFIX)
