"""Order metrics and the attacker, each against a slow obvious twin and the published figures."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import rankdata

from opboost import AdjMap, GlobalMap, IntegerDomain, rng
from opboost.errors import DataError, ParameterError
from opboost.order_metrics import bayes_attack, beta, expected_weighted_kendall, gamma, weighted_kendall
from opboost.privacy.laws import Law

EPSILONS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12)
TAU_ON_11_POINTS = {
    "exponential": (0.0111, 0.0222, 0.0444, 0.0889, 0.1766, 0.3409, 0.5955, 0.8386, 0.9560, 0.9919),
    "calibrated": (0.0122, 0.0245, 0.0494, 0.0996, 0.2017, 0.4022, 0.7162, 0.9374, 0.9912, 0.9994),
    "clamped": (0.0275, 0.0548, 0.1088, 0.2118, 0.3899, 0.6334, 0.8483, 0.9567, 0.9919, 0.9995),
}
TAU_ON_100_POINTS = {
    "exponential": (0.100, 0.640, 0.959),
    "calibrated": (0.101, 0.656, 0.970),
    "clamped": (0.238, 0.871, 0.989),
}
GAMMA_OF_ADJ_MAP = (0.4945, 0.5881, 0.6810, 0.7596, 0.8223, 0.8704, 0.9062, 0.9320, 0.9497, 0.9602)


def kendall_by_pairs(values, released):
    ranks = rankdata(values, method="dense")
    agree = total = 0.0
    for i, j in product(range(len(values)), repeat=2):
        weight = abs(ranks[i] - ranks[j])
        agree += weight * np.sign(values[i] - values[j]) * np.sign(released[i] - released[j])
        total += weight
    return agree / total


def table(size=6, epsilon=0.7, law="exponential"):
    return GlobalMap(epsilon=epsilon, domain=IntegerDomain(0, size - 1), law=law).log_probabilities()


columns = st.lists(st.tuples(st.integers(0, 9), st.integers(-5, 5)), min_size=2, max_size=30).filter(
    lambda rows: len({x for x, _ in rows}) > 1
)


@given(columns)
@settings(max_examples=100, deadline=None)
def test_weighted_kendall_is_the_sum_over_all_pairs(rows):
    values, released = np.array(rows).T
    assert weighted_kendall(values, released) == pytest.approx(kendall_by_pairs(values, released))


@given(columns)
@settings(max_examples=100, deadline=None)
def test_merging_rows_gives_what_the_count_matrix_gives(rows):
    values, released = np.array(rows).T
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("opboost.order_metrics._MAX_COUNT_CELLS", 0)
        merged = weighted_kendall(values, released)
    assert merged == pytest.approx(weighted_kendall(values, released))


def test_the_true_order_scores_one_and_the_reverse_minus_one():
    values = np.array([3, 1, 4, 1, 5])
    assert weighted_kendall(values, values * 2.5) == 1.0
    assert weighted_kendall(values, -values) == -1.0


def test_a_column_without_a_pair_to_compare_is_refused():
    with pytest.raises(DataError, match="two distinct values"):
        weighted_kendall([4, 4, 4], [1, 2, 3])


@pytest.mark.parametrize("law", TAU_ON_11_POINTS)
def test_expected_kendall_is_as_published_on_11_points(law):
    domain = IntegerDomain(0, 10)
    found = [
        expected_weighted_kendall(GlobalMap(epsilon=epsilon, domain=domain, law=law).log_probabilities())
        for epsilon in EPSILONS
    ]
    assert np.round(found, 4).tolist() == list(TAU_ON_11_POINTS[law])


@pytest.mark.parametrize("law", TAU_ON_100_POINTS)
def test_expected_kendall_is_as_published_on_100_points(law):
    domain = IntegerDomain(0, 99)
    found = [
        expected_weighted_kendall(GlobalMap(epsilon=epsilon, domain=domain, law=law).log_probabilities())
        for epsilon in (0.01, 0.08, 0.32)
    ]
    assert np.round(found, 3).tolist() == list(TAU_ON_100_POINTS[law])


def test_expected_kendall_with_weights_is_what_a_large_sample_shows():
    """One seeded sample of 200,000 rows: the standard deviation of its coefficient is below 0.002."""
    weights = np.array([5, 0, 1, 3, 8, 2])
    mechanism = GlobalMap(epsilon=0.7, domain=IntegerDomain(0, 5))
    codes = np.random.default_rng(1).choice(6, size=200_000, p=weights / weights.sum())
    sampled = weighted_kendall(codes, mechanism.randomise(codes, rng=rng.seeded(1)))
    exact = expected_weighted_kendall(mechanism.log_probabilities(), weights)
    assert sampled == pytest.approx(exact, abs=0.008)
    assert expected_weighted_kendall(mechanism.log_probabilities()) != pytest.approx(exact, abs=0.008)


def test_gamma_of_an_adj_map_is_as_published():
    mechanism = AdjMap(epsilon=0.1, domain=IntegerDomain(1, 100), theta=10, alpha=1.0, law="exponential")
    found = [gamma(mechanism.log_probabilities(), t) for t in range(5, 100, 10)]
    assert np.round(found, 4).tolist() == list(GAMMA_OF_ADJ_MAP)


@pytest.mark.parametrize("law", Law)
def test_gamma_is_the_least_over_all_pairs(law):
    log_table = table(law=law)
    probabilities = np.exp(log_table)
    for t in range(1, 6):
        least = min(
            sum(probabilities[x, y] * probabilities[x - t, z] for y in range(6) for z in range(y)) for x in range(t, 6)
        )
        assert gamma(log_table, t) == pytest.approx(least)


@pytest.mark.parametrize("t", [0, 6])
def test_a_distance_outside_the_domain_is_refused(t):
    with pytest.raises(ParameterError, match=r"t must lie in 1\.\.5"):
        gamma(table(), t)


@pytest.mark.parametrize(("left", "right"), [([0], [5]), ([0, 1, 1], [3, 5]), ([2, 2], [2, 3])])
def test_beta_is_the_probability_found_by_enumerating_all_releases(left, right):
    log_table = table()
    probabilities = np.exp(log_table)
    total = 0.0
    for releases in product(range(6), repeat=len(left) + len(right)):
        if max(releases[: len(left)]) < min(releases[len(left) :]):
            total += np.prod([probabilities[x, y] for x, y in zip(left + right, releases, strict=True)])
    assert beta(log_table, left, right) == pytest.approx(total)


@pytest.mark.parametrize("weights", [None, [1, 4, 0, 2, 9, 3]])
def test_the_attacker_does_as_well_as_the_best_of_all_strategies(weights):
    prior = np.ones(6) / 6 if weights is None else np.array(weights) / np.sum(weights)
    log_table = table()
    joint = prior[:, None] * np.exp(log_table)
    attack = bayes_attack(log_table, weights)
    codes = np.arange(6)
    errors = [min(float((joint[:, y] * np.abs(codes - guess)).sum()) for guess in codes) for y in codes]
    assert attack.success == pytest.approx(sum(joint[:, y].max() for y in codes))
    assert attack.error == pytest.approx(sum(errors))
    assert attack.blind_success == pytest.approx(prior.max())
    assert attack.blind_error == pytest.approx(min(float((prior * np.abs(codes - guess)).sum()) for guess in codes))
    assert attack.error <= attack.blind_error
    assert attack.success >= attack.blind_success


@pytest.mark.parametrize("weights", [[1, 2], [0] * 6, [-1, 1, 1, 1, 1, 1]])
def test_weights_that_are_no_prior_are_refused(weights):
    with pytest.raises(ParameterError, match="weights must be 6 numbers"):
        bayes_attack(table(), weights)
