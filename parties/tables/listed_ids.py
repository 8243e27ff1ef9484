"""A list of ids in a file, one in each line, that says which records of a table take part.

Lists are sorted on disk, as ids of tables are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from parties.errors import TableError
from parties.tables.data_files import reporting_faults
from parties.tables.party_table import PartyTable
from parties.tables.record_ids import PIECE_IDS, Ids, canonical
from parties.tables.sorted_ids import StoredIds, sort_ids


def select(table: PartyTable, ids_path: Path, path: Path) -> PartyTable:
    """The records whose ids are listed, one per line, in a file both parties agreed on.

    Raises
    ------
    TableError
        If the list is empty, repeats an id, or names one that the table lacks.
    """
    with reporting_faults(ids_path), ids_path.open(encoding="utf-8-sig") as file:
        listed = sort_ids(_listed(file), "refuse")
    if not len(listed.ids) or listed.n_repeated:
        raise TableError(f"{ids_path} must list at least one id and none twice; found {listed.n_rows}")
    rows = rows_of(table.ids, listed.ids)
    if n_absent := listed.n_rows - len(rows):
        with ids_path.open(encoding="utf-8-sig") as file:
            first = sort_ids((piece[:1] for piece in islice(_listed(file), 1)), "refuse").ids
        is_first = n_absent == 1 and not len(rows_of(table.ids, first))
        header = ", the one in its first line: is that a header? An id stands in every line" if is_first else ""
        raise TableError(
            f"{path} lacks {n_absent} of the {listed.n_rows} ids listed in {ids_path}{header}. Nothing was sent"
        )
    return table.take(rows)


def _listed(lines: Iterable[str]) -> Iterator[pd.Index]:
    """The ids that stand in lines, one in each that is not empty, in pieces."""
    found = (canonical(part) for line in lines for part in line.splitlines() if part.strip())
    while piece := list(islice(found, PIECE_IDS)):
        yield pd.Index(piece, dtype=object)


def rows_of(ids: Ids, wanted: Ids) -> NDArray[np.intp]:
    """Rows of some ids, as far as they are here; those on disk are not read all at once."""
    if isinstance(ids, StoredIds) and isinstance(wanted, StoredIds):
        return ids.rows_of(wanted)
    rows = ids.get_indexer(wanted[:])
    return rows[rows >= 0]
