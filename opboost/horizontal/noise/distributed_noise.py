"""Leaf noise that the owners of the rows draw in shares, so that nobody has to be trusted with exact sums.

Every owner adds Skellam noise of a part of the variance to its own sums, and secure aggregation shows their sum alone.
A part is such that `n_honest` owners make up the whole; of whoever else takes part nothing is expected. The account is
by Renyi divergences (Agarwal, Kairouz and Liu, NeurIPS 2021).
"""

from __future__ import annotations

import math
from dataclasses import replace

from opboost.errors import ParameterError
from opboost.horizontal.noise.leaf_noise import LeafNoise, filter_for_rounds, leaf_noise
from opboost.horizontal.noise.skellam_sums import skellam_laws, skellam_prices
from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.accounting import by_renyi, calibrate, renyi_account
from opboost.privacy.additive import Skellam
from opboost.privacy.fixed_point import Sensitivity
from opboost.privacy.releases import FilteredRelease, Release, gaussian


def shared_leaf_noise(
    clipping: Clipping, *, epsilon: float, delta: float, n_trees: int, n_honest: int, has_filter: bool = False
) -> LeafNoise:
    """The least noise for a budget, when any `n_honest` owners' shares must do.

    Parameters
    ----------
    clipping : Clipping
    epsilon, delta : float
        An infinite epsilon for no noise.
    n_trees : int
        Rounds that every record is sure to be able to pay for.
    n_honest : int
        Owners who are sure to have added their shares to any sum that is released.
    has_filter : bool
        Whether records go on as long as they can pay for what they really contribute.
    """
    if isinstance(n_honest, bool) or n_honest < 1:
        raise ParameterError(f"noise is shared among at least one honest owner; got {n_honest!r}")
    if math.isinf(epsilon):
        exact = leaf_noise(
            clipping, epsilon=epsilon, delta=delta, n_trees=n_trees, initial_share=0, has_filter=has_filter
        )
        return replace(exact, n_honest=n_honest)
    guess = calibrate(
        lambda multiplier: (gaussian(1.0, multiplier, count=n_trees),), epsilon=epsilon, delta=delta, account=by_renyi
    )
    # Found without looking at any data: the best order for Gaussian noise, which Skellam noise comes close to.
    order = renyi_account((gaussian(1.0, guess, count=n_trees),), delta)[1] if has_filter else None

    def releases(multiplier: float) -> tuple[Release, ...]:
        std = clipping.sensitivity * multiplier
        if order is None:
            return _releases(clipping, std, n_trees)
        prices = skellam_prices(clipping, std, order=order)
        budget = filter_for_rounds(0, clipping.sensitivity / std, prices, n_trees).budget
        return (FilteredRelease(order=order, rho=budget),)

    multiplier = calibrate(releases, epsilon=epsilon, delta=delta, account=by_renyi, guess=guess)
    std = clipping.sensitivity * multiplier
    return LeafNoise(
        clipping=clipping, grad_std=std, hess_std=std * clipping.ratio, initial_std=0.0, n_trees=n_trees, rate=1.0,
        order=order, releases=releases(multiplier), account=by_renyi, n_honest=n_honest,
    )  # fmt: skip


def owner_laws(noise: LeafNoise) -> tuple[Skellam | None, Skellam | None]:
    """What one owner adds to its own sums of g and of h; nothing if the noise is added to everybody's sum."""
    if not noise.n_honest or noise.grad_std == 0:
        return None, None
    grad, hess = skellam_laws(noise.clipping, noise.grad_std)
    return grad.share(noise.n_honest), hess.share(noise.n_honest)


def _releases(clipping: Clipping, grad_std: float, n_trees: int) -> tuple[Release, ...]:
    """The sums of g and those of h as releases of their own; one record is in one leaf."""
    return tuple(
        law.release(Sensitivity(l1=largest, l2_squared=largest**2), count=n_trees)
        for law, largest in zip(skellam_laws(clipping, grad_std), clipping.largest_steps, strict=True)
    )
