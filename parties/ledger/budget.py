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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from opboost.arrays import Values
from parties.errors import OverBudget
from parties.tables.key_sets import KeySet, RecordKeys, is_member, union, windows

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
    records : KeySet
        Keys of the records, ascending. Two records that share a key by accident are charged for each other.
    """

    column: str
    epsilon: float
    category_epsilon: float
    step: float
    records: KeySet


class Balances:
    """Sums over everything that was charged, kept per set of records that were charged together.

    The keys of small sets are merged in memory; large ones lie on disk and are looked through a window at a time.
    """

    def __init__(self) -> None:
        self.units: dict[str, float] = {}
        self.columns: set[str] = set()
        self._index: dict[str, int] = {}
        self._costs: list[Sums] = []
        self._keys: RecordKeys = np.empty(0, np.uint64)
        self._set_of = np.empty(0, np.int64)
        self._new: list[tuple[RecordKeys, int]] = []
        self._large: list[tuple[KeySet, int]] = []

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
            self._keep_set(set_digest, cost.records, {})
        costs = self._costs[self._index[set_digest]]
        spent = costs.get(cost.column, (0.0, 0.0))
        costs[cost.column] = (spent[0] + cost.epsilon, spent[1] + cost.category_epsilon)

    def to_dict(self) -> dict[str, Any]:
        """All sums as plain values, with sets of records by their digests."""
        sets = [[digest, self._costs[index]] for digest, index in self._index.items()]
        return {"units": self.units, "columns": sorted(self.columns), "sets": sets}

    def take_up(self, document: Mapping[str, Any], records_of: Callable[[str], KeySet]) -> None:
        """The inverse of `to_dict`, into sums of nothing; `records_of` gives the records of a set."""
        self.units, self.columns = dict(document["units"]), set(document["columns"])
        for digest, costs in document["sets"]:
            self._keep_set(digest, records_of(digest), {column: (one[0], one[1]) for column, one in costs.items()})

    @property
    def n_records(self) -> int:
        """How many records were ever charged."""
        return sum(len(records) for records in self._all_records())

    def worst(self, column: str) -> tuple[float, float]:
        """What was spent of a column: epsilon per unit and epsilon of categories, of the record that paid most."""
        return self._most_spent(column, self._all_records())

    def worst_record(self) -> float:
        """What the record that paid most has paid over all columns."""
        return max((float(self._total(records).max(initial=0.0)) for records in self._all_records()), default=0.0)

    def check(self, costs: Sequence[Cost], budget: Budget) -> None:
        """Refuse costs that would exceed a limit for any record.

        Raises
        ------
        OverBudget
            With every limit that would be exceeded.
        """
        excess = [line for cost in costs for line in self._column_excess(cost, budget.limit(cost.column))]
        if budget.per_record is not None:
            excess += _excess("a record over all its columns", self._worst_after(costs), budget.per_record)
        if excess:
            raise OverBudget(f"over budget: {'; '.join(excess)}. Nothing was released")

    def _worst_after(self, costs: Sequence[Cost]) -> float:
        """What the record that would have paid most over all columns would have paid."""
        sets = {id(cost.records): cost.records for cost in costs}
        worst = 0.0
        for records in union(list(sets.values())):
            total = self._total(records)
            is_of = {name: is_member(records, members) for name, members in sets.items()}
            for cost in costs:
                total[is_of[id(cost.records)]] += self.epsilon_per_unit(cost) + cost.category_epsilon
            worst = max(worst, float(total.max(initial=0.0)))
        return worst

    def _column_excess(self, cost: Cost, limit: Limit) -> list[str]:
        new = (self.epsilon_per_unit(cost), cost.category_epsilon)
        limits = (limit.epsilon, limit.category_epsilon)
        if not any(epsilon and most is not None for epsilon, most in zip(new, limits, strict=True)):
            return []
        spent = self._most_spent(cost.column, windows(cost.records))
        whats = (f"column {cost.column!r} per unit", f"categories of column {cost.column!r}")
        return [
            line
            for what, before, epsilon, most in zip(whats, spent, new, limits, strict=True)
            if epsilon
            for line in _excess(what, before + epsilon, most)
        ]

    def _most_spent(self, column: str, pieces: Iterable[RecordKeys]) -> tuple[float, float]:
        """Per kind of epsilon, what was spent of a column by the one of these records that spent most."""
        worst = np.zeros(2)
        for records in pieces:
            spent = self._sums(records, lambda costs: costs.get(column, (0.0, 0.0)))
            worst = np.maximum(worst, spent.max(axis=0, initial=0.0))
        return float(worst[0]), float(worst[1])

    def _total(self, records: RecordKeys) -> Values:
        sums = self._sums(records, lambda costs: np.sum(list(costs.values()), axis=0).tolist())
        return np.asarray(sums.sum(axis=1), dtype=np.float64)

    def _sums(self, records: RecordKeys, cost_of: Callable[[Sums], Sequence[float]]) -> Values:
        """What each record has paid over the sets that it is in, shape ``(n_records, 2)``."""
        self._merge()
        if not len(records):
            return np.zeros((0, 2))
        first, end = (np.searchsorted(self._keys, records, side) for side in ("left", "right"))
        spent = np.zeros((len(records), 2))
        for k in range(int((end - first).max(initial=0))):
            has_more = first + k < end
            sets, position = np.unique(self._set_of[(first + k)[has_more]], return_inverse=True)
            spent[has_more] += np.array([cost_of(self._costs[s]) for s in sets.tolist()])[position]
        for members, index in self._large:
            spent[is_member(records, members)] += cost_of(self._costs[index])
        return spent

    def _all_records(self) -> Iterator[RecordKeys]:
        self._merge()
        return union([self._keys, *(members for members, _ in self._large)])

    def _keep_set(self, digest: str, records: KeySet, costs: Sums) -> None:
        index = self._index[digest] = len(self._costs)
        if isinstance(records, np.ndarray):
            self._new.append((records, index))
        else:
            self._large.append((records, index))
        self._costs.append(costs)

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


def _excess(what: str, spent: float, limit: float | None) -> list[str]:
    if limit is None or spent <= limit * (1 + ROUNDING):
        return []
    return [f"{what} would have spent {spent:.6g} of {limit:.6g}"]
