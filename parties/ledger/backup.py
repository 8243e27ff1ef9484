"""Copies of a ledger: its file, with lines, drawn cells and keys, and the head that tells how many lines there are.

A copy is taken at one moment, whoever uses the ledger then. It is put back only where the ledger is lost or damaged:
an older copy of a sound one would forget what was released since, and release it again. The key of held-out records,
which lies beside the ledger, goes with it, and is put back where it is lost. Counts of answers do not: an older copy
would allow once more what was answered since.
"""

from __future__ import annotations

import json
import os
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path

from parties.errors import LedgerBusy, LedgerError
from parties.ledger.chain_head import read_head
from parties.ledger.counts_name import note_restored
from parties.ledger.release_ledger import Ledger
from parties.storage.atomic_files import copy, make_folder, partial_of, replacing, write_text
from parties.storage.paths import is_folder, is_taken, is_there, read_file
from parties.storage.sqlite import beside, check_names, reporting


def back_up(path: Path, folder: Path) -> int:
    """Copy a ledger into a folder, where there is none yet, under the name of its file; returns its number of lines.

    Raises
    ------
    LedgerError
        If the ledger cannot be trusted, or the folder has one.
    RunFolderError
        If the folder cannot be written or looked at.
    """
    make_folder(folder)
    target = folder / _own_name(path)
    # A backup that was killed leaves a head beside the partial file of a ledger, and is made anew.
    if is_taken(target) or (is_taken(_head(target)) and not is_taken(partial_of(target))):
        raise LedgerError(f"{folder} holds a copy of a ledger; choose another folder. Nothing was copied")
    with Ledger(path, create=False) as ledger, replacing(target) as unfinished:
        with closing(sqlite3.connect(unfinished)) as taken, reporting(target):
            ledger.backup(taken)
            number, digest = taken.execute("SELECT number, digest FROM lines ORDER BY number DESC").fetchone()
            taken.execute("PRAGMA journal_mode = DELETE")
        # The ledger's name comes last: without these two, it would be no copy.
        _copy_keys(_head(path).parent, folder)
        write_text(_head(target), json.dumps({"lines": number, "digest": digest}))
    return _verified(target)


def restore(folder: Path, path: Path, *, older: bool = False) -> int:
    """Put a copy back where the ledger is lost or damaged; what is there is kept under another name.

    Parameters
    ----------
    folder : Path
    path : Path
        Of the ledger.
    older : bool
        Whether a copy may be put back that lacks lines which the ledger's head says there were, or where no head says.

    Raises
    ------
    LedgerError
        If the copy cannot be trusted, the ledger is sound or in use, or it had more lines. Nothing was restored.
    RunFolderError
        If the ledger's place cannot be written or looked at.
    """
    source = folder / _own_name(path)
    if not is_there(source):
        # Earlier versions named a copy after the link.
        source = folder / path.name
    n_lines = _verified(source)
    if is_there(path):
        check_names(path)
    if is_there(path) and _is_sound(path):
        raise LedgerError(f"{path} is sound: a copy would forget what was released since. Nothing was restored")
    n_known = _lines_known(path, source)
    if not older and (n_known is None or n_known > n_lines):
        known = f"nothing tells how many lines {path} had" if n_known is None else f"{path} had {n_known} lines"
        raise LedgerError(
            f"{known}, and the copy has {n_lines}: what others released would be released again and not be counted. "
            "Take the latest copy, and say --older if it may lack lines. Nothing was restored"
        )
    make_folder(path.parent)
    # A link stays: what it leads to is the ledger of whoever else has it.
    link, path = path, Path(os.path.realpath(path))
    if not is_folder(path.parent):
        raise LedgerError(f"{link} leads to {path}, and there is no folder {path.parent}. Nothing was restored")
    # Over a sound ledger, nothing is put back any more.
    _copy_keys(folder, path.parent)
    with reporting(path), replacing(path) as unfinished:
        # What has no room is known before anything is moved.
        unfinished.write_bytes(source.read_bytes())
        # Pages of another copy, whose process was killed, are none of this one's.
        for log in _with_logs(unfinished)[1:]:
            log.unlink(missing_ok=True)
        note_restored(unfinished)
        end = _end_of_damaged(path)
        if _head(path).exists():
            copy(_head(path), _head(path).with_name(_head(path).name + end))
        # Before the ledger is away: of one without a head, the next job would begin another that knows of no release.
        copy(_head(source), _head(path))
        for file in filter(Path.exists, _with_logs(path)):
            file.rename(file.with_name(file.name + end))
    return _verified(path)


def _own_name(path: Path) -> str:
    """The name of a ledger's file, whatever link the path is: links of one name may lead to several ledgers."""
    return os.path.basename(os.path.realpath(path))


def _with_logs(path: Path) -> tuple[Path, ...]:
    """A ledger's file and those of SQLite beside it."""
    return path, *(path.with_name(path.name + log) for log in ("-wal", "-shm"))


def _end_of_damaged(path: Path) -> str:
    """What the names of a damaged ledger's files end with: none of them is taken."""
    taken = {file.name for file in path.parent.iterdir()}
    names = [file.name for file in (_head(path), *_with_logs(path))]
    numbered = (".damaged" if n == 1 else f".damaged.{n}" for n in count(1))
    return next(end for end in numbered if taken.isdisjoint(name + end for name in names))


def _copy_keys(source: Path, target: Path) -> None:
    """Copy the keys of held-out records that the target lacks."""
    with reporting(target):
        for file in source.glob("held_out.*.json"):
            if not (target / file.name).exists():
                with replacing(target / file.name) as unfinished:
                    unfinished.write_bytes(read_file(file))


def _verified(path: Path) -> int:
    with Ledger(path, create=False) as ledger:
        ledger.verify()
        return ledger.n_lines


def _is_sound(path: Path) -> bool:
    try:
        _verified(path)
    except LedgerBusy:
        # Whoever holds it for so long that it cannot be looked at would go on charging a file that is none any more.
        raise LedgerError(
            f"{path} is in use, and not known to be damaged; end what uses it. Nothing was restored"
        ) from None
    except LedgerError:
        return False
    return True


def _head(path: Path) -> Path:
    return beside(path, ".head.json")


def _lines_known(path: Path, source: Path) -> int | None:
    """The number of lines that a ledger had; None where its head is lost, damaged or of another ledger."""
    try:
        head = read_head(_head(path))
    except (OSError, ValueError):
        return None
    with closing(sqlite3.connect(f"{source.absolute().as_uri()}?mode=ro", uri=True)) as lines, reporting(source):
        found = lines.execute("SELECT digest FROM lines WHERE number = ?", (head.lines,)).fetchone()
    return head.lines if found in (None, (head.digest,)) and head.lines > 0 else None
