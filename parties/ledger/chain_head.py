"""The head of a chain of lines, in a file beside them: what it tells, and how it is read and written."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from parties.errors import LedgerError
from parties.storage.atomic_files import replacing_any
from parties.storage.paths import odd_kind
from parties.storage.sqlite import beside, file_at, is_begun, reporting
from protocols.private_files import private_opener


@dataclass(frozen=True, slots=True)
class Verified:
    """Lines that were verified one by one: how many, the last one's digest, that of their bytes, that of their sums."""

    lines: int
    digest: str
    content: str
    sums: str


@dataclass(frozen=True, slots=True)
class Head:
    """What a ledger's head tells: how many lines there are, the last one's digest, and which were verified.

    Attributes
    ----------
    mark : str or None
        A digest of what the chain's owner counted, such as of releases for training, so that a reader sees without
        reading lines whether that changed. None in heads of earlier versions.
    """

    lines: int
    digest: str
    verified: Verified | None = None
    mark: str | None = None


_HEAD = TypeAdapter(Head)


def refuse_lost(path: Path) -> None:
    """Refuse a ledger that is not there, though its head is.

    Raises
    ------
    LedgerError
    """
    with reporting(path):
        is_lost = file_at(path) is None and beside(path, ".head.json").exists()
    if is_lost:
        raise LedgerError(f"{path} is not there although its head is. Restore it from a backup. Nothing was released")


def is_chain_begun(path: Path) -> bool:
    """Whether a ledger is there.

    Raises
    ------
    LedgerError
        If it was lost, or if the path is a symbolic link to a file that is not there.
    RunFolderError
        If that may not be known.
    """
    refuse_lost(path)
    return is_begun(path)


def read_head(path: Path) -> Head:
    """Read the head of a ledger; a ValueError says that it is none, an OSError that it cannot be read."""
    if kind := odd_kind(path):
        raise OSError(errno.EINVAL, f"{path.name} is {kind}")
    return _HEAD.validate_json(path.read_bytes(), strict=True)


def write_private(path: Path, content: bytes) -> None:
    """Write a file that its owner alone can read, as a whole; it outlives a power cut."""
    with replacing_any(path) as partial, open(partial, "wb", opener=private_opener) as file:
        file.write(content)
