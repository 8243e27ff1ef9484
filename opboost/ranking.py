"""Step 3, ranking: released codes to dense ranks, and a rank back to a threshold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from opboost.arrays import Codes, KeptCodes, Ranks
from opboost.desensitize import PIECE_ROWS, ReleasedColumn
from opboost.errors import RankError
from opboost.schema import Kind


@dataclass(frozen=True, slots=True)
class RankTable:
    """The distinct released codes of a column, ascending: rank r stands for ``codes[r]``.

    Stays with the column's owner; the other party learns ranks, and thresholds only where the owner agrees.
    """

    codes: Codes

    @property
    def n_ranks(self) -> int:
        return len(self.codes)

    def threshold(self, rank: int) -> float:
        """Threshold between rank `rank` and its right neighbour: ``x <= threshold`` means "rank <= r".

        Raises
        ------
        RankError
            If the rank has no right neighbour. It is refused, not clamped: such a split separates nothing.
        """
        if not 0 <= rank < self.n_ranks - 1:
            raise RankError(
                f"rank {rank} has no right neighbour; a split needs a rank in 0..{self.n_ranks - 2}. "
                "No threshold was revealed"
            )
        return (int(self.codes[rank]) + int(self.codes[rank + 1])) / 2


@dataclass(frozen=True, slots=True)
class Ranking:
    """Dense ranking of a released column that is read some rows at a time.

    Attributes
    ----------
    source : str
    category : int or None
    table : RankTable
    has_missing : bool
    rank_of : ndarray of uint32 or None
        Ranks of the codes from the lowest that occurs to the highest; None if these are too many for a table.
    """

    source: str
    category: int | None
    table: RankTable
    has_missing: bool
    rank_of: Ranks | None

    def ranks(self, released: ReleasedColumn, rows: slice) -> Ranks:
        """The ranks of some rows; missing ones hold the number of ranks."""
        codes = released.codes[rows]
        codes = codes if self.category is None else _indicates(codes, self.category)
        if not self.has_missing:
            return _look_up(codes, self.table.codes, self.rank_of)
        is_missing = released.is_missing[rows]
        found = np.full(len(codes), self.table.n_ranks, np.uint32)
        found[~is_missing] = _look_up(codes[~is_missing], self.table.codes, self.rank_of)
        return found


def rankings(released: ReleasedColumn) -> Iterator[Ranking]:
    """Dense rankings of a released column; an unordered column gives one indicator per category."""
    is_unordered = released.schema.kind is Kind.UNORDERED
    has_missing = bool(released.is_missing.any())
    for category in range(len(released.schema.categories)) if is_unordered else (None,):
        codes = released.codes if category is None else indicator(released, category)
        distinct, rank_of = _occupied(codes[~released.is_missing] if has_missing else codes)
        yield Ranking(released.schema.name, category, RankTable(distinct), has_missing, rank_of)


def indicator(released: ReleasedColumn, category: int) -> KeptCodes:
    """1 where the released category is the one at this position of the schema's list, else 0."""
    return _indicates(released.codes, category)


def _indicates(codes: KeptCodes, category: int) -> KeptCodes:
    return (codes == category).astype(codes.dtype)


def _occupied(codes: KeptCodes) -> tuple[Codes, Ranks | None]:
    """The distinct codes, ascending, and the ranks of all codes from the first of them to the last."""
    if len(codes) == 0:
        return np.empty(0, np.int64), None
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest > 4 * len(codes) + (1 << 20):
        return np.unique(codes.astype(np.int64)), None
    occupied = np.zeros(highest - lowest + 1, dtype=np.bool_)
    for start in range(0, len(codes), PIECE_ROWS):
        occupied[codes[start : start + PIECE_ROWS].astype(np.int64) - lowest] = True
    return np.flatnonzero(occupied) + lowest, np.cumsum(occupied, dtype=np.uint32) - np.uint32(1)


def _look_up(codes: KeptCodes, distinct: Codes, rank_of: Ranks | None) -> Ranks:
    if rank_of is None:
        return np.searchsorted(distinct, codes).astype(np.uint32)
    return rank_of[codes.astype(np.int64) - distinct[0]] if len(codes) else np.empty(0, np.uint32)
