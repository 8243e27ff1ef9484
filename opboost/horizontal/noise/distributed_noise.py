"""Distributed noise: owners draw leaf noise in shares, so that nobody has to be trusted with exact sums.

Every owner adds Skellam noise of a part of the variance to its own sums, and secure aggregation shows their sum alone.
A part is such that `n_honest` owners make up the whole; of whoever else takes part nothing is expected. The account is
that of Gaussian noise (`opboost.privacy.skellam`), with an individual filter too (`leaf_noise`); at
vast epsilons it is by Renyi divergences (Agarwal, Kairouz and Liu, NeurIPS 2021).

An owner that takes part knows its own share, and against it the others' must do. A coordinator that makes up owners
knows all shares but one, that of an owner whose rows it asks for. `weaker_promises` has what holds then.
"""

from __future__ import annotations

import math
from dataclasses import replace

from opboost.errors import AccountError, ParameterError, check_integer
from opboost.horizontal.noise.leaf_noise import LeafNoise, filter_for_rounds, leaf_noise
from opboost.horizontal.noise.query_account import QueryAccount
from opboost.horizontal.noise.skellam_sums import skellam_laws
from opboost.horizontal.rows.record_holder import Clipping
from opboost.privacy.accounting import by_skellam, calibrate
from opboost.privacy.additive import Skellam
from opboost.privacy.record_guarantee import RecordGuarantee, WeakerPromise
from opboost.privacy.releases import Release, SkellamRounds


def shared_leaf_noise(
    clipping: Clipping,
    *,
    epsilon: float,
    delta: float,
    n_trees: int,
    n_honest: int,
    has_filter: bool = False,
    n_extra_trees: int = 0,
) -> LeafNoise:
    """The least noise for a budget, when any `n_honest` owners' shares must do.

    Parameters
    ----------
    clipping : Clipping
        Its grid is made as coarse as the noise needs.
    epsilon, delta : float
        An infinite epsilon for no noise.
    n_trees : int
        Rounds that every record is sure to be able to pay for.
    n_honest : int
        Owners who are sure to have added their shares to any sum that is released.
    has_filter : bool
        Whether records go on as long as they can pay for what they really contribute.
    n_extra_trees : int
        Rounds after `n_trees`, with a filter alone.
    """
    check_integer("the number of honest owners who share the noise", n_honest, least=1)
    if n_extra_trees and not has_filter:
        raise ParameterError("without a filter no record can pay for more trees than the noise is for")
    gauss = leaf_noise(clipping, epsilon=epsilon, delta=delta, n_trees=n_trees, initial_share=0, has_filter=has_filter)
    if math.isinf(epsilon):
        return replace(gauss, n_honest=n_honest)
    clipping = replace(clipping, noise_std=gauss.grad_std)

    def releases(multiplier: float) -> tuple[SkellamRounds, ...]:
        laws = skellam_laws(clipping, clipping.sensitivity * multiplier)
        mu_squared = filter_for_rounds(0, 1 / multiplier, None, n_trees).budget
        return (
            SkellamRounds(
                mu=math.sqrt(mu_squared) * (1 + 1e-15),
                largest=clipping.largest_steps,
                variances=tuple(law.variance for law in laws),
                n_rounds=n_trees + n_extra_trees,
            ),
        )

    multiplier = calibrate(releases, epsilon=epsilon, delta=delta, account=by_skellam, guess=gauss.multiplier)
    std = clipping.sensitivity * multiplier * (1 + 1e-14)
    return replace(
        gauss,
        clipping=clipping,
        grad_std=std,
        hess_std=std * clipping.ratio,
        releases=releases(multiplier),
        account=by_skellam,
        n_honest=n_honest,
    )


def owner_laws(noise: LeafNoise) -> tuple[Skellam | None, Skellam | None]:
    """Noise distributions of one owner's share on its sums of g and h; None if the coordinator adds the noise."""
    if not noise.n_honest or noise.grad_std == 0:
        return None, None
    grad, hess = skellam_laws(noise.clipping, noise.grad_std)
    return grad.share(noise.n_honest), hess.share(noise.n_honest)


def epsilon_of_shares(noise: LeafNoise, n_shares: int, *, delta: float) -> float:
    """Epsilon of all releases against somebody from whom only so many shares of the noise are hidden.

    Parameters
    ----------
    noise : LeafNoise
    n_shares : int
        Of which `noise.n_honest` make up the whole noise.
    delta : float
    """
    if not noise.releases or n_shares < 1:
        return math.inf
    return noise.account([_in_part(release, n_shares / noise.n_honest) for release in noise.releases], delta)


def _in_part(release: Release, part: float) -> SkellamRounds:
    """The release with a part of the noise's variance."""
    if not isinstance(release, SkellamRounds):
        raise AccountError(f"a {type(release).__name__} has no noise that comes in shares; nothing was released")
    variances = tuple(variance * part for variance in release.variances)
    return replace(release, mu=release.mu / math.sqrt(part) * (1 + 1e-15), variances=variances)


def weaker_promises(
    noise: LeafNoise | QueryAccount, *, delta: float, are_owners_known: bool
) -> tuple[WeakerPromise, ...]:
    """Parties against whom noise in shares has a weaker guarantee.

    Where one share is all of the noise, a worker that alone adds one knows all of it.

    Parameters
    ----------
    noise : LeafNoise or QueryAccount
    delta : float
    are_owners_known : bool
        Whether owners have each other's public keys, so that nobody can make up owners.
    """
    if isinstance(noise, QueryAccount) or not noise.n_honest or not noise.releases:
        return ()
    is_whole, worker = noise.n_honest == 1, "a worker that takes part, which knows its own share of the noise"
    shares_left = {f"{worker}, where no other worker adds a share" if is_whole else worker: noise.n_honest - 1}
    if not (are_owners_known or is_whole):
        shares_left["a coordinator that makes up the other workers, whose public keys no worker knows"] = 1
    return tuple(
        WeakerPromise(against=whom, epsilon=epsilon_of_shares(noise, n_shares, delta=delta))
        for whom, n_shares in shares_left.items()
    )


def owners_guarantee(
    noise: LeafNoise | QueryAccount,
    *,
    delta: float,
    is_secure: bool,
    bounds_are_public: bool,
    are_owners_known: bool,
    is_noise_of_each: bool = False,
    claimed: float | None = None,
) -> RecordGuarantee:
    """The guarantee of a model over several owners' records, and whether it holds against the coordinator.

    Parameters
    ----------
    noise : LeafNoise or QueryAccount
        Added by the coordinator, or with `n_honest` in shares by the owners.
    delta : float
    is_secure, bounds_are_public, are_owners_known : bool
    is_noise_of_each : bool
        Whether every owner adds all of the noise to its own sums.
    claimed : float, optional
        What a publication says that this costs, where it is followed to the letter.
    """
    epsilon, account = noise.epsilon(delta), noise.basis
    if is_noise_of_each:
        whom = "the coordinator too"
    elif noise.n_honest:
        account = f"{account}, Skellam noise in shares"
        whom = (
            f"the coordinator too, as long as {noise.n_honest} of the workers in every sum add their share of the noise"
        )
    else:
        whom = "but not against the coordinator, which sees the workers' exact sums and adds the noise"
    return RecordGuarantee(
        epsilon=epsilon,
        delta=delta if math.isfinite(epsilon) else 0.0,
        account=account,
        mode="certified" if claimed is None else "paper",
        is_secure=is_secure,
        bounds_are_public=bounds_are_public,
        claimed_epsilon=claimed,
        neighbours=noise.neighbours,
        weaker=weaker_promises(noise, delta=delta, are_owners_known=are_owners_known),
        protected=(
            "Whether any one record was used, and every value in it, is protected against everyone who sees the "
            f"model, {whom}."
        ),
    )
