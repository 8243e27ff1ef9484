"""A released column of given codes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from opboost.ranking import RankTable


class CodesColumn:
    """A released column of codes without missing cells, as its owner keeps it."""

    def __init__(self, codes: np.ndarray) -> None:
        self.source, self.category, self.has_missing, self.number = "spend", None, False, 0
        self.table, self.ranking = RankTable(np.unique(codes)), self
        self._ranks = np.searchsorted(self.table.codes, codes)

    def ranks(self) -> Iterator[np.ndarray]:
        yield self._ranks
