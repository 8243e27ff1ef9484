"""Columns ranked as a whole and held in memory: the slow twin of ranking some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from opboost.arrays import Codes, Ranks
from opboost.desensitize import ReleasedColumn
from opboost.ranking import RankTable, rankings
from opboost.schema import ColumnSchema


@dataclass(frozen=True, slots=True)
class RankedColumn:
    """One column of ranks; missing rows hold the number of ranks."""

    source: str
    category: int | None
    ranks: Ranks
    table: RankTable
    has_missing: bool


def rank(released: ReleasedColumn) -> Iterator[RankedColumn]:
    """Rank a released column as a whole."""
    for one in rankings(released.schema, [released]):
        yield RankedColumn(one.source, one.category, one.ranks(released), one.table, one.has_missing)


def dense_ranks(codes: Codes) -> tuple[Ranks, Codes]:
    """Dense ranks of a column of numbers, and its distinct codes, ascending."""
    released = ReleasedColumn(ColumnSchema(name="x", lower=0, upper=1), codes, np.zeros(len(codes), np.bool_))
    (one,) = rankings(released.schema, [released])
    return one.ranks(released), one.table.codes
