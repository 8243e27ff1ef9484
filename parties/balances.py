"""What was spent of each column and of each record, and what may still be spent.

A record pays for the releases it is in and for no other, so every sum is kept per record, and a column has spent what
its worst record has. The sums are plain ones. For distance-based privacy that is exact bookkeeping: if release i tells
two values t units apart from each other by a factor of at most ``exp(t * e_i)``, independent draws together do so by
at most the product, ``exp(t * (e_1 + e_2 + ...))``. Randomised response composes in the same way, at any distance.
Over the columns of a record the losses add up as in `opboost.privacy.guarantee.compose`.

A unit is one step of the mapped domain at a column's *first* release. A later release on a finer domain or narrower
bounds spreads that unit over several of its own steps and is charged for every one of them; on a coarser domain values
one unit apart are at most one step apart, and the release is charged for that one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from opboost.arrays import Values
from parties.errors import OverBudget

RecordKeys = NDArray[np.uint64]

Sums = dict[str, tuple[float, float]]
"""By column: epsilon per unit, and epsilon of categories."""

# Sums of rounded costs may exceed a limit that they should meet by some units in the last place.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that may be spent of one column; None is no limit.

    Attributes
    ----------
    epsilon : float or None
        Per unit of the mapped domain.
    category_epsilon : float or None
        Of randomised response: for unordered categories, and for hiding whether a cell is empty.
    """

    epsilon: float | None = None
    category_epsilon: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """What a party allows to be spent, over all runs.

    Attributes
    ----------
    default : Limit
        For every column.
    columns : mapping of str to Limit
        What differs for some columns.
    per_record : float or None
        For the sum of both kinds of epsilon over all columns of one record.
    """

    default: Limit = Limit()
    columns: Mapping[str, Limit] = field(default_factory=dict)
    per_record: float | None = None

    def limit(self, column: str) -> Limit:
        """What may be spent of this column."""
        own = self.columns.get(column, Limit())
        return Limit(
            self.default.epsilon if own.epsilon is None else own.epsilon,
            self.default.category_epsilon if own.category_epsilon is None else own.category_epsilon,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the release of one column costs each of some records.

    Attributes
    ----------
    column : str
    epsilon : float
        Per step of the release's own domain; 0 for a column that only randomised response protects.
    category_epsilon : float
    step : float
        Width of that step in the column's own unit; 0 where there is none.
    records : ndarray of uint64, shape (n_records,)
        Keys of the records, ascending. Two records that share a key by accident are charged for each other.
    """

    column: str
    epsilon: float
    category_epsilon: float
    step: float
    records: RecordKeys


class Balances:
    """Sums over everything that was charged, kept per set of records that were charged together."""

    def __init__(self) -> None:
        self.units: dict[str, float] = {}
        self.columns: set[str] = set()
        self._index: dict[str, int] = {}
        self._costs: list[Sums] = []
        self._keys: RecordKeys = np.empty(0, np.uint64)
        self._set_of = np.empty(0, np.int64)
        self._new: list[tuple[RecordKeys, int]] = []

    def epsilon_per_unit(self, cost: Cost) -> float:
        """A release's epsilon per unit of its column, rather than per step of its own domain."""
        unit = self.units.get(cost.column, cost.step)
        if not unit or not cost.step:
            return cost.epsilon
        return cost.epsilon * max(1, math.ceil(unit / cost.step * (1 - ROUNDING)))

    def knows(self, set_digest: str) -> bool:
        """Whether a set of records was charged before, so that `add` needs its digest alone."""
        return set_digest in self._index

    def add(self, cost: Cost, set_digest: str) -> None:
        """Count what was charged; `cost.epsilon` is per unit already, `cost.step` is the unit."""
        if cost.step:
            self.units.setdefault(cost.column, cost.step)
        self.columns.add(cost.column)
        if set_digest not in self._index:
            self._index[set_digest] = len(self._costs)
            self._new.append((cost.records, len(self._costs)))
            self._costs.append({})
        costs = self._costs[self._index[set_digest]]
        spent = costs.get(cost.column, (0.0, 0.0))
        costs[cost.column] = (spent[0] + cost.epsilon, spent[1] + cost.category_epsilon)

    def to_dict(self) -> dict[str, Any]:
        """All sums as plain values, with sets of records by their digests."""
        sets = [[digest, self._costs[index]] for digest, index in self._index.items()]
        return {"units": self.units, "columns": sorted(self.columns), "sets": sets}

    def take_up(self, document: Mapping[str, Any], records_of: Callable[[str], RecordKeys]) -> None:
        """The inverse of `to_dict`, into sums of nothing; `records_of` gives the records of a set."""
        self.units, self.columns = dict(document["units"]), set(document["columns"])
        for digest, costs in document["sets"]:
            self._index[digest] = len(self._costs)
            self._new.append((records_of(digest), len(self._costs)))
            self._costs.append({column: (spent[0], spent[1]) for column, spent in costs.items()})

    @property
    def n_records(self) -> int:
        """How many records were ever charged."""
        return len(self._all_records())

    def worst(self, column: str) -> tuple[float, float]:
        """What was spent of a column: epsilon per unit and epsilon of categories, of the record that paid most."""
        epsilon, category = self._spent_of(column, self._all_records()).max(axis=0, initial=0.0).tolist()
        return epsilon, category

    def worst_record(self) -> float:
        """What the record that paid most has paid over all columns."""
        return float(self._total(self._all_records()).max(initial=0.0))

    def check(self, costs: Sequence[Cost], budget: Budget) -> None:
        """Refuse costs that would exceed a limit for any record.

        Raises
        ------
        OverBudget
            With every limit that would be exceeded.
        """
        excess = [line for cost in costs for line in self._column_excess(cost, budget.limit(cost.column))]
        if budget.per_record is not None:
            sets = {id(cost.records): cost.records for cost in costs}
            records = distinct(np.concatenate([np.empty(0, np.uint64), *sets.values()]))
            total = self._total(records)
            for cost in costs:
                own = self.epsilon_per_unit(cost) + cost.category_epsilon
                total[np.searchsorted(records, cost.records)] += own
            excess += _excess("a record over all its columns", float(total.max(initial=0.0)), budget.per_record)
        if excess:
            raise OverBudget(f"over budget: {'; '.join(excess)}. Nothing was released")

    def _column_excess(self, cost: Cost, limit: Limit) -> list[str]:
        new = (self.epsilon_per_unit(cost), cost.category_epsilon)
        limits = (limit.epsilon, limit.category_epsilon)
        if not any(epsilon and most is not None for epsilon, most in zip(new, limits, strict=True)):
            return []
        spent = self._spent_of(cost.column, cost.records).max(axis=0, initial=0.0).tolist()
        whats = (f"column {cost.column!r} per unit", f"categories of column {cost.column!r}")
        return [
            line
            for what, before, epsilon, most in zip(whats, spent, new, limits, strict=True)
            if epsilon
            for line in _excess(what, before + epsilon, most)
        ]

    def _spent_of(self, column: str, records: RecordKeys) -> Values:
        return self._sums(records, lambda costs: costs.get(column, (0.0, 0.0)))

    def _total(self, records: RecordKeys) -> Values:
        sums = self._sums(records, lambda costs: np.sum(list(costs.values()), axis=0).tolist())
        return np.asarray(sums.sum(axis=1), dtype=np.float64)

    def _sums(self, records: RecordKeys, cost_of: Callable[[Sums], Sequence[float]]) -> Values:
        """What each record has paid over the sets that it is in, shape ``(n_records, 2)``."""
        self._merge()
        first, end = (np.searchsorted(self._keys, records, side) for side in ("left", "right"))
        spent = np.zeros((len(records), 2))
        for k in range(int((end - first).max(initial=0))):
            is_member = first + k < end
            sets, position = np.unique(self._set_of[(first + k)[is_member]], return_inverse=True)
            spent[is_member] += np.array([cost_of(self._costs[s]) for s in sets.tolist()])[position]
        return spent

    def _all_records(self) -> RecordKeys:
        self._merge()
        return distinct(self._keys)

    def _merge(self) -> None:
        if not self._new:
            return
        keys = np.concatenate([members for members, _ in self._new])
        set_of = np.concatenate([np.full(len(members), index) for members, index in self._new])
        order = np.argsort(keys, kind="stable")
        places = np.searchsorted(self._keys, keys[order])
        self._keys = np.insert(self._keys, places, keys[order])
        self._set_of = np.insert(self._set_of, places, set_of[order])
        self._new = []


def distinct(keys: RecordKeys) -> RecordKeys:
    """Each key once, ascending. Sorting is several times as fast as `numpy.unique` on a million random keys."""
    ascending = np.sort(keys)
    is_first = np.ones(len(keys), dtype=np.bool_)
    is_first[1:] = ascending[1:] != ascending[:-1]
    return ascending if is_first.all() else ascending[is_first]


def _excess(what: str, spent: float, limit: float | None) -> list[str]:
    if limit is None or spent <= limit * (1 + ROUNDING):
        return []
    return [f"{what} would have spent {spent:.6g} of {limit:.6g}"]
