"""Step 3: released codes to dense ranks, and back from a rank to a threshold."""

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
        """The place between rank `rank` and its right neighbour: ``x <= threshold`` means "rank <= r".

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
class RankedColumn:
    """One column of ranks, ready to be sent.

    Attributes
    ----------
    source : str
        The column of the schema that it comes from.
    category : int or None
        For an indicator: the position of its category in the schema's list.
    ranks : ndarray of uint32, shape (n_rows,)
        ``0 .. n_ranks - 1``; missing rows hold ``n_ranks``.
    table : RankTable
    has_missing : bool
    """

    source: str
    category: int | None
    ranks: Ranks
    table: RankTable
    has_missing: bool


def dense_ranks(codes: KeptCodes) -> tuple[Ranks, Codes]:
    """Dense ranks of `codes` (equal codes share one, no gaps) and the distinct codes, ascending.

    Over a domain not much larger than the column this takes two passes and no sort.
    """
    if len(codes) == 0:
        return np.empty(0, np.uint32), np.empty(0, np.int64)
    lowest, highest = int(codes.min()), int(codes.max())
    if highest - lowest > 4 * len(codes) + (1 << 20):
        distinct, places = np.unique(codes.astype(np.int64), return_inverse=True)
        return places.astype(np.uint32), distinct
    occupied = np.zeros(highest - lowest + 1, dtype=np.bool_)
    pieces = [slice(start, start + PIECE_ROWS) for start in range(0, len(codes), PIECE_ROWS)]
    for piece in pieces:
        occupied[codes[piece].astype(np.int64) - lowest] = True
    rank_of = np.cumsum(occupied, dtype=np.uint32) - np.uint32(1)
    ranks: Ranks = np.empty(len(codes), np.uint32)
    for piece in pieces:
        ranks[piece] = rank_of[codes[piece].astype(np.int64) - lowest]
    return ranks, np.flatnonzero(occupied) + lowest


def rank(released: ReleasedColumn) -> Iterator[RankedColumn]:
    """Rank a released column; an unordered one gives an indicator of ranks 0 and 1 per category."""
    if released.schema.kind is not Kind.UNORDERED:
        yield _ranked(released, None, released.codes)
        return
    for position in range(len(released.schema.categories)):
        yield _ranked(released, position, indicator(released, position))


def indicator(released: ReleasedColumn, category: int) -> KeptCodes:
    """1 where the released category is the one at this position of the schema's list, else 0."""
    return (released.codes == category).astype(released.codes.dtype)


def _ranked(released: ReleasedColumn, category: int | None, codes: KeptCodes) -> RankedColumn:
    has_missing = bool(released.is_missing.any())
    if not has_missing:
        column, distinct = dense_ranks(codes)
    else:
        ranks, distinct = dense_ranks(codes[~released.is_missing])
        column = np.full(len(codes), len(distinct), dtype=np.uint32)
        column[~released.is_missing] = ranks
    return RankedColumn(released.schema.name, category, column, RankTable(distinct), has_missing)
