"""Noise for a number of Gaussian queries: the published table, and that it is neither too little nor too much."""

from __future__ import annotations

import math

import pytest

from opboost.horizontal.noise.query_account import query_account
from opboost.privacy.gaussian import gaussian_delta
from opboost.privacy.releases import GaussianRelease
from opboost.privacy.renyi import divergence, renyi_epsilon

# Noise over sqrt(queries) by number of records, delta one over it, for epsilon 0.1, 0.5, 1: Renyi, then exact.
GOLDEN = {
    21113: ((30.7598, 6.92302, 3.68884), (26.6203, 6.27730, 3.36897)),
    22400: ((30.8663, 6.95308, 3.70307), (26.7838, 6.30706, 3.38320)),
    70000: ((33.1600, 7.50238, 3.96586), (29.8322, 6.86362, 3.64988)),
    84188: ((33.5819, 7.58761, 4.00865), (30.3090, 6.95100, 3.69182)),
}


# The orders that the table's Renyi column was made with.
COARSE = (*range(2, 64), 128, 256, 512, 1024)


@pytest.mark.parametrize("n_records", GOLDEN)
def test_noise_of_exact_composition_is_that_of_the_published_table(n_records):
    for epsilon, expected in zip((0.1, 0.5, 1.0), GOLDEN[n_records][1], strict=True):
        account = query_account(200, epsilon=epsilon, delta=1 / n_records)
        assert account.multiplier / math.sqrt(200) == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("n_records", GOLDEN)
def test_noise_as_printed_is_that_of_the_published_table_or_less_by_finer_orders(n_records):
    for epsilon, expected in zip((0.1, 0.5, 1.0), GOLDEN[n_records][0], strict=True):
        curve = divergence(GaussianRelease(mu=1 / expected), COARSE)
        assert renyi_epsilon(COARSE, curve, 1 / n_records)[0] == pytest.approx(epsilon, rel=2e-5)
        account = query_account(200, epsilon=epsilon, delta=1 / n_records, is_printed=True)
        assert 0.97 * expected < account.multiplier / math.sqrt(200) < expected * (1 + 2e-5)


@pytest.mark.parametrize("n_queries", [1, 7, 400])
def test_the_promise_is_exact_and_a_little_less_noise_breaks_it(n_queries):
    account = query_account(n_queries, epsilon=0.7, delta=1e-5)
    mu = math.sqrt(n_queries) / account.multiplier
    assert account.epsilon(1e-5) <= 0.7
    assert gaussian_delta(mu, 0.7) <= 1e-5 < gaussian_delta(mu * 1.001, 0.7)


def test_printed_noise_is_worth_more_than_it_claims():
    account = query_account(200, epsilon=0.5, delta=1e-5, is_printed=True, excess=math.sqrt(17) / 4)
    assert 0.4 < account.epsilon(1e-5) < 0.46


def test_no_noise_and_no_queries_promise_nothing():
    assert query_account(10, epsilon=math.inf, delta=0.0).epsilon(1e-5) == math.inf
    assert query_account(0, epsilon=1.0, delta=1e-5).releases == ()
