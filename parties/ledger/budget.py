"""Budgets: limits on what may be spent of each column and record, and sums of what was spent.

A record pays for the releases it is in and for no other, so every sum is kept per record, and a column has spent what
its worst record has. The sums are plain ones. For distance-based privacy that is exact bookkeeping: if release i tells
two values t units apart from each other by a factor of at most ``exp(t * e_i)``, independent draws together do so by
at most the product, ``exp(t * (e_1 + e_2 + ...))``. Randomised response composes in the same way, at any distance.
Over the columns of a record the losses add up as in `opboost.privacy.guarantee.compose`.

A unit is one step of the column itself; where none is known, one point of the mapped domain at the column's *first*
release. Every release is charged the exact loss between two values one unit apart, read off its loss curve at as many
points of its own domain as a unit spans there. For t units that bounds t times as much, since a loss curve never rises
faster than its first steps together: between two values lie others. So a limit holds per step as the schema says it
today: where that spans several units, what was spent before counts as many times.

Bits of published cells add up too, since several releases have no more outcomes than the product of their numbers of
cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from opboost.arrays import Values
from opboost.preprocess import points_within
from parties.errors import OverBudget
from parties.ledger.costs import Charge, Cost, Spent, Unit
from parties.ledger.small_sets import SmallSets
from parties.tables.key_sets import HALF_NAME, NAME, KeySet, Names, is_member, union, windows

# Sums of rounded costs may exceed a limit that they should meet by some units in the last place.
ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class Limit:
    """The most that may be spent of one column; None is no limit.

    Attributes
    ----------
    epsilon : float or None
        Per unit of the column.
    category_epsilon : float or None
        Of randomised response: for unordered categories, and of the bit that says whether a cell is empty.
    cell_bits : float or None
        Of the cells that a Local-Map publishes exactly.
    """

    epsilon: float | None = None
    category_epsilon: float | None = None
    cell_bits: float | None = None


@dataclass(frozen=True, slots=True)
class Budget:
    """A party's limits on spending over all runs.

    Attributes
    ----------
    default : Limit
        For every column.
    columns : mapping of str to Limit
        What differs for some columns.
    per_record : float or None
        For the sum of both kinds of epsilon over all columns of one record.
    cell_bits_per_record : float or None
        For the bits of published cells over all columns of one record.
    steps : mapping of str to float
        The columns' own steps, as the schema says them today: limits are per step, also of columns that a release adds
        nothing to.
    """

    default: Limit = Limit()
    columns: Mapping[str, Limit] = field(default_factory=dict)
    per_record: float | None = None
    cell_bits_per_record: float | None = None
    steps: Mapping[str, float] = field(default_factory=dict)

    def limit(self, column: str) -> Limit:
        """The limit of a column.

        If an epsilon is limited and cells are not mentioned, none may be published: no epsilon covers them.
        """
        own = self.columns.get(column, Limit())
        epsilon = self.default.epsilon if own.epsilon is None else own.epsilon
        category_epsilon = self.default.category_epsilon if own.category_epsilon is None else own.category_epsilon
        cell_bits = self.default.cell_bits if own.cell_bits is None else own.cell_bits
        if cell_bits is None and self.cell_bits_per_record is None:
            limits = (epsilon, category_epsilon, self.per_record)
            cell_bits = 0.0 if any(limit is not None and math.isfinite(limit) for limit in limits) else None
        return Limit(epsilon, category_epsilon, cell_bits)


class SpentBudgets:
    """Sums over everything that was charged, kept per set of records that were charged together.

    Small sets are merged; large ones lie on disk and are looked through a window at a time.
    """

    def __init__(self) -> None:
        self.units: dict[str, Unit] = {}
        self.columns: set[str] = set()
        self._index: dict[str, int] = {}
        self._costs: list[dict[str, Spent]] = []
        self._small = {kind: SmallSets(kind) for kind in (NAME, HALF_NAME)}
        self._large: list[tuple[KeySet, int]] = []

    def charge_of(self, cost: Cost) -> Charge:
        """The charge for a release: its loss per unit of its column, however many points that spans.

        Raises
        ------
        LedgerError
            If that is not a number.
        """
        unit = self.units.get(cost.column, cost.unit)
        points = points_within(unit.size, cost.point) if unit is not None and cost.point else 1
        spent = Spent(cost.loss(points), cost.category_epsilon, cost.cells.bits if cost.cells else 0.0)
        return Charge(column=cost.column, spent=spent, unit=unit, points=points, records=cost.records)

    def knows(self, set_digest: str) -> bool:
        """Whether a set of records was charged before, so that `add` needs its digest alone."""
        return set_digest in self._index

    def add(self, charge: Charge, set_digest: str) -> None:
        """Count what was charged."""
        if charge.unit is not None:
            self.units.setdefault(charge.column, charge.unit)
        self.columns.add(charge.column)
        if set_digest not in self._index:
            self._keep_set(set_digest, charge.records, {})
        costs = self._costs[self._index[set_digest]]
        before = costs.get(charge.column, Spent())
        costs[charge.column] = Spent(*(spent + more for spent, more in zip(before, charge.spent, strict=True)))

    def to_dict(self) -> dict[str, Any]:
        """All sums as plain values, with sets of records by their digests."""
        sets = [[digest, self._costs[index]] for digest, index in self._index.items()]
        units = {column: asdict(unit) for column, unit in self.units.items()}
        return {"units": units, "columns": sorted(self.columns), "sets": sets}

    def take_up(self, document: Mapping[str, Any], records_of: Callable[[str], KeySet]) -> None:
        """The inverse of `to_dict`, into sums of nothing; `records_of` gives the records of a set."""
        self.units = {column: Unit(**unit) for column, unit in document["units"].items()}
        self.columns = set(document["columns"])
        for digest, costs in document["sets"]:
            self._keep_set(digest, records_of(digest), {column: Spent(*spent) for column, spent in costs.items()})

    @property
    def n_records(self) -> int:
        """Number of records that were ever charged."""
        return sum(len(records) for records in self._all_records())

    def n_charged(self, column: str) -> int:
        """Number of records that were ever charged for a column."""
        sums = (self._sums(records, lambda costs: [float(column in costs)]) for records in self._all_records())
        return sum(int((found[:, 0] > 0).sum()) for found in sums)

    def worst(self, column: str) -> Spent:
        """The largest spending of a record on a column, for each kind of budget."""
        return self._most_spent(column, self._all_records())

    def worst_record(self, n_units: Mapping[str, int] | None = None) -> tuple[float, float]:
        """Both kinds of epsilon together, and bits of cells: the most that a record has paid over all columns.

        Per so many units of some columns, per one of the others.
        """
        return _largest(self._totals(records, n_units or {}) for records in self._all_records())

    def check(self, costs: Sequence[Cost], budget: Budget) -> None:
        """Refuse costs that would exceed a limit for any record.

        Raises
        ------
        OverBudget
            With every limit that would be exceeded.
        LedgerError
            If a cost is not a number.
        """
        n_units = {column: self.units_in_step(column, step) for column, step in budget.steps.items()}
        charges = [self._charge_per_step(cost, budget.steps.get(cost.column, 0.0)) for cost in costs]
        excess = [line for charge in charges for line in self._column_excess(charge, budget, n_units)]
        limits = (budget.per_record, budget.cell_bits_per_record)
        if any(limit is not None for limit in limits):
            whats = ("a record over all its columns", "published cells of a record over all its columns, in bits,")
            for what, spent, most in zip(whats, self._worst_after(charges, n_units), limits, strict=True):
                excess += _excess(what, spent, most)
        if excess:
            raise OverBudget(f"over budget: {'; '.join(excess)}. Nothing was released")

    def units_in_step(self, column: str, step: float) -> int:
        """How many of the units that a column is charged by its step spans today; a step of 0 is not known."""
        unit = self.units.get(column)
        return points_within(step, unit.size) if unit is not None and step else 1

    def _charge_per_step(self, cost: Cost, step: float) -> Charge:
        """What a release costs per step of the column today, if that is larger than the column's unit."""
        charge = self.charge_of(cost)
        unit = self.units.get(cost.column, cost.unit)
        if not cost.point or unit is None or points_within(step, unit.size) == 1:
            return charge
        return replace(charge, spent=charge.spent._replace(epsilon=cost.loss(points_within(step, cost.point))))

    def _worst_after(self, charges: Sequence[Charge], n_units: Mapping[str, int]) -> tuple[float, float]:
        """What the record that would have paid most over all columns would have paid; see `worst_record`."""
        sets = {id(charge.records): charge.records for charge in charges}

        def totals() -> Iterator[Values]:
            for records in union(list(sets.values())):
                total = self._totals(records, n_units)
                is_of = {name: is_member(records, members) for name, members in sets.items()}
                for charge in charges:
                    total[is_of[id(charge.records)]] += _total(charge.spent)
                yield total

        return _largest(totals())

    def _column_excess(self, charge: Charge, budget: Budget, n_units: Mapping[str, int]) -> list[str]:
        limit = budget.limit(charge.column)
        limits = (limit.epsilon, limit.category_epsilon, limit.cell_bits)
        if not any(more and most is not None for more, most in zip(charge.spent, limits, strict=True)):
            return []
        spent = self._most_spent(charge.column, windows(charge.records)).times(n_units.get(charge.column, 1))
        whats = (
            f"column {charge.column!r} per unit",
            f"categories of column {charge.column!r}",
            f"cells that a Local-Map publishes of column {charge.column!r}, in bits (`cell_bits` allows them),",
        )
        return [
            line
            for what, before, more, most in zip(whats, spent, charge.spent, limits, strict=True)
            if more
            for line in _excess(what, before + more, most)
        ]

    def _most_spent(self, column: str, pieces: Iterable[Names]) -> Spent:
        """The largest spending of these records on a column, for each kind of budget."""
        sums = (self._sums(records, lambda costs: costs.get(column, Spent())) for records in pieces)
        worst = [np.zeros(len(Spent._fields)), *(costs.max(axis=0, initial=0.0) for costs in sums)]
        return Spent(*np.max(worst, axis=0).tolist())

    def _totals(self, records: Names, n_units: Mapping[str, int]) -> Values:
        """What each record has paid over all columns, shape ``(n_records, 2)``; per so many units of some columns."""

        def cost_of(costs: dict[str, Spent]) -> list[float]:
            return np.sum([spent.times(n_units.get(name, 1)) for name, spent in costs.items()], axis=0).tolist()

        return _total(self._sums(records, cost_of))

    def _sums(self, records: Names, cost_of: Callable[[dict[str, Spent]], Sequence[float]]) -> Values:
        """What each record has paid over the sets that it is in, by kind."""
        spent = np.zeros((len(records), len(Spent._fields)))
        for kind, small in self._small.items():
            for rows, of_rows in small.sets_of(records.astype(kind, copy=False)):
                sets, position = np.unique(of_rows, return_inverse=True)
                spent[rows] += np.array([cost_of(self._costs[s]) for s in sets.tolist()])[position]
        for members, index in self._large:
            spent[is_member(records, members)] += cost_of(self._costs[index])
        return spent

    def _all_records(self) -> Iterator[Names]:
        small = (run for sets in self._small.values() for run in sets.runs())
        return union([*small, *(members for members, _ in self._large)])

    def _keep_set(self, digest: str, records: KeySet, costs: dict[str, Spent]) -> None:
        index = self._index[digest] = len(self._costs)
        if isinstance(records, np.ndarray):
            self._small[records.dtype].add(records, index)
        else:
            self._large.append((records, index))
        self._costs.append(costs)


def _total(spent: Sequence[float] | Values) -> Values:
    """Both kinds of epsilon together, and bits of cells; along the last axis."""
    epsilon, category_epsilon, cell_bits = np.moveaxis(np.asarray(spent), -1, 0)
    return np.stack([epsilon + category_epsilon, cell_bits], axis=-1)


def _largest(totals: Iterable[Values]) -> tuple[float, float]:
    worst = np.max([np.zeros(2), *(total.max(axis=0, initial=0.0) for total in totals)], axis=0)
    return float(worst[0]), float(worst[1])


def _excess(what: str, spent: float, limit: float | None) -> list[str]:
    if limit is None or spent <= limit * (1 + ROUNDING):
        return []
    return [f"{what} would have spent {spent:.6g} of {limit:.6g}"]
