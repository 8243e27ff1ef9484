"""The LDP baselines against their densities, their promise, and their own exact arithmetic."""

from __future__ import annotations

import math
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost import IntegerDomain, rng
from opboost.errors import ParameterError
from opboost.order_metrics import expected_weighted_kendall
from opboost.privacy.baselines import _SLACK, HYBRID_THRESHOLD, Duchi, Hybrid, Piecewise
from opboost.privacy.settling import LazyUniform

MECHANISMS = [Piecewise, Duchi, Hybrid]
TWENTY = IntegerDomain(1, 20)

# Bound on the rounding error of a probability in a table of doubles; `_SLACK` allows five times as much.
ROUNDING = 2e-14

# Weighted Kendall of the Piecewise mechanism on 11 points, rounded but not clipped.
TAU_OF_PIECEWISE = {0.01: 0.0028, 0.08: 0.0223, 0.32: 0.0922, 1.28: 0.3827, 5.12: 0.9195}


def keeps(probabilities, epsilon):
    """For each output, whether no input makes it more likely by more than the promise and the table's rounding."""
    factor = math.exp(epsilon)
    return probabilities.max(axis=0) <= factor * probabilities.min(axis=0) + ROUNDING * (1 + factor)


@pytest.mark.parametrize("kind", MECHANISMS)
@given(st.floats(0.01, 12), st.integers(2, 60))
@settings(max_examples=40, deadline=None)
def test_every_row_is_a_distribution_and_no_pair_of_rows_breaks_the_promise(kind, epsilon, size):
    mechanism = kind(epsilon=epsilon, domain=IntegerDomain(0, size - 1))
    probabilities = np.exp(mechanism.log_probabilities())
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(size))
    assert keeps(probabilities, epsilon).all()


def test_a_piecewise_table_with_a_tenth_more_loss_breaks_the_same_promise():
    probabilities = np.exp(Piecewise(epsilon=1.1, domain=TWENTY).log_probabilities())
    assert not keeps(probabilities, 1.0).all()


@pytest.mark.parametrize("epsilon", TAU_OF_PIECEWISE)
def test_piecewise_keeps_as_little_order_as_published(epsilon):
    mechanism = Piecewise(epsilon=epsilon, domain=IntegerDomain(0, 10))
    s = math.exp(epsilon / 2)
    beyond = math.ceil(5 * (s + 1) / (s - 1)) + 1
    reached = mechanism._cumulative(np.arange(11)[:, None], np.arange(-beyond, 11 + beyond))
    unclipped = np.diff(reached, axis=1, prepend=0.0)
    with np.errstate(divide="ignore"):
        tau = expected_weighted_kendall(np.log(np.clip(unclipped, 0.0, None)))
    assert round(tau, 4) == TAU_OF_PIECEWISE[epsilon]


def test_duchi_releases_an_end_of_the_domain():
    released = Duchi(epsilon=1.0, domain=TWENTY).randomise(np.arange(1, 21).repeat(20), rng=rng.seeded(0))
    assert set(released.tolist()) == {1, 20}


def test_hybrid_is_duchi_up_to_its_threshold_and_a_mixture_above():
    assert pytest.approx(0.61, abs=0.005) == HYBRID_THRESHOLD
    below, above = 0.6, 0.62
    tables = {e: [np.exp(k(epsilon=e, domain=TWENTY).log_probabilities()) for k in MECHANISMS] for e in (below, above)}
    assert np.array_equal(tables[below][2], tables[below][1])
    share = 1 - math.exp(-above / 2)
    assert tables[above][2] == pytest.approx(share * tables[above][0] + (1 - share) * tables[above][1])


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_draws_follow_the_table_and_a_shifted_table_is_caught(kind, epsilon):
    """200,000 seeded draws per input; a right sampler fails once in a million runs."""
    mechanism = kind(epsilon=epsilon, domain=TWENTY)
    table = np.exp(mechanism.log_probabilities())
    for x in (0, 3, 19):
        released = mechanism.randomise(np.full(200_000, x + 1), rng=rng.seeded(x)) - 1
        counts = np.bincount(released, minlength=20)
        possible = table[x] > 0
        assert counts[~possible].sum() == 0
        assert chisquare(counts[possible], table[x][possible] * 200_000).pvalue > 1e-6
    other = kind(epsilon=1.1 * epsilon, domain=TWENTY).log_probabilities()
    assert chisquare(counts[possible], np.exp(other)[19][possible] * 200_000).pvalue < 1e-6


@pytest.mark.parametrize("kind", MECHANISMS)
@given(st.integers(0, 2**64 - 1), st.integers(0, 19), st.floats(0.05, 10))
@settings(max_examples=60, deadline=None)
def test_doubles_and_decimals_draw_alike(kind, word, x, epsilon):
    mechanism = kind(epsilon=epsilon, domain=TWENTY)
    drawn = mechanism._draw(np.array([x]), np.array([word], dtype=np.uint64), rng.seeded(1))[0]
    assert drawn == mechanism._settle(x, LazyUniform(word, 64, rng=rng.seeded(1)))


@pytest.mark.parametrize("kind", MECHANISMS)
def test_no_noise_and_bad_input(kind):
    codes = np.arange(1, 21)
    assert np.array_equal(kind(epsilon=math.inf, domain=TWENTY).randomise(codes, rng=rng.seeded(0)), codes)
    with pytest.raises(ParameterError, match="epsilon must be positive"):
        kind(epsilon=0.0, domain=TWENTY)
    with pytest.raises(ParameterError, match="outside the domain"):
        kind(epsilon=1.0, domain=TWENTY).randomise(np.array([21]), rng=rng.seeded(0))


def exactly(mechanism, x, y, *, digits=60):
    """The probability of an output of at most y, in decimals."""
    return mechanism._boundary(x, y)(Context(prec=digits, Emax=MAX_EMAX, Emin=MIN_EMIN))


@pytest.mark.parametrize("kind", MECHANISMS)
@pytest.mark.parametrize("epsilon", [1e-9, 0.3, 20.0, 40.0, 75.0, 700.0])
@pytest.mark.parametrize("size", [2, 11, 1_000_000])
def test_doubles_are_as_near_and_decimals_as_exact_as_draws_take_them_to_be(kind, epsilon, size):
    mechanism = kind(epsilon=epsilon, domain=IntegerDomain(0, size - 1))
    generator = np.random.default_rng(0)
    for x in {0, size - 1, *generator.integers(0, size, 3).tolist()}:
        near = np.clip(x + np.arange(-2, 3), 0, size - 2)
        for y in {0, size - 2, *near.tolist(), *generator.integers(0, size - 1, 3).tolist()}:
            exact = exactly(mechanism, x, y, digits=400)
            doubles = mechanism._cumulative(np.array([x]), np.array([y]))[0]
            assert abs(Decimal(float(doubles)) - exact) < Decimal(_SLACK) / 10
            assert abs(exactly(mechanism, x, y) - exact) < Decimal(10) ** -55


@pytest.mark.parametrize("kind", [Piecewise, Hybrid])
@pytest.mark.parametrize(("epsilon", "size"), [(20.0, 1_000_000), (24.0, 1_000_000), (40.0, 11)])
def test_every_output_comes_up_at_the_middle_of_its_share(kind, epsilon, size):
    """The window around a value takes nearly all; the share of a far output is lost among the last bits of doubles."""
    mechanism = kind(epsilon=epsilon, domain=IntegerDomain(0, size - 1))
    for x in (0, size // 3, size - 1):
        for y in np.random.default_rng(1).integers(1, size - 1, 40).tolist():
            middle = (exactly(mechanism, x, y - 1) + exactly(mechanism, x, y)) / 2
            word = np.array([int(middle * 2**64)], dtype=np.uint64)
            assert mechanism._draw(np.array([x]), word, rng.seeded(1))[0] == y


@pytest.mark.parametrize("kind", [Piecewise, Hybrid])
@pytest.mark.parametrize("epsilon", [200.0, 700.0, 5000.0])
def test_a_vast_budget_leaves_every_code_as_it_is(kind, epsilon):
    """Any other one comes up with a probability below exp(-99)."""
    codes = np.arange(1, 21)
    assert np.array_equal(kind(epsilon=epsilon, domain=TWENTY).randomise(codes, rng=rng.seeded(0)), codes)
