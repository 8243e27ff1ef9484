"""Step 3, ranking: released codes to dense ranks, and a rank back to a threshold."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from opboost.arrays import Codes, KeptCodes, Ranks
from opboost.desensitize import PIECE_ROWS, ReleasedColumn
from opboost.errors import RankError
from opboost.schema import ColumnSchema, Kind


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
    """Dense ranking of a released column that is read in pieces.

    Attributes
    ----------
    source : str
        Name of the column in the schema.
    category : int or None
        Position of the category whose indicator is ranked; None for a column with an order.
    table : RankTable
    has_missing : bool
        Whether missing cells were released.
    rank_of : ndarray of uint32 or None
        Ranks of the codes from the lowest that occurs to the highest; None if these are too many for a table.
    """

    source: str
    category: int | None
    table: RankTable
    has_missing: bool
    rank_of: Ranks | None

    def ranks(self, released: ReleasedColumn) -> Ranks:
        """The ranks of some of the column's rows; missing ones hold the number of ranks."""
        codes = released.codes if self.category is None else indicator(released, self.category)
        if not self.has_missing:
            return _look_up(codes, self.table.codes, self.rank_of)
        ranks = np.full(len(codes), self.table.n_ranks, np.uint32)
        is_present = ~released.is_missing
        ranks[is_present] = _look_up(codes[is_present], self.table.codes, self.rank_of)
        return ranks


def rankings(schema: ColumnSchema, pieces: Iterable[ReleasedColumn]) -> Iterator[Ranking]:
    """Rankings of a released column that is given in pieces: one, or for an unordered column one per category.

    Those of an unordered column rank its indicators, 0 and 1.
    """
    piece_codes, has_missing = [np.empty(0, np.int64)], False
    for piece in pieces:
        is_incomplete = bool(piece.is_missing.any())
        piece_codes.append(_distinct(piece.codes[~piece.is_missing] if is_incomplete else piece.codes))
        has_missing |= is_incomplete
    codes = np.unique(np.concatenate(piece_codes))
    for category in range(len(schema.categories)) if schema.kind is Kind.UNORDERED else (None,):
        distinct = codes if category is None else np.unique(codes == category).astype(np.int64)
        yield Ranking(schema.name, category, RankTable(distinct), has_missing, _rank_of(distinct))


def indicator(released: ReleasedColumn, category: int) -> KeptCodes:
    """1 where the released category is the one at this position of the schema's list, else 0."""
    return (released.codes == category).astype(released.codes.dtype)


def _distinct(codes: KeptCodes) -> Codes:
    """The distinct codes, ascending."""
    if len(codes) == 0:
        return np.empty(0, np.int64)
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest > 4 * len(codes) + (1 << 20):
        return np.unique(codes.astype(np.int64))
    occupied = np.zeros(highest - lowest + 1, dtype=np.bool_)
    for start in range(0, len(codes), PIECE_ROWS):
        occupied[codes[start : start + PIECE_ROWS].astype(np.int64) - lowest] = True
    return np.flatnonzero(occupied) + lowest


def _rank_of(distinct: Codes) -> Ranks | None:
    """The ranks of all codes from the first of them to the last, unless there are far more of these."""
    if len(distinct) == 0 or distinct[-1] - distinct[0] > 4 * len(distinct) + (1 << 20):
        return None
    occupied = np.zeros(int(distinct[-1] - distinct[0]) + 1, np.bool_)
    occupied[distinct - distinct[0]] = True
    return np.cumsum(occupied, dtype=np.uint32) - np.uint32(1)


def _look_up(codes: KeptCodes, distinct: Codes, rank_of: Ranks | None) -> Ranks:
    if rank_of is None:
        return np.searchsorted(distinct, codes).astype(np.uint32)
    return rank_of[codes.astype(np.int64) - distinct[0]] if len(codes) else np.empty(0, np.uint32)
