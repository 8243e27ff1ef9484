"""File of prepared ids: a passive party's under a key of several runs, for few ids of an active party."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np

from parties.storage.atomic_files import replacing
from parties.storage.spool import on_disk
from parties.tables.party_table import PartyTable, id_keys
from protocols.alignment.curve_prf import PreparedIds


def prepared_ids(path: Path, table: PartyTable) -> PreparedIds:
    """Ids of a table, from the file if it holds these very ids; otherwise under a fresh key, and kept there.

    Notes
    -----
    Privacy: the file holds the key and is its owner's alone. With it and what was sent to a peer, ids can be tried out.
    """
    # Damaged archives make numpy and zipfile raise whatever they come upon.
    with suppress(Exception), path.open("rb") as file, np.load(file) as kept:
        if str(kept["digest"]) == table.id_digest:
            return PreparedIds(kept["key"].tobytes(), kept["values"], kept["order"])
    with on_disk("ids that are compared"):
        made = PreparedIds.of(id_keys(table), lambda step, done, total: None)
    key = np.frombuffer(made.key, np.uint8)
    with replacing(path) as partial, partial.open("wb") as target:
        np.savez(target, digest=np.array(table.id_digest), key=key, values=made.values, order=made.order)
    return made
