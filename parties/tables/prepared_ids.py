"""File of prepared ids: a passive party's under a key of several runs, for few ids of an active party."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from parties.errors import ConfigError
from parties.storage.atomic_files import replacing
from parties.storage.paths import is_folder, odd_kind, writing
from parties.storage.spool import on_disk
from parties.tables.party_table import PartyTable, id_keys
from protocols.alignment.curve_prf import PreparedIds

# How an archive of numpy's begins: a member of a zip file, and 26 bytes further its name.
_MAGIC, _NAME_AT, _FIRST = b"PK\x03\x04", 30, b"digest.npy"


def check_prepared(path: Path) -> None:
    """Refuse a file that holds anything but prepared ids: it would be replaced.

    Raises
    ------
    ConfigError, RunFolderError
    """
    with writing(path):
        if not path.exists():
            if not is_folder(path.parent):
                raise ConfigError(
                    f"`align.prepared`: {path.parent}, where it is to lie, is no folder. Nothing was sent"
                )
            return
        if (kind := odd_kind(path)) is not None:
            raise ConfigError(f"`align.prepared`: {path} is {kind}, where a file is needed. Nothing was sent")
        with path.open("rb") as file:
            begin = file.read(_NAME_AT + len(_FIRST))
    if not (_MAGIC.startswith(begin[: len(_MAGIC)]) and _FIRST.startswith(begin[_NAME_AT:])):
        raise ConfigError(
            f"`align.prepared`: {path} holds something else than prepared ids, which would replace it; name another "
            "file. Nothing was sent"
        )


def prepared_ids(path: Path, table: PartyTable) -> PreparedIds:
    """Ids of a table, from the file if it holds these very ids; otherwise under a fresh key, and kept there.

    Raises
    ------
    ConfigError, RunFolderError
        If the file cannot be written, or is another one.

    Notes
    -----
    Privacy: the file holds the key and is its owner's alone. With it and what was sent to a peer, ids can be tried out.
    """
    # Damaged archives make numpy and zipfile raise whatever they come upon.
    with suppress(Exception), path.open("rb") as file, np.load(file) as kept:
        if str(kept["digest"]) == table.id_digest:
            return PreparedIds(kept["key"].tobytes(), kept["values"], kept["order"])
    check_prepared(path)
    with on_disk("ids that are compared"):
        made = PreparedIds.of(id_keys(table), lambda step, done, total: None)
    key = np.frombuffer(made.key, np.uint8)
    with replacing(path) as partial, partial.open("wb") as target:
        np.savez(target, digest=np.array(table.id_digest), key=key, values=made.values, order=made.order)
    return made
