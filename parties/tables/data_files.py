"""Data files: what is wrong with one is said in a sentence, without anything of what is in it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

import pandas as pd

from parties.errors import PartyError, TableError
from parties.storage.paths import is_folder, odd_kind
from protocols.transport.sanitize import readable

# Of names that a damaged header may hold, so many are told, and so many characters of each.
MAX_NAMES = 10
MAX_NAME = 40

Stamp = tuple[tuple[str, int, int], ...]
"""Names, sizes and modification times of a table's files, by which a change is noticed."""


@contextmanager
def reporting_faults(path: Path, encoding: str = "utf-8") -> Iterator[None]:
    """Say in one sentence why a file cannot be read; the block should call nothing but what reads it.

    Raises
    ------
    TableError
    """
    try:
        if (kind := odd_kind(path)) is not None:
            raise TableError(f"{path} is {kind}, where a data file is needed")
        if path.stat().st_size == 0:
            raise TableError(f"{path} is empty")
        yield
    except PartyError:
        raise
    except pd.errors.ParserError as error:
        place = re.search(r"(?:line|row) (\d+)", str(error))
        where = f" in or after line {place[1]}" if place else ""
        raise TableError(
            f"{path} is not a readable table: a row has too many cells, or a quote is not closed{where}"
        ) from None
    except Exception as error:
        # Damaged bytes make pandas, pyarrow and the decompressors raise whatever they come upon: nine kinds of
        # exceptions were seen in 60,000 damaged Parquet files, none of them documented.
        if isinstance(error, OSError) and error.strerror:
            raise TableError(f"{path} cannot be read: {error.strerror}") from None
        if isinstance(error, UnicodeDecodeError) and not is_stored(path):
            raise TableError(
                f"{path} is not a readable table: it is not text in {encoding.upper()}; `reader: {{encoding: ...}}` in "
                "the schema names another encoding"
            ) from None
        reason = "it is damaged, or not what its name says"
        raise TableError(f"{path} is not a readable table: {reason} ({type(error).__name__})") from None


def is_stored(path: Path) -> bool:
    """Whether a table is a Parquet file, or a folder of them."""
    return is_parquet(path) or is_folder(path)


def is_parquet(path: Path) -> bool:
    """Whether a file is one of Parquet, by its name in any case."""
    return path.suffix.casefold() == ".parquet"


def parts(path: Path) -> tuple[Path, ...]:
    """The files of a table: what a folder holds of Parquet files, in the order of their names, or the file itself.

    Raises
    ------
    TableError
    """
    if not is_folder(path):
        return (path,)
    if not (found := files_of(path)):
        raise TableError(f"{path} is a folder that holds no Parquet files (*.parquet). Nothing was sent")
    return found


def files_of(folder: Path) -> tuple[Path, ...]:
    """The Parquet files that lie in a folder, in the order of their names.

    Raises
    ------
    TableError
    """
    try:
        return tuple(sorted(filter(is_parquet, folder.iterdir())))
    except OSError as error:
        raise TableError(f"{folder} cannot be read: {error.strerror}. Nothing was sent") from None


def stamp_of(path: Path) -> Stamp:
    """Name, size and time of the last change of every file of a table."""
    stamps = []
    for part in parts(path):
        with reporting_faults(part):
            status = part.stat()
            stamps.append((part.name, status.st_size, status.st_mtime_ns))
    return tuple(stamps)


def check_unchanged(path: Path, stamp: Stamp) -> None:
    """Refuse a table whose files are no longer those that had this stamp.

    Raises
    ------
    TableError
    """
    if stamp_of(path) != stamp:
        raise TableError(f"{path} was changed while it was in use. Nothing more was sent")


def file_digest(path: Path) -> str:
    """SHA-256 of the digests of the bytes of a table's files."""
    digest = hashlib.sha256()
    for part in parts(path):
        with reporting_faults(part), part.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def check_names(path: Path, names: Iterable[str]) -> None:
    """Refuse a table that has several columns of one name, of which libraries would rename or drop some.

    Raises
    ------
    TableError
    """
    repeated = [name for name, n_times in Counter(names).items() if n_times > 1 and name]
    if repeated:
        raise TableError(f"{path} has several columns named {named(repeated)}; rename them or leave them out")


def named(names: Iterable[object]) -> str:
    """Names of columns for a sentence: on one line, and bounded."""
    rest = iter(names)
    shown = [readable(str(name), MAX_NAME) for name in islice(rest, MAX_NAMES)]
    n_more = sum(1 for _ in rest)
    return ", ".join(shown) + (f" and {n_more} more" if n_more else "")
