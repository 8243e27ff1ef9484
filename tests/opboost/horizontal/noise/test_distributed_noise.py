"""Noise in shares: any budget can be had, and what fewer shares than are counted on promise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ive

from opboost.errors import AccountError, ParameterError
from opboost.horizontal.noise.distributed_noise import epsilon_of_shares, owner_laws, shared_leaf_noise, weaker_promises
from opboost.horizontal.noise.leaf_noise import LeafNoise, leaf_noise
from opboost.horizontal.noise.leaf_sensitivity import leaf_clipping
from opboost.horizontal.rows.record_holder import Clipping, logistic_gradients
from opboost.privacy.accounting import by_gaussian, by_renyi
from opboost.privacy.gaussian import gaussian_epsilon
from tests.support.gaussian_budget import gaussian_mu

CLIPPING = leaf_clipping(0.5, 2.0, is_classification=True)
DELTA = 1e-6


@pytest.mark.parametrize("epsilon", [1.0, 0.25, 0.1, 0.05, 0.01, 0.001])
@pytest.mark.parametrize("has_filter", [False, True])
def test_noise_in_shares_can_be_had_for_any_budget(epsilon: float, has_filter: bool) -> None:
    found = shared_leaf_noise(CLIPPING, epsilon=epsilon, delta=DELTA, n_trees=300, n_honest=2, has_filter=has_filter)
    assert epsilon * 0.999 < found.epsilon(DELTA) <= epsilon
    for law in owner_laws(found):
        assert law is not None
        assert 2.0**26 < 2 * law.variance < 2.0**60


@pytest.mark.parametrize("epsilon", [3.0, 8.0, 12.0, 40.0, 1e4])
def test_vast_budgets_need_no_more_noise_than_renyi_divergences_tell(epsilon: float) -> None:
    found = shared_leaf_noise(CLIPPING, epsilon=epsilon, delta=DELTA, n_trees=50, n_honest=2)
    assert epsilon * 0.999 < found.epsilon(DELTA) <= epsilon
    (release,) = found.releases
    assert by_renyi([release], DELTA) < epsilon * 1.15
    with_less = replace(release, mu=release.mu * 1.01, variances=tuple(v / 1.01**2 for v in release.variances))
    assert min(by_renyi([with_less], DELTA), by_gaussian([with_less], DELTA)) > epsilon


def test_grids_stay_as_they_are_where_the_noise_fits_them() -> None:
    found = shared_leaf_noise(CLIPPING, epsilon=1.0, delta=DELTA, n_trees=100, n_honest=2)
    assert found.clipping.grid == CLIPPING.grid
    coarse = shared_leaf_noise(CLIPPING, epsilon=0.01, delta=DELTA, n_trees=300, n_honest=2).clipping
    assert coarse.grid.grad_scale < CLIPPING.grid.grad_scale
    assert min(coarse.largest_steps) > 2**12
    assert coarse.sensitivity == CLIPPING.sensitivity


@pytest.mark.parametrize("noise_std", [0.0, 3e2, 1e4, 1e9])
def test_contributions_keep_to_their_bounds_on_every_grid(noise_std: float) -> None:
    clipping = replace(CLIPPING, noise_std=noise_std)
    scores = np.random.default_rng(0).normal(scale=3, size=2000)
    labels = (np.arange(2000) % 2).astype(float)
    grad, hess = clipping.encode(*logistic_gradients(scores, labels))
    assert np.abs(grad).max() <= clipping.largest_steps[0]
    assert hess.max() <= clipping.largest_steps[1]
    assert clipping.norms_squared(grad, hess).max() <= clipping.sensitivity**2
    step = 1 / clipping.grid.grad_scale
    assert step <= max(1 / CLIPPING.grid.grad_scale, noise_std * 2.0**-27)
    finest = CLIPPING.encode(*logistic_gradients(scores, labels))[0] / CLIPPING.grid.grad_scale
    assert np.abs(grad * step - finest).max() <= step + 1 / CLIPPING.grid.grad_scale


def test_a_grid_for_noise_without_end_or_of_nothing_is_refused() -> None:
    for wrong in (-1.0, math.inf, math.nan):
        with pytest.raises(ParameterError, match="noise_std"):
            replace(CLIPPING, noise_std=wrong)


def scaled(n_honest: int, n_shares: int, *, has_filter: bool = False, epsilon: float = 1.0) -> float:
    noise = shared_leaf_noise(
        CLIPPING, epsilon=epsilon, delta=DELTA, n_trees=100, n_honest=n_honest, has_filter=has_filter
    )
    return epsilon_of_shares(noise, n_shares, delta=DELTA)


@pytest.mark.parametrize("has_filter", [False, True])
def test_ghosts_leave_one_share_and_a_worker_that_takes_part_all_but_its_own(has_filter: bool) -> None:
    """What a promised epsilon of 1 is worth against a coordinator that makes up workers, and against a worker."""
    ghosts = [scaled(n, 1, has_filter=has_filter) for n in (2, 5, 10)]
    assert ghosts == pytest.approx([1.45, 2.40, 3.52], abs=0.01)
    others = [scaled(n, n - 1, has_filter=has_filter) for n in (2, 3, 5)]
    assert others == pytest.approx([1.45, 1.24, 1.13], abs=0.01)
    assert scaled(3, 3, has_filter=has_filter) == pytest.approx(1.0, abs=1e-3)
    assert scaled(3, 6, has_filter=has_filter) < 0.75


def test_the_noise_is_that_of_whoever_adds_it_to_the_sum() -> None:
    """And a share of it is Gaussian noise of so much less: the exact account of the one is that of the other."""
    for has_filter in (False, True):
        settings = {"epsilon": 1.0, "delta": DELTA, "n_trees": 20, "has_filter": has_filter}
        shared = shared_leaf_noise(CLIPPING, n_honest=11, **settings)
        gauss = leaf_noise(CLIPPING, initial_share=0, **settings)
        assert shared.multiplier == pytest.approx(gauss.multiplier, rel=1e-4)
        for n_shares in (1, 10, 11, 20):
            mu = gaussian_mu(1.0, DELTA) * math.sqrt(11 / n_shares)
            expected = gaussian_epsilon(mu, DELTA)
            assert expected * 0.9999 < epsilon_of_shares(shared, n_shares, delta=DELTA) < expected * 1.001


def exact_deltas(noise: LeafNoise, share: float, epsilons: np.ndarray) -> np.ndarray:
    """Delta of a record that contributes the largest in every round, at these epsilons, from every outcome's loss."""
    cell, width = 2e-4, 2**18
    (release,) = noise.releases
    spectrum = np.ones(width // 2 + 1, complex)
    for steps, variance in zip(release.largest, release.variances, strict=True):
        reach = int(12 * math.sqrt(variance * share))
        z = np.arange(-reach, reach + 1, dtype=np.float64)
        log_p = np.log(ive(np.abs(z), variance * share))
        losses = np.rint((log_p[:-steps] - log_p[steps:]) / cell).astype(int)
        once = np.bincount(losses % width, np.exp(log_p[:-steps]), width)
        spectrum *= np.fft.rfft(once) ** release.n_rounds
    law = np.fft.irfft(spectrum)
    losses = np.fft.fftfreq(width, 1 / width) * cell
    return np.array([(law * np.maximum(-np.expm1(epsilon - losses), 0)).sum() for epsilon in epsilons])


@pytest.mark.parametrize("has_filter", [False, True])
def test_the_figures_are_those_of_enumeration(has_filter: bool) -> None:
    """On a grid of few steps every outcome can be listed; the account is not below that, and above it by little."""
    clipping, delta = Clipping(max_grad=0.5, max_hess=0.25, ratio=2.0), 1e-2
    fine = shared_leaf_noise(clipping, epsilon=1.0, delta=delta, n_trees=4, n_honest=3, has_filter=has_filter)
    (release,) = fine.releases
    # The same noise in coarser steps.
    factors = [steps / largest for steps, largest in zip((300, 200), release.largest, strict=True)]
    variances = tuple(factor**2 * variance for factor, variance in zip(factors, release.variances, strict=True))
    noise = replace(fine, releases=(replace(release, largest=(300, 200), variances=variances),))
    for n_shares in (1, 2, 3):
        stated = epsilon_of_shares(noise, n_shares, delta=delta)
        above, at_it = exact_deltas(noise, n_shares / 3, np.array([stated * 0.98, stated]))
        assert at_it <= delta < above
        # The twin: one share more than there is.
        assert (
            exact_deltas(noise, n_shares / 3, np.array([epsilon_of_shares(noise, n_shares + 1, delta=delta)])) > delta
        )


def test_shares_of_exact_sums_and_no_shares_promise_nothing() -> None:
    exact = shared_leaf_noise(CLIPPING, epsilon=math.inf, delta=DELTA, n_trees=5, n_honest=2)
    assert epsilon_of_shares(exact, 2, delta=DELTA) == math.inf
    assert scaled(2, 0) == math.inf
    gauss = leaf_noise(CLIPPING, epsilon=1.0, delta=DELTA, n_trees=5)
    with pytest.raises(AccountError, match="no noise that comes in shares"):
        epsilon_of_shares(replace(gauss, n_honest=2), 1, delta=DELTA)


def test_every_round_in_which_owners_answer_is_in_the_account() -> None:
    noise = shared_leaf_noise(
        CLIPPING, epsilon=1.0, delta=DELTA, n_trees=20, n_honest=2, has_filter=True, n_extra_trees=30
    )
    assert noise.releases[0].n_rounds == 50
    with pytest.raises(ParameterError, match="without a filter"):
        shared_leaf_noise(CLIPPING, epsilon=1.0, delta=DELTA, n_trees=20, n_honest=2, n_extra_trees=30)


def test_weaker_promises_name_whom_they_hold_against() -> None:
    noise = shared_leaf_noise(CLIPPING, epsilon=1.0, delta=DELTA, n_trees=20, n_honest=2)
    (worker,) = weaker_promises(noise, are_owners_known=True, delta=DELTA)
    assert "takes part" in worker.against
    both = weaker_promises(noise, are_owners_known=False, delta=DELTA)
    assert both[0] == worker
    assert "makes up" in both[1].against
    assert [one.epsilon for one in both] == [epsilon_of_shares(noise, 1, delta=DELTA)] * 2
    nothing = leaf_noise(CLIPPING, epsilon=1.0, delta=DELTA, n_trees=20)
    assert weaker_promises(nothing, are_owners_known=False, delta=DELTA) == ()


@pytest.mark.parametrize("are_owners_known", [True, False])
def test_a_worker_whose_share_is_all_of_the_noise_knows_all_of_it(are_owners_known: bool) -> None:
    whole = shared_leaf_noise(CLIPPING, epsilon=1.0, delta=DELTA, n_trees=20, n_honest=1)
    # Whoever makes up the other workers sees one share, which is the whole noise.
    (worker,) = weaker_promises(whole, are_owners_known=are_owners_known, delta=DELTA)
    assert "no other worker adds a share" in worker.against
    assert worker.epsilon == epsilon_of_shares(whole, 0, delta=DELTA) == math.inf
