"""Noise against its exact probabilities, the sum of shares, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.special import ive, log_ndtr
from scipy.stats import chisquare, norm

from opboost.errors import ParameterError
from opboost.privacy.additive import DiscreteLaplace, Noise, RoundedGaussian, Skellam
from opboost.rng import seeded

# A correct sampler fails a chi-square test below this p-value once in a million runs; the seeds are fixed besides.
FALSE_ALARM = 1e-6

N_DRAWS = 200_000

LAWS = [
    DiscreteLaplace(0.2),
    DiscreteLaplace(3.7),
    DiscreteLaplace(64.0),
    RoundedGaussian(1.0),
    RoundedGaussian(31.5),
    Skellam(1),
    Skellam(9),
    Skellam(800),
]


def probabilities(law: Noise, z: np.ndarray) -> np.ndarray:
    """From the definition of each law."""
    match law:
        case DiscreteLaplace(scale=scale):
            return np.exp(-np.abs(z) / scale) * math.tanh(0.5 / scale)
        case RoundedGaussian(std=std):
            return norm.cdf((np.abs(z) + 0.5) / std) - norm.cdf((np.abs(z) - 0.5) / std)
        case Skellam(mean=mean):
            return ive(np.abs(z).astype(float), 2.0 * mean)
    raise AssertionError(law)


def p_value(draws: np.ndarray, law: Noise) -> float:
    """Chi-square p-value; values with fewer than 20 expected draws on either side share a bin."""
    reach = math.ceil(30 * math.sqrt(law.variance)) + 30
    z = np.arange(-reach, reach + 1)
    expected = probabilities(law, z) * len(draws)
    counts = np.bincount(np.clip(draws, -reach, reach) + reach, minlength=len(z))
    is_rare = expected < 20
    tails = [is_rare & (z < 0), is_rare & (z >= 0)]
    observed = np.array([*counts[~is_rare], *(counts[tail].sum() for tail in tails)])
    wanted = np.array([*expected[~is_rare], *(expected[tail].sum() for tail in tails)])
    return float(chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue)


@pytest.mark.parametrize("law", LAWS)
def test_draws_follow_the_law(law):
    """Chi-square of 200,000 draws; see `FALSE_ALARM`."""
    assert p_value(law.draw(N_DRAWS, rng=seeded(1)), law) > FALSE_ALARM


@pytest.mark.parametrize(
    ("law", "broken"),
    [
        (DiscreteLaplace(3.7), DiscreteLaplace(3.8)),
        (DiscreteLaplace(64.0), DiscreteLaplace(67.0)),
        (RoundedGaussian(3.2), RoundedGaussian(3.26)),
        (RoundedGaussian(31.5), RoundedGaussian(32.3)),
        (Skellam(1), RoundedGaussian(math.sqrt(2))),
        (Skellam(800), Skellam(835)),
    ],
)
def test_a_sampler_of_a_law_nearby_is_caught_by_the_same_chi_square(law, broken):
    """200,000 draws, where each twin is expected to be more than seven standard deviations off."""
    assert p_value(broken.draw(N_DRAWS, rng=seeded(1)), law) < FALSE_ALARM


@pytest.mark.parametrize("law", [DiscreteLaplace(3.7), RoundedGaussian(2.0), Skellam(9)])
def test_a_sign_that_is_negative_in_51_of_100_draws_is_caught_by_the_same_chi_square(law):
    draws = law.draw(N_DRAWS, rng=seeded(1))
    draws[::50] = -np.abs(draws[::50])
    assert p_value(draws, law) < FALSE_ALARM


@pytest.mark.parametrize("law", [RoundedGaussian(3.3e6), Skellam(10**13), Skellam(2**60)], ids=str)
def test_on_a_fine_grid_draws_are_normal_to_the_eye(law):
    """Chi-square of 200,000 draws in 64 bins of equal probability; see `FALSE_ALARM`."""
    share = norm.cdf(law.draw(N_DRAWS, rng=seeded(2)) / math.sqrt(law.variance))
    assert chisquare(np.bincount((share * 64).astype(int), minlength=64)).pvalue > FALSE_ALARM


def test_on_a_fine_grid_discrete_laplace_draws_are_laplace_to_the_eye():
    """Chi-square of 200,000 draws in 64 bins of equal probability; see `FALSE_ALARM`."""
    z = DiscreteLaplace(2.0**40).draw(N_DRAWS, rng=seeded(2)) / 2.0**40
    share = np.where(z < 0, np.exp(-np.abs(z)) / 2, 1 - np.exp(-np.abs(z)) / 2)
    assert chisquare(np.bincount((share * 64).astype(int), minlength=64)).pvalue > FALSE_ALARM


@pytest.mark.parametrize("law", LAWS)
def test_the_variance_is_that_of_the_probabilities(law):
    z = np.arange(-3000, 3001)
    exact = float((probabilities(law, z) * z**2).sum())
    assert exact == pytest.approx(law.variance, rel=2e-7)


@pytest.mark.parametrize(("mean", "n_honest"), [(800, 3), (5, 5)])
def test_shares_of_skellam_noise_sum_to_the_noise_of_n_times_their_mean_and_not_less_than_asked(mean, n_honest):
    """Chi-square of 200,000 sums; see `FALSE_ALARM`."""
    whole = Skellam(mean)
    share = whole.share(n_honest)
    assert mean <= share.mean * n_honest < mean + n_honest
    sums = sum(share.draw(N_DRAWS, rng=seeded(10 + k)) for k in range(n_honest))
    assert p_value(sums, Skellam(share.mean * n_honest)) > FALSE_ALARM


def test_shares_of_a_law_that_does_not_sum_within_its_family_are_caught_by_the_same_chi_square():
    """Four rounded Gaussians are rounded four times: their sum is wider than one of twice their deviation."""
    sums = sum(RoundedGaussian(1.0).draw(N_DRAWS, rng=seeded(20 + k)) for k in range(4))
    assert p_value(sums, RoundedGaussian(2.0)) < FALSE_ALARM


@pytest.mark.parametrize(("variance", "mean"), [(0.5, 1), (2.0, 1), (2.1, 2), (1e13, 5 * 10**12)])
def test_skellam_noise_of_a_variance_has_at_least_that(variance, mean):
    assert Skellam.of_variance(variance) == Skellam(mean)


def test_draws_are_int64_of_the_length_asked_for_and_none_is_an_empty_array():
    for law in LAWS:
        assert law.draw(7, rng=seeded(1)).dtype == np.int64
        assert law.draw(7, rng=seeded(1)).shape == (7,)
        assert law.draw(0, rng=seeded(1)).shape == (0,)


def test_the_same_bits_give_the_same_noise_and_others_do_not():
    law = RoundedGaussian(100.0)
    assert (law.draw(1000, rng=seeded(1)) == law.draw(1000, rng=seeded(1))).all()
    assert (law.draw(1000, rng=seeded(1)) != law.draw(1000, rng=seeded(2))).any()


@pytest.mark.parametrize(
    ("law", "value"),
    [
        *((DiscreteLaplace, value) for value in (0, -1.0, 0.03, math.nan, 2.0**41)),
        *((RoundedGaussian, value) for value in (0.99, math.inf, True, "1", None)),
        *((Skellam, value) for value in (0, -1, 1.5, True, 2**60 + 1)),
    ],
)
def test_a_scale_that_is_not_allowed_is_refused_before_anything_is_drawn(law, value):
    with pytest.raises(ParameterError, match="Nothing was drawn"):
        law(value)


@pytest.mark.parametrize("n_honest", [0, -1, 1.5, True])
def test_noise_is_shared_among_a_whole_number_of_honest_parties(n_honest):
    with pytest.raises(ParameterError, match="honest"):
        Skellam(10).share(n_honest)


def worst_delta(law: Noise, shift: int, epsilon: float) -> float:
    """The hockey-stick divergence between the noise and the noise moved by `shift`, by summing over outputs."""
    reach = math.ceil(40 * math.sqrt(law.variance)) + 60
    z = np.arange(-reach, reach + 1)
    return float(np.maximum(0, probabilities(law, z) - math.exp(epsilon) * probabilities(law, z - shift)).sum())


@pytest.mark.parametrize(("scale", "l1"), [(0.5, 1), (2.0, 1), (10.0, 7), (64.0, 100)])
def test_discrete_laplace_noise_loses_its_epsilon_and_not_more(scale, l1):
    law, z = DiscreteLaplace(scale), np.arange(-100, 101)
    loss = np.log(probabilities(law, z) / probabilities(law, z - l1)).max()
    assert loss == pytest.approx(l1 / scale, rel=1e-9)
    assert worst_delta(law, l1, l1 / scale * 0.99) > 1e-9
    assert worst_delta(law, l1, l1 / scale * (1 + 1e-9)) < 1e-15


@pytest.mark.parametrize("std", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("shift", [1, 2, 30])
@pytest.mark.parametrize("epsilon", [0.0, 0.5, 3.0])
def test_rounded_gaussian_noise_has_the_exact_guarantee_of_the_continuous_one(std, shift, epsilon):
    mu = shift / std
    exact = norm.cdf(mu / 2 - epsilon / mu) - math.exp(epsilon + log_ndtr(-mu / 2 - epsilon / mu))
    assert worst_delta(RoundedGaussian(std), shift, epsilon) <= exact + 1e-14
