"""Costs of a release: as its mechanism states them, and as they are charged to the ledger.

The cells of a Local-Map are published exactly, and no epsilon covers them. They are counted in bits: one cell of n is
``log2(n)`` bits, and the best guess at a value gains by a factor of at most n.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from parties.errors import LedgerError
from parties.tables.key_sets import KeySet


class Spent(NamedTuple):
    """Spending on one column: epsilon per unit, epsilon of categories, and bits of published cells."""

    epsilon: float = 0.0
    category_epsilon: float = 0.0
    cell_bits: float = 0.0

    def times(self, n_units: int) -> Spent:
        """The spending per `n_units` units of a column."""
        return self._replace(epsilon=self.epsilon * n_units)


@dataclass(frozen=True, slots=True)
class Unit:
    """The difference that a column's epsilon is for: in the column's own unit, and in words."""

    size: float
    words: str


@dataclass(frozen=True, slots=True)
class Cells:
    """Number of cells of a Local-Map, and points of the narrowest; the cell of each value is published exactly."""

    number: int
    narrowest: int

    @property
    def bits(self) -> float:
        """Bits that the number of a value's cell reveals."""
        return math.log2(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Cost of one column's release to each of its records, as the mechanism states it.

    Attributes
    ----------
    column : str
    loss : callable
        Exact loss between two values at most so many points of the release's own domain apart; always 0 for a column
        that only randomised response protects.
    category_epsilon : float
    cells : Cells or None
        Those that are published.
    point : float
        Width of one point in the column's own unit; 0 where there is none.
    unit : Unit or None
        What the column is to be charged by if this is its first release; None where there is no distance.
    records : KeySet
        Keys of the records, ascending. Two records that share a key by accident are charged for each other.
    """

    column: str
    loss: Callable[[int], float]
    category_epsilon: float
    cells: Cells | None = None
    point: float
    unit: Unit | None
    records: KeySet


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """Charge for a release, in the column's unit.

    Attributes
    ----------
    column : str
    spent : Spent
    unit : Unit or None
    points : int
        Of the release's own domain, in that unit.
    records : KeySet
    """

    column: str
    spent: Spent
    unit: Unit | None
    points: int = 1
    records: KeySet

    def __post_init__(self) -> None:
        if not all(part >= 0 for part in self.spent):
            raise LedgerError(
                f"a release of column {self.column!r} would cost {', '.join(map(str, self.spent))}, and a cost must be "
                "a number of at least 0. Nothing was released"
            )
