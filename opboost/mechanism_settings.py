"""Settings of a party's mechanisms, from which each column's is built, and budgets as people state them.

A budget is stated in one of four ways, and resolved to epsilon per point of a column's mapped domain:

=============================  ==========================================================================
stated                         meaning, for every pair of values of the column
=============================  ==========================================================================
`epsilon`                      loss per point of the mapped domain
`cost` with `per`              loss of a difference of `per` of the column's own units, at most
`whole_range`                  loss between any two values of the column, at most
`odds` ``within, at_most``     odds with which a difference of `within` own units is told apart, at most
=============================  ==========================================================================

Quotients are taken in exact arithmetic and rounded down, so that no loss exceeds what was stated.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Context, Decimal
from fractions import Fraction

from opboost.errors import ParameterError, check_integer, nearest
from opboost.preprocess import points_within
from opboost.privacy.adj_map import AdjMap, OrderPreservingMap
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.laws import ROUND_UP, Law, check_epsilon
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap, LocalMap
from opboost.schema import ColumnSchema, Kind

# A difference of a few dozen units of a mapped domain costs as much at the usual budgets.
DEFAULT_CATEGORY_EPSILON = 3.0

# Points of a mapped domain: a map with cells holds a number for each point of its widest cell.
MAX_DOMAIN_SIZE = 1 << 24

# Of a budget that nobody stated: e^8 to 1 between the two ends of a column's range, 2.3 to 1 over a tenth of it.
DEFAULT_WHOLE_RANGE = 8.0

# Between two categories where nobody stated a budget: odds of just below 10 to 1.
DEFAULT_CATEGORY_LOSS = 2.3

# Points of a mapped domain that nobody stated, and where the budget is one per point.
DEFAULT_POINTS, EPSILON_POINTS = 100, 1000

# Digits of a logarithm, far more than a double has.
_PRECISE = Context(prec=50)


@dataclass(frozen=True, slots=True, kw_only=True)
class MechanismSettings:
    """Mechanism, budget and domain with which a party desensitizes its columns.

    Parameters
    ----------
    mechanism : {"global", "local", "adj"}
    epsilon : float
        Budget per point of the mapped domain.
    law : Law or str
    theta : int, optional
        Width of the cells of ``local`` and ``adj``; by default a tenth of the domain, at least 2.
    alpha : float
        Share of the budget between cells, for ``adj``.
    domain_size : int
        The mapped domain is ``[1, domain_size]``.
    category_epsilon : float, optional
        Budget of randomised response, for unordered categories and for missingness. By default 3, which tells a
        state truly in 95 of 100 cases where there are two, or `epsilon` if that is larger.
    """

    mechanism: str = "global"
    epsilon: float = 0.1
    law: Law = Law.CLAMPED
    theta: int | None = None
    alpha: float = 1.0
    domain_size: int = 1000
    category_epsilon: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "law", Law(self.law) if self.law in list(Law) else self.law)
        if self.category_epsilon is not None:
            check_epsilon(self.category_epsilon, "category_epsilon")
        self.build()

    @property
    def domain(self) -> IntegerDomain:
        if check_integer("domain_size", self.domain_size, least=2) > MAX_DOMAIN_SIZE:
            raise ParameterError(f"domain_size must be at most {MAX_DOMAIN_SIZE}; got {self.domain_size}")
        return IntegerDomain(1, int(self.domain_size))

    def build(self) -> OrderPreservingMap:
        """The order-preserving map that these settings describe.

        Raises
        ------
        ParameterError
            If a parameter is out of its range; nothing is drawn then.
        """
        domain = self.domain
        theta = self.theta if self.theta is not None else max(2, domain.size // 10)
        match self.mechanism:
            case "global":
                return GlobalMap(epsilon=self.epsilon, domain=domain, law=self.law)
            case "local":
                return LocalMap(epsilon=self.epsilon, domain=domain, law=self.law, theta=theta)
            case "adj":
                return AdjMap(epsilon=self.epsilon, domain=domain, law=self.law, theta=theta, alpha=self.alpha)
            case other:
                near = nearest(str(other), ("global", "local", "adj"))
                raise ParameterError(f"mechanism must be one of global, local, adj; got {other!r}{near}")

    def for_categories(self, n_categories: int) -> RandomisedResponse:
        """Randomised response on so many categories."""
        default = max(DEFAULT_CATEGORY_EPSILON, self.epsilon)
        epsilon = default if self.category_epsilon is None else self.category_epsilon
        return RandomisedResponse(epsilon=epsilon, n_categories=n_categories)


@dataclass(frozen=True, slots=True, kw_only=True)
class Odds:
    """Budget as odds: values at most `within` own units apart are told apart with odds of at most `at_most` to 1."""

    within: float
    at_most: float

    def __post_init__(self) -> None:
        if not 1 < self.at_most < math.inf:
            raise ParameterError(f"odds: at_most must be finite and above 1; got {self.at_most}. Nothing was drawn")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedBudget:
    """Budget of a column in one of the four ways; of none, the default.

    Attributes
    ----------
    epsilon, cost, per, whole_range : float, optional
    odds : Odds, optional

    Raises
    ------
    ParameterError
        If more than one way is given, or `cost` without `per`.
    """

    epsilon: float | None = None
    cost: float | None = None
    per: float | None = None
    whole_range: float | None = None
    odds: Odds | None = None

    def __post_init__(self) -> None:
        if len(self.ways) > 1 or (self.cost is None) != (self.per is None):
            given = ", ".join(self.ways) or "per"
            raise ParameterError(
                "give the budget in one way: epsilon, or cost together with per, or whole_range, or odds; "
                f"found {given}. Nothing was drawn"
            )
        for name in ("epsilon", "cost", "whole_range"):
            if (value := getattr(self, name)) is not None:
                check_epsilon(value, name)

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways in which it is given."""
        return tuple(name for name in ("epsilon", "cost", "whole_range", "odds") if getattr(self, name) is not None)

    @property
    def points(self) -> int:
        """Points of a mapped domain where nobody stated them; `epsilon`, whose meaning depends on them, keeps more."""
        return DEFAULT_POINTS if self.epsilon is None else EPSILON_POINTS

    def resolve(
        self, column: ColumnSchema, settings: MechanismSettings, *, own_points: bool, is_own: bool = False
    ) -> MechanismSettings:
        """The settings of a column, of which this budget makes `epsilon` and, if it is None, `category_epsilon`.

        Ordered categories get one point each, unless the budget is one per point or the column has points of its own.
        A budget that `is_own`, stated for this column where `category_epsilon` is not, bounds that of categories.

        Raises
        ------
        ParameterError
            If the difference does not fit the column, such as one of unordered categories that states it as its own, or
            the mechanism cannot keep what is stated.
        """
        if self.epsilon is not None:
            return replace(settings, epsilon=self.epsilon)
        if column.kind is Kind.ORDERED and not own_points:
            points = len(column.categories)
            theta = None if settings.theta is None else min(settings.theta, points)
            settings = replace(settings, domain_size=points, theta=theta)
        loss, distance = self._loss_over(column)
        if settings.category_epsilon is None:
            most = self.whole_range or DEFAULT_CATEGORY_LOSS
            settings = replace(
                settings, category_epsilon=most if most == math.inf else min(most, DEFAULT_CATEGORY_LOSS)
            )
        if column.kind is Kind.UNORDERED:
            if is_own and (self.cost is not None or self.odds is not None):
                raise ParameterError(
                    f"column {column.name!r}: unordered categories have no distance; state `whole_range`, or "
                    "`category_epsilon` for all such columns. Nothing was drawn"
                )
            stated, common = self.whole_range, settings.category_epsilon
            is_less = is_own and stated is not None and common is not None and stated < common
            return replace(settings, category_epsilon=stated) if is_less else settings
        lower, upper = column.bounds
        if not 0 < distance <= upper - lower:
            raise ParameterError(
                f"column {column.name!r}: the difference that the budget is stated for must lie in "
                f"(0, {upper - lower}]; got {distance}. Nothing was drawn"
            )
        points = points_within(distance, (upper - lower) / (settings.domain.size - 1))
        per_epsilon = _loss_per_epsilon(settings, points)
        return replace(settings, epsilon=math.inf if loss == math.inf else _rounded_down(Fraction(loss) / per_epsilon))

    def _loss_over(self, column: ColumnSchema) -> tuple[Fraction | float, float]:
        """A loss, and the difference in the column's own unit that loses as much at most."""
        lower, upper = column.bounds
        if self.cost is not None and self.per is not None:
            return self.cost, self.per
        if self.odds is not None:
            return Fraction(_PRECISE.ln(Decimal(self.odds.at_most))), self.odds.within
        if self.whole_range is not None:
            return self.whole_range, upper - lower
        steps = len(column.categories) - 1 if column.kind is Kind.ORDERED else math.inf
        return min(DEFAULT_WHOLE_RANGE, steps * DEFAULT_CATEGORY_LOSS), upper - lower


def stated_budget(*, odds: Mapping[str, float] | None = None, **ways: float | None) -> StatedBudget:
    """A budget in the words of a run file, `odds` with its keys ``within`` and ``at_most``.

    Raises
    ------
    ParameterError
        If a key is unknown, or keys do not go together.
    """
    try:
        return StatedBudget(odds=None if odds is None else Odds(**odds), **ways)
    except TypeError:
        known = "epsilon, cost, per, whole_range, odds: {within, at_most}"
        raise ParameterError(f"a budget has the keys {known}; found {', '.join(ways)}. Nothing was drawn") from None


def _loss_per_epsilon(settings: MechanismSettings, points: int) -> Fraction:
    """The most that values so many points apart lose, as a multiple of epsilon; as reported, so rounded up."""
    match settings.mechanism:
        case "global":
            bound = Fraction(settings.law.promise) * points
        case "adj":
            value = replace(settings, epsilon=1.0).build()
            assert isinstance(value, AdjMap)
            bound = Fraction(value.partition_bound(points))
        case _:
            raise ParameterError(
                "the mechanism local publishes cells exactly, so that values on two sides of a border are told apart "
                "whatever the budget, and no difference has one: state `epsilon`, the budget per point inside a cell. "
                "Nothing was drawn"
            )
    # Twice, for the product of doubles is rounded once more.
    return bound * Fraction(ROUND_UP) ** 2


def _rounded_down(exact: Fraction) -> float:
    nearest = float(exact)
    return nearest if Fraction(nearest) <= exact else math.nextafter(nearest, 0.0)
