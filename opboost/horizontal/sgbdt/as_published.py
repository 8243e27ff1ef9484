"""S-GBDT's noise as published, and the epsilon that it really costs."""

from __future__ import annotations

import math

import numpy as np

from opboost.errors import ParameterError
from opboost.horizontal.noise.leaf_noise import LeafNoise
from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.accounting import by_renyi
from opboost.privacy.published import sgbdt_noise
from opboost.privacy.releases import FilteredRelease, Release, SampledGaussianRelease
from opboost.privacy.renyi import ChargeTable
from opboost.privacy.renyi_filter import RenyiFilter


def printed_noise(
    *,
    max_grad: float,
    epsilon: float,
    delta: float,
    n_trees: int,
    rate: float,
    initial_share: float,
    has_filter: bool,
    is_classification: bool,
    n_models: int = 1,
) -> LeafNoise:
    """Noise of algorithms 4, 6 and 7, with ``r_1 = r_2 = 1/2``.

    Parameters
    ----------
    max_grad : float
    epsilon, delta : float
        What is claimed.
    n_trees : int
    rate : float
        Of the Poisson sampling.
    initial_share : float
        Share of epsilon for the initial score; classes begin at 0, as in the authors' code.
    has_filter : bool
    is_classification : bool
    n_models : int
        That share what is claimed in equal parts.

    Returns
    -------
    LeafNoise
        Its epsilon is the right one for this noise.

    Notes
    -----
    Privacy: that of the result, not what is claimed: the publication's conversion is wrong, and so the noise too small.
    The noise of an initial score depends on the number of records, so that with one only records that are replaced are
    protected.
    """
    if has_filter and rate == 1:
        raise ParameterError("the publication's filter is for sampled records; say a subsample below 1")
    initial_epsilon = 0.0 if is_classification else initial_share * epsilon
    cost = (1 + max_grad**2) / 2
    variance, order = sgbdt_noise(
        epsilon=epsilon / n_models - initial_epsilon,
        delta=delta / n_models,
        n_trees=n_trees,
        rate=float(rate),
        cost=cost,
    )
    std = math.sqrt(variance)
    mu = math.sqrt(2 * cost) / std
    trees: Release = SampledGaussianRelease(rate=rate, mu=mu, count=n_trees)
    if has_filter:
        largest = float(ChargeTable(rate, order=order, largest_mu_squared=mu**2).charges(np.array([mu**2]))[0])
        budget = RenyiFilter.for_rounds(0, order=order, largest_charge=largest * (1 + 1e-8), n_rounds=n_trees).budget
        trees = FilteredRelease(order=order, rho=budget)
    return LeafNoise(
        clipping=Clipping(max_grad=max_grad, max_hess=0.25 if is_classification else 1.0),
        grad_std=std,
        hess_std=std,
        initial_std=0.0,
        n_trees=n_trees,
        rate=rate,
        order=order if has_filter else None,
        releases=(trees,) * n_models,
        account=by_renyi,
        initial_epsilon=initial_epsilon,
    )
