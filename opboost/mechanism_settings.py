"""Settings of a party's mechanisms, from which each column's is built."""

from __future__ import annotations

from dataclasses import dataclass

from opboost.errors import ParameterError, check_integer, nearest
from opboost.privacy.adj_map import AdjMap, OrderPreservingMap
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.laws import Law, check_epsilon
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap, LocalMap

# A difference of a few dozen units of a mapped domain costs as much at the usual budgets.
DEFAULT_CATEGORY_EPSILON = 3.0

# Points of a mapped domain: a map with cells holds a number for each point of its widest cell.
MAX_DOMAIN_SIZE = 1 << 24


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
