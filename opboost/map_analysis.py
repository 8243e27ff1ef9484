"""Exact analysis of a mechanism before anything is drawn: privacy losses, and how much order it keeps.

`analyse` looks at the map alone, `analyse_column` at a column's own distribution under it, and `least_epsilon` turns
the question round: how much budget an order costs. Tables have one cell per pair of points, so that only domains of up
to `MAX_TABLE_DOMAIN` points are tabulated; losses are exact for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.order_metrics import Attack, Table, bayes_attack, beta, crossing, expected_weighted_kendall, gammas
from opboost.privacy.adj_map import AdjMap
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import LocalMap

# A table of so many points has 4 million cells.
MAX_TABLE_DOMAIN = 2000

# Distances at which every report states the exact loss, where the domain has them.
DISTANCES = (1, 2, 5, 10, 20, 50, 100, 200, 500)

# Records that stand for a column where the chance is asked that none of them crosses a split.
BETA_RECORDS = 20

# Shares of the records that lie to the left of the split points looked at.
SPLIT_SHARES = (0.25, 0.5, 0.75)

# Budgets between which the least one for an order is looked for.
EPSILON_RANGE = (1e-4, 50.0)

Counts = NDArray[np.int64]


class Choice(Protocol):
    """A mechanism on integer codes: an order-preserving map, randomised response or an LDP baseline."""

    @property
    def name(self) -> str: ...

    @property
    def epsilon(self) -> float: ...

    def log_probabilities(self) -> Table: ...

    def loss(self, t: int) -> float: ...


@dataclass(frozen=True, slots=True)
class LossPoint:
    """Exact loss between values at most `t` points apart; the Partition-dLDP bound where the map has one.

    Attributes
    ----------
    t : int
    loss : float
        Infinite for a Local-Map: two values so far apart may lie in different cells.
    bound : float or None
        Of an Adj-Map.
    loss_in_cell : float or None
        Of a Local-Map, between values of one cell.
    """

    t: int
    loss: float
    bound: float | None = None
    loss_in_cell: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MapAnalysis:
    """Privacy losses of a mechanism and the order it keeps, independent of the data.

    Attributes
    ----------
    name : str
    tight : float
        Exact loss between values one point apart; for a Local-Map inside a cell.
    domain_loss : float
        Exact worst case over the domain: the epsilon of plain LDP.
    losses : tuple of LossPoint
    gammas : tuple of (int, float)
        By distance, the least probability that two values so far apart come out in strictly the same order.
    kendall : float or None
        Expected weighted Kendall coefficient of a uniform column; None for domains too large to tabulate.
    """

    name: str
    tight: float
    domain_loss: float
    losses: tuple[LossPoint, ...]
    gammas: tuple[tuple[int, float], ...]
    kendall: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitOutlook:
    """Effect of a mechanism on a split point between codes.

    Attributes
    ----------
    position : int
        Positions of the domain up to this one lie to the left.
    crossing : float
        Expected share of the records that come out on the other side.
    beta : float
        Probability that none of `BETA_RECORDS` records, spread like the column, comes out on the other side.
    """

    position: int
    crossing: float
    beta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnAnalysis:
    """Effect of a mechanism on a column of a given distribution: order kept, Bayes attack, split points.

    Attributes
    ----------
    kendall : float or None
        Expected weighted Kendall coefficient; None if a single code occurs.
    attack : Attack
        Of an attacker who knows the mechanism and the column's distribution.
    splits : tuple of SplitOutlook
    """

    kendall: float | None
    attack: Attack
    splits: tuple[SplitOutlook, ...]


def analyse(choice: Choice, table: Table | None, n: int) -> MapAnalysis:
    """Losses of a mechanism on `n` points; what it keeps too, if its table is given."""
    distances = [t for t in DISTANCES if t < n]
    points = tuple(_loss_point(choice, t) for t in sorted({*distances, n - 1}))
    is_ordered = table is not None and not isinstance(choice, RandomisedResponse)
    return MapAnalysis(
        name=choice.name,
        tight=choice.loss_within(1) if isinstance(choice, LocalMap) else choice.loss(1),
        domain_loss=choice.loss(n - 1),
        losses=points,
        gammas=tuple(zip(distances, gammas(table, distances), strict=True)) if table is not None and is_ordered else (),
        kendall=expected_weighted_kendall(table) if table is not None and is_ordered else None,
    )


def analyse_column(table: Table, counts: Counts) -> ColumnAnalysis:
    """Analyse the effect of a mechanism with this table on a column.

    Parameters
    ----------
    table : ndarray of shape (n, n)
        Exact log-probabilities.
    counts : ndarray of int64, shape (n,)
        How often each code occurs; not all zero.
    """
    has_pairs = int((counts > 0).sum()) > 1
    return ColumnAnalysis(
        kendall=expected_weighted_kendall(table, counts) if has_pairs else None,
        attack=bayes_attack(table, counts),
        splits=split_outlooks(table, counts) if has_pairs else (),
    )


def split_outlooks(table: Table, counts: Counts) -> tuple[SplitOutlook, ...]:
    """Effect on the splits at a quarter, half and three quarters of the records."""
    places = np.cumsum(counts)
    records = np.searchsorted(places, (np.arange(BETA_RECORDS) + 0.5) / BETA_RECORDS * places[-1], side="right")
    # The last split before the highest code that occurs still has records on both sides.
    last = int(np.flatnonzero(counts)[-2])
    wanted = [min(int(np.searchsorted(places, share * places[-1])), last) for share in SPLIT_SHARES]
    return tuple(
        SplitOutlook(
            position=split,
            crossing=crossing(table, split, counts),
            beta=beta(table, records[records <= split], records[records > split]),
        )
        for split in sorted(set(wanted))
    )


def least_epsilon(settings: MechanismSettings, counts: Counts | None, wanted: float) -> float | None:
    """The smallest budget per point that keeps an expected weighted Kendall coefficient of `wanted`.

    Parameters
    ----------
    settings : MechanismSettings
        Everything but the budget.
    counts : ndarray of int64, shape (n,), optional
        How often each code occurs; by default all alike.
    wanted : float
        In (0, 1).

    Returns
    -------
    float or None
        Rounded up to three digits, so that it keeps what is wanted; None if no budget in `EPSILON_RANGE` does.

    Raises
    ------
    ParameterError
        If `wanted` is out of range or the domain too large to tabulate.
    """
    if not 0 < wanted < 1:
        raise ParameterError(f"the wanted order must lie between 0 and 1; got {wanted}")
    if settings.domain_size > MAX_TABLE_DOMAIN:
        raise ParameterError(
            f"order is found for domains of at most {MAX_TABLE_DOMAIN} points; this one has {settings.domain_size}"
        )

    def excess(log_epsilon: float) -> float:
        choice = replace(settings, epsilon=math.exp(log_epsilon)).build()
        return expected_weighted_kendall(choice.log_probabilities(), counts) - wanted

    low, high = map(math.log, EPSILON_RANGE)
    if excess(low) >= 0:
        return EPSILON_RANGE[0]
    bracket = _bracket(excess, low, high, start=math.log(settings.epsilon))
    if bracket is None:
        return None
    root = float(brentq(excess, *bracket, xtol=5e-3))
    # The curve rises, so rounding up gives at least what is wanted; one more step covers the search's own tolerance.
    return _round_up(math.exp(root + 5e-3))


def _bracket(excess: Callable[[float], float], low: float, high: float, *, start: float) -> tuple[float, float] | None:
    """Two budgets a factor of 4 apart with the root between them, looked for from a likely place."""
    step, x = math.log(4), min(max(start, low), high)
    if excess(x) >= 0:
        while x > low and excess(max(x - step, low)) >= 0:
            x -= step
        return max(x - step, low), x
    while x < high:
        nearer, x = x, min(x + step, high)
        if excess(x) >= 0:
            return nearer, x
    return None


def _round_up(x: float) -> float:
    digits = 2 - math.floor(math.log10(x))
    return math.ceil(x * 10**digits) / 10**digits


def _loss_point(choice: Choice, t: int) -> LossPoint:
    bound = choice.partition_bound(t) if isinstance(choice, AdjMap) else None
    in_cell = choice.loss_within(t) if isinstance(choice, LocalMap) else None
    return LossPoint(t, choice.loss(t), bound, in_cell)
