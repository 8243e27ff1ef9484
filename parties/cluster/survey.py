"""B's partitions before a release: read once on the workers, to know what would be drawn from, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from opboost.desensitize import ColumnMechanism
from parties.cluster.release_tasks import Survey, survey
from parties.errors import TableError
from parties.ledger.charged_release import planned_in_parts
from parties.ledger.ledger_lines import Release
from parties.tables.data_files import stamp_of
from parties.tables.key_sets import RecordKeys, distinct

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Partitions that were read once: every cell fits, every id comes once, nothing is drawn.

    Attributes
    ----------
    parts : tuple of Path
    stamps : tuple of (int, int)
        Of the files, before they were read.
    mechanisms : tuple of ColumnMechanism
    surveys : tuple of Survey
        One for each part.
    records : ndarray of uint64
        What the ledger knows all records by, ascending.
    """

    parts: tuple[Path, ...]
    stamps: tuple[tuple[int, int], ...]
    mechanisms: tuple[ColumnMechanism, ...]
    surveys: tuple[Survey, ...]
    records: RecordKeys

    def n_clipped(self) -> dict[str, int]:
        """Per column of which there are any, values outside the public bounds that are moved to them."""
        counts = (sum(counts) for counts in zip(*(found.n_clipped for found in self.surveys), strict=True))
        return {m.schema.name: n for m, n in zip(self.mechanisms, counts, strict=True) if n}

    def releases(self, *, is_secure: bool) -> list[Release]:
        """What releasing all columns would be entered as, and what it would cost; nothing is charged."""
        return planned_in_parts(
            self.mechanisms,
            list(zip(*(found.exact for found in self.surveys), strict=True)),
            [found.ids for found in self.surveys],
            self.records,
            is_secure=is_secure,
        )


def survey_partitions(
    parts: Sequence[Path], mechanisms: Sequence[ColumnMechanism], *, id_columns: Sequence[str], client: Client
) -> Surveyed:
    """Read partitions once, to know what would be drawn from them.

    Raises
    ------
    TableError, DataError
        If a part cannot be read, a cell does not fit the schema, or an id comes twice.
    """
    paths = tuple(part.resolve() for part in parts)
    stamps = tuple(stamp_of(path) for path in paths)
    look = partial(survey, mechanisms=tuple(mechanisms), id_columns=tuple(id_columns))
    surveys: list[Survey] = client.gather(client.map(look, paths, pure=False))
    n_rows = sum(found.n_rows for found in surveys)
    records = distinct(np.concatenate([found.records for found in surveys]))
    if not n_rows or len(records) < n_rows:
        raise TableError(
            f"the partitions have {n_rows} rows and {len(records)} different ids; every record must be in one row. "
            "Nothing was released"
        )
    return Surveyed(paths, stamps, tuple(mechanisms), tuple(surveys), records)
