"""Calibration of a number of Gaussian queries for a budget, and their privacy accounting.

As printed, the queries are composed by Renyi divergences and converted (Canonne, Kamath and Steinke, NeurIPS 2020). By
default they are composed exactly: n queries of multiplier sigma are one of ``sigma / sqrt(n)``, which needs 8 to 15 per
cent less noise for the same promise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from opboost.errors import check_delta
from opboost.privacy.accounting import by_gaussian, by_renyi, calibrate
from opboost.privacy.record_guarantee import ADDED_OR_REMOVED
from opboost.privacy.releases import Release, gaussian


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryAccount:
    """Noise of a number of Gaussian queries, and its privacy accounting.

    Attributes
    ----------
    n_queries : int
    multiplier : float
        Deviation of the noise over the sensitivity that it is scaled by; 0 for no noise.
    excess : float
        The sensitivity that the noise is scaled by, over the true one: 1 or more.
    n_hessians : int
        Of the queries, those of Hessians alone, whose noise is scaled by their true sensitivity.
    """

    n_honest: ClassVar[int] = 0
    neighbours: ClassVar[str] = ADDED_OR_REMOVED
    n_queries: int
    multiplier: float
    excess: float = 1.0
    n_hessians: int = 0

    @property
    def basis(self) -> str:
        """How the guarantee was obtained, in words."""
        return "exact Gaussian composition" if self.releases else "no noise"

    @property
    def releases(self) -> tuple[Release, ...]:
        """Everything that is released; empty without noise or queries."""
        counts = (self.excess, self.n_queries - self.n_hessians), (1.0, self.n_hessians)
        made = ((self.multiplier * excess, count) for excess, count in counts if self.multiplier and count)
        return tuple(gaussian(1.0, std, count=count) for std, count in made)

    def epsilon(self, delta: float) -> float:
        """Exact epsilon of the queries; infinite without noise."""
        return by_gaussian(self.releases, delta) if self.releases else math.inf


def query_account(
    n_queries: int, *, epsilon: float, delta: float, is_printed: bool = False, excess: float = 1.0, n_hessians: int = 0
) -> QueryAccount:
    """Calibrate the least noise for a budget; an infinite epsilon for no noise."""
    if math.isinf(epsilon) or n_queries == 0:
        return QueryAccount(n_queries=n_queries, multiplier=0.0, excess=excess)
    multiplier = calibrate(
        lambda each: (gaussian(1.0, each, count=n_queries),),
        epsilon=epsilon,
        delta=delta,
        account=by_renyi if is_printed else by_gaussian,
        guess=math.sqrt(n_queries * 2 * math.log(1 / check_delta(delta))) / epsilon,
    )
    return QueryAccount(n_queries=n_queries, multiplier=multiplier, excess=excess, n_hessians=n_hessians)
