"""Calibration of Gaussian noise on the leaf sums of data-independent trees, and its privacy accounting.

========================  =======================================  ================================================
records                   without a filter                         with a filter
========================  =======================================  ================================================
all, every round          exact Gaussian composition               the same: a filter on the sum of ``mu^2``
sampled, Poisson          loss distribution (`dp_accounting`)      Renyi, at one order fixed beforehand
========================  =======================================  ================================================

Why the exact Gaussian account survives a filter (Smith and Thakurta, 2022; Koskela, Tobaben and Honkela, ICLR 2023):
the record's shift ``u_t`` of round t, in deviations, is known before the round's noise ``Z_t`` is drawn, and the filter
keeps ``sum |u_t|^2 <= B``. Let a last, made-up round spend what is left, so that the sum is B. Then
``E exp(i s sum u_t Z_t + s^2 B / 2) = 1`` for all s, one conditional expectation after the other, so the log of the
likelihood ratio is normal with variance B: everything together is one Gaussian release with ``mu = sqrt(B)``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from opboost.errors import ParameterError
from opboost.horizontal.noise.leaf_sensitivity import static_sensitivity
from opboost.horizontal.noise.noisy_holder import gaussian_noise
from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.accounting import (
    Accountant,
    by_gaussian,
    by_loss_distribution,
    by_renyi,
    by_renyi_replaced,
    by_skellam,
    calibrate,
    renyi_account,
)
from opboost.privacy.additive import Noise
from opboost.privacy.record_guarantee import ADDED_OR_REMOVED, REPLACED
from opboost.privacy.releases import FilteredRelease, GaussianRelease, Release, gaussian
from opboost.privacy.renyi import ChargeTable
from opboost.privacy.renyi_filter import RenyiFilter

# Room for the filter's own rounding.
_SLACK = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True)
class LeafNoise:
    """The noise of a model, and its privacy accounting.

    Attributes
    ----------
    clipping : Clipping
    grad_std, hess_std : float
        Deviations of the noise on a leaf's sums of g and of h; 0 for none.
    initial_std : float
        Of the noise on the half-sums of the initial score; 0 for none.
    cells_std : float
        Of the noise on a count of sensitivity 1, for `opboost.horizontal.splits.noisy_cells`; 0 for none.
    n_trees : int
        Rounds that the record with the largest contributions can pay for.
    rate : float
        Probability with which a record is in a round.
    order : int or None
        Of the filter: a Renyi order, 0 if it adds up ``mu^2`` (all records in every round), None for no filter.
    releases : tuple of releases
        Empty without noise.
    account : callable
    value_std : float or None
        For *static* leaf noise: its deviation on a leaf's value, whose sums then get none; 0 for no noise.
    n_honest : int
        If not 0, the noise is Skellam noise that the owners of the rows draw in shares, any `n_honest` of which make it
        up (`opboost.horizontal.noise.distributed_noise`).
    least_multiplier : float
        If not 0, the noise multiplier of the trees that have the least, where a record moves sums of several outputs or
        trees differ in their noise.
    initial_epsilon : float
        If not 0, what an initial score of `opboost.horizontal.sgbdt.training.printed_mean` costs between `neighbours`.
    """

    clipping: Clipping
    grad_std: float
    hess_std: float
    initial_std: float
    n_trees: int
    rate: float
    order: int | None
    releases: tuple[Release, ...]
    account: Accountant
    value_std: float | None = None
    cells_std: float = 0.0
    n_honest: int = 0
    least_multiplier: float = 0.0
    initial_epsilon: float = 0.0

    @property
    def has_filter(self) -> bool:
        return self.order is not None

    @property
    def multiplier(self) -> float:
        """Deviation over sensitivity, for one round; 0 without noise."""
        return self.least_multiplier or self.grad_std / self.clipping.sensitivity

    @property
    def mu(self) -> float:
        """Of one round, for a record with the largest contribution."""
        return self.clipping.sensitivity / self.grad_std

    @property
    def sum_laws(self) -> tuple[Noise | None, Noise | None]:
        """Noise on a leaf's sums of g and h, for whoever adds up all owners' sums; none if the owners add it."""
        grid = self.clipping.grid
        if self.n_honest or self.value_std is not None:
            return None, None
        return gaussian_noise(self.grad_std, grid.grad_scale), gaussian_noise(self.hess_std, grid.hess_scale)

    def prices(self) -> ChargeTable | None:
        """Charge table at the filter's order; None where contributions cost ``mu^2``."""
        if not self.order or self.grad_std == 0:
            return None
        return ChargeTable(self.rate, order=self.order, largest_mu_squared=self.mu**2)

    def filter_for(self, n_records: int) -> RenyiFilter | None:
        """Individual privacy filter for newly arrived records."""
        if self.order is None or self.grad_std == 0:
            return None
        return filter_for_rounds(n_records, self.mu, self.prices(), self.n_trees)

    def epsilon(self, delta: float) -> float:
        """Epsilon of all releases between `neighbours`; infinite without noise."""
        if self.initial_epsilon:
            return self.initial_epsilon + by_renyi_replaced(self.releases, delta)
        return self.account(self.releases, delta) if self.releases else math.inf

    @property
    def neighbours(self) -> str:
        """The neighbouring data sets of `epsilon`, in words."""
        return REPLACED if self.initial_epsilon else ADDED_OR_REMOVED

    @property
    def basis(self) -> str:
        """How the guarantee was obtained, in words."""
        if not self.releases:
            return "no noise"
        words = _NAMES[self.account]
        return f"{words}, individual filter" if self.has_filter else words


def leaf_noise(
    clipping: Clipping,
    *,
    epsilon: float,
    delta: float,
    n_trees: int,
    rate: float = 1.0,
    initial_share: float = 0.05,
    cells_share: float = 0.0,
    has_filter: bool = False,
    static_lambda: float | None = None,
    n_models: int = 1,
) -> LeafNoise:
    """Calibrate the least noise for a budget.

    Parameters
    ----------
    clipping : Clipping
    epsilon, delta : float
        An infinite epsilon for no noise.
    n_trees : int
        Rounds that every record is sure to be able to pay for.
    rate : float
        Poisson sampling of the records.
    initial_share : float
        Share of the squared mu that the initial score takes.
    cells_share : float
        Share of the squared mu that counts of the columns' cells take.
    has_filter : bool
        Whether records go on as long as they can pay for what they really contribute.
    static_lambda : float, optional
        Put the noise on the leaves' values ``-S / (n + static_lambda)``, of counts n, and not on their sums: the
        paper's static leaf noise, for comparison. One record moves one value by at most ``g / (1 + static_lambda)``,
        whatever its own gradient, so there can be no individual filter.
    n_models : int
        That share the budget, each with as many trees and an initial score, and all with the same cells.
    """
    if static_lambda is not None and has_filter:
        raise ParameterError("static leaf noise costs every record the same; the filter is for dynamic leaf noise")
    if not (initial_share >= 0 and cells_share >= 0 and initial_share + cells_share < 1):
        raise ParameterError(
            "initial_share and cells_share must be at least 0 and leave something for the trees; got "
            f"{initial_share} and {cells_share}"
        )
    if not 0 < rate <= 1:
        raise ParameterError(f"subsample must lie in (0, 1]; got {rate}")
    order = 0 if has_filter else None
    plan = _Plan(n_trees, n_models, rate, initial_share, cells_share)
    if math.isinf(epsilon):
        return LeafNoise(
            clipping=clipping,
            grad_std=0.0,
            hess_std=0.0,
            initial_std=0.0,
            n_trees=n_trees,
            rate=rate,
            order=order,
            releases=(),
            account=by_gaussian,
            value_std=None if static_lambda is None else 0.0,
        )
    if has_filter and rate < 1:
        # The order is found without looking at any data: it is the best one for rounds at the full price.
        multiplier = plan.calibrated(None, by_renyi, epsilon=epsilon, delta=delta)
        order = renyi_account(plan.releases(multiplier, None), delta)[1]
    multiplier = plan.calibrated(order, accountant_for(rate, order), epsilon=epsilon, delta=delta)
    grad_std = clipping.sensitivity * multiplier * (1 + 1e-14)
    return LeafNoise(
        clipping=clipping,
        grad_std=grad_std,
        hess_std=grad_std * clipping.ratio,
        initial_std=plan.extra_multiplier(multiplier, initial_share / n_models),
        cells_std=plan.extra_multiplier(multiplier, cells_share),
        n_trees=n_trees,
        rate=rate,
        order=order,
        releases=plan.releases(multiplier, order),
        account=accountant_for(rate, order),
        value_std=None
        if static_lambda is None
        else static_sensitivity(clipping, static_lambda) * multiplier * (1 + 1e-14),
    )


def accountant_for(rate: float, order: int | None) -> Accountant:
    """The sharpest accountant for these releases."""
    if order:
        return by_renyi
    return by_gaussian if rate == 1 else by_loss_distribution


@dataclass(frozen=True, slots=True)
class _Plan:
    """All releases of a training, as a function of the noise multiplier: deviation over sensitivity, for one round."""

    n_trees: int
    n_models: int
    rate: float
    initial_share: float
    cells_share: float

    def releases(self, multiplier: float, order: int | None) -> tuple[Release, ...]:
        trees: tuple[Release, ...]
        if order is None:
            trees = (gaussian(1.0, multiplier, rate=self.rate, count=self.n_models * self.n_trees),)
        else:
            mu = 1.0 / multiplier
            prices = ChargeTable(self.rate, order=order, largest_mu_squared=mu**2) if order else None
            budget = filter_for_rounds(0, mu, prices, self.n_trees).budget
            of_model = FilteredRelease(order=order, rho=budget) if order else GaussianRelease(mu=math.sqrt(budget))
            trees = (of_model,) * self.n_models
        shares = [*[self.initial_share / self.n_models] * self.n_models, self.cells_share]
        before = (gaussian(1.0, self.extra_multiplier(multiplier, share)) for share in shares if share)
        return (*before, *trees)

    def extra_multiplier(self, multiplier: float, share: float) -> float:
        """Such that the squared mu of what comes before the trees is its share of the whole, sampling allowed for."""
        of_trees = (1 - self.initial_share - self.cells_share) / (self.n_models * self.n_trees * self.rate**2)
        return multiplier * math.sqrt(of_trees / share) if share else 0.0

    def calibrated(self, order: int | None, account: Accountant, *, epsilon: float, delta: float) -> float:
        guess = math.sqrt(self.n_models * self.n_trees) * self.rate * math.sqrt(2 * math.log(1 / delta)) / epsilon
        return calibrate(
            lambda multiplier: self.releases(multiplier, order),
            epsilon=epsilon,
            delta=delta,
            account=account,
            guess=max(guess, 0.3),
            tolerance=1e-3 if account is by_loss_distribution else 1e-6,
        )


def filter_for_rounds(n_records: int, mu: float, prices: ChargeTable | None, n_trees: int) -> RenyiFilter:
    """Filter that lasts for so many rounds at the full charge. At order 2 a Gaussian's divergence is ``mu^2``."""
    largest = mu**2 if prices is None else float(prices.charges(np.array([mu**2]))[0])
    order = 2 if prices is None else prices.order
    return RenyiFilter.for_rounds(n_records, order=order, largest_charge=largest * (1 + _SLACK), n_rounds=n_trees)


_NAMES: dict[Accountant, str] = {
    by_gaussian: "exact Gaussian composition",
    by_loss_distribution: "numerical loss distribution",
    by_renyi: "Renyi composition",
    by_skellam: "the sharper of exact Gaussian and Renyi composition",
}
