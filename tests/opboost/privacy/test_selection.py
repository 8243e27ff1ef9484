"""The exponential mechanism: its ratio by brute force over neighbouring data, and draws against the exact law."""

from __future__ import annotations

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost.errors import ParameterError
from opboost.privacy import selection
from opboost.privacy.selection import ExponentialMechanism
from opboost.rng import seeded

FALSE_ALARM = 1e-6
N_DRAWS = 40_000


class Forced:
    """Bits that a test chose: first these words, then the same word for ever."""

    is_secure = False

    def __init__(self, first: list[int], then: int) -> None:
        self.first, self.then = list(first), then

    def words(self, count: int) -> np.ndarray:
        given, self.first = self.first[:count], self.first[count:]
        return np.array([*given, *[self.then] * (count - len(given))], dtype=np.uint64)


# Records of a node: a place among eight cuts and a gradient of -1 or 1. Some of each kind, from none to forty.
CUTS = 8
KINDS = [(x, g) for x in (1, 3, 6) for g in (1, -1)]
DATA_SETS = np.array(list(itertools.product([0, 1, 5, 40], repeat=len(KINDS))))
REG_LAMBDA = 0.1


def gains(counts: np.ndarray, is_left: np.ndarray | None = None) -> np.ndarray:
    """``G_L^2 / (n_L + lambda) + G_R^2 / (n_R + lambda)`` at every cut, for many data sets at once."""
    if is_left is None:
        is_left = np.array([[x <= cut for cut in range(CUTS)] for x, _ in KINDS])[None]
    grads = counts * np.array([g for _, g in KINDS])
    n_left, left = (counts[:, :, None] * is_left).sum(1), (grads[:, :, None] * is_left).sum(1)
    n_right, right = counts.sum(1)[:, None] - n_left, grads.sum(1)[:, None] - left
    return left**2 / (n_left + REG_LAMBDA) + right**2 / (n_right + REG_LAMBDA)


def gains_of_the_bucket_before(counts: np.ndarray) -> np.ndarray:
    """A published rule: the cut above a value is scored as if that value went right."""
    places = np.array([x for x, _ in KINDS])
    is_left = places[:, None] <= np.arange(CUTS)
    last = np.where(is_left[None] & (counts > 0)[:, :, None], places[None, :, None], -1).max(axis=1)
    return gains(counts, places[None, :, None] < last[:, None, :])


def worst_ratio(mechanism: ExponentialMechanism, utility) -> float:
    """The largest log-ratio of a cut's probability between data sets that differ by one record."""
    before = mechanism.log_probabilities(utility(DATA_SETS))
    worst = 0.0
    for kind in range(len(KINDS)):
        after = DATA_SETS.copy()
        after[:, kind] += 1
        worst = max(worst, float(np.abs(mechanism.log_probabilities(utility(after)) - before).max()))
    return worst


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
@pytest.mark.parametrize("utility_range", [4.0, 6.0])
def test_the_split_gain_loses_at_most_epsilon_with_a_range_of_four_or_twice_the_sensitivity_of_three(
    epsilon, utility_range
):
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    ratio = worst_ratio(mechanism, gains)
    assert epsilon * 0.4 < ratio <= epsilon


@pytest.mark.parametrize(
    ("utility_range", "utility"),
    [(2 * 0.996, gains), (3.0, gains), (4.0, gains_of_the_bucket_before), (6.0, gains_of_the_bucket_before)],
    ids=["printed sensitivity", "sensitivity for the range", "wrong side", "wrong side, sensitivity of three"],
)
def test_a_sensitivity_too_small_or_a_value_on_the_wrong_side_is_caught_by_the_same_enumeration(utility_range, utility):
    assert worst_ratio(ExponentialMechanism(epsilon=1.0, utility_range=utility_range), utility) > 1.2


@given(st.integers(0, 2**32), st.floats(0.01, 20), st.floats(0.01, 100), st.integers(1, 12))
@settings(max_examples=200, deadline=None)
def test_any_change_within_the_range_loses_at_most_epsilon_rounding_and_the_callers_error_included(
    seed, epsilon, utility_range, n
):
    generator = np.random.default_rng(seed)
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    before = generator.normal(size=n) * 100 * utility_range
    change = generator.choice([0.0, 1.0, generator.random()], size=n) * utility_range + generator.normal()
    error = generator.choice([-0.49, 0.49], size=(2, n)) * utility_range / 2**20
    ratio = mechanism.log_probabilities(before + change + error[0]) - mechanism.log_probabilities(before + error[1])
    # Logarithms of tables are off by an ulp of the largest, some 1e4.
    assert np.abs(ratio).max() <= epsilon * (1 + 1e-9) + 1e-10


def exact(mechanism: ExponentialMechanism, utilities, measure) -> list[Decimal]:
    """The law, from its definition in decimals."""
    with localcontext(prec=60):
        steps = [int(step) for step in mechanism.rounded(np.array(utilities))]
        weights = [
            Decimal(float(m)) * (Decimal(mechanism.rate) * (step - max(steps))).exp()
            for step, m in zip(steps, measure, strict=True)
        ]
        return [weight / sum(weights) for weight in weights]


CASES = [
    (1.0, 1.0, [0.0, 1.0, 2.0, -1.0, 0.5], [1.0, 1.0, 1.0, 1.0, 1.0]),
    (0.5, 3.0, [5.0, 0.0, 40.0, 41.0], [1.0, 0.0, 1e-3, 2.5]),
    (3.0, 1.0, [0.0, 0.0, -200.0, 0.1], [1e-300, 1e-290, 1e300, 0.0]),
    (2.0, 1.0, [7.0], [0.1]),
    (0.1, 1.0, list(np.linspace(0, 20, 60)), list(np.linspace(1, 2, 60))),
]


@pytest.mark.parametrize(("epsilon", "utility_range", "utilities", "measure"), CASES)
def test_the_table_is_the_law_of_the_definition(epsilon, utility_range, utilities, measure):
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    table = np.exp(mechanism.log_probabilities(np.array(utilities), np.array(measure)))
    assert table == pytest.approx([float(p) for p in exact(mechanism, utilities, measure)], rel=1e-9, abs=1e-300)


def p_value(mechanism: ExponentialMechanism, drawn_by: ExponentialMechanism, utilities, measure) -> float:
    draws = drawn_by.choose(np.tile(utilities, (N_DRAWS, 1)), np.array(measure), rng=seeded(3))
    expected = np.array([float(p) for p in exact(mechanism, utilities, measure)]) * N_DRAWS
    counts = np.bincount(draws, minlength=len(expected))
    assert counts[np.array(measure) == 0].sum() == 0
    is_rare = expected < 20
    observed, wanted = [np.append(each[~is_rare], each[is_rare].sum()) for each in (counts, expected)]
    keep = wanted > 1e-6
    assert observed[~keep].sum() == 0
    if keep.sum() == 1:
        return 1.0
    return float(chisquare(observed[keep], wanted[keep] * observed[keep].sum() / wanted[keep].sum()).pvalue)


@pytest.mark.parametrize(("epsilon", "utility_range", "utilities", "measure"), CASES)
def test_choices_follow_the_law(epsilon, utility_range, utilities, measure):
    """Chi-square of 40,000 choices; see `FALSE_ALARM`."""
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    assert p_value(mechanism, mechanism, utilities, measure) > FALSE_ALARM


@pytest.mark.parametrize("case", [0, 1, 4])
def test_choices_of_a_mechanism_with_half_as_much_epsilon_again_are_caught_by_the_same_chi_square(case):
    """40,000 choices, where the twin is expected to be more than seven standard deviations off."""
    epsilon, utility_range, utilities, measure = CASES[case]
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    sharper = ExponentialMechanism(epsilon=epsilon * 1.5, utility_range=utility_range)
    assert p_value(mechanism, sharper, utilities, measure) < FALSE_ALARM


@pytest.mark.parametrize(("epsilon", "utility_range", "utilities", "measure"), CASES)
def test_at_the_word_of_a_boundary_further_bits_decide_and_beside_it_they_do_not(
    epsilon, utility_range, utilities, measure
):
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    shares = np.cumsum([Decimal(0), *exact(mechanism, utilities, measure)])
    real = [i for i, (low, high) in enumerate(itertools.pairwise(shares)) if high - low > Decimal("1e-9")]
    for before, after in itertools.pairwise(real[:8]):
        word = int(shares[after] * 2**64)
        for near, expected in ((0, [before, after]), (-(2**26), [before] * 2), (2**26, [after] * 2)):
            chosen = [
                int(mechanism.choose(np.array([utilities]), np.array(measure), rng=Forced([word + near], further))[0])
                for further in (0, 2**64 - 2)
            ]
            assert chosen == expected


def test_hardly_any_choice_needs_decimals(monkeypatch):
    """Of 40,000 choices among 60 fewer than .001 are expected to be ambiguous."""
    settled = []
    monkeypatch.setattr(selection.ExponentialMechanism, "_settle", lambda *args: settled.append(args) or 0)
    epsilon, utility_range, utilities, measure = CASES[4]
    mechanism = ExponentialMechanism(epsilon=epsilon, utility_range=utility_range)
    mechanism.choose(np.tile(utilities, (N_DRAWS, 1)), np.array(measure), rng=seeded(3))
    assert settled == []


def test_without_noise_the_best_candidate_of_positive_measure_is_chosen():
    mechanism = ExponentialMechanism(epsilon=math.inf, utility_range=1.0)
    utilities = np.array([[1.0, 5.0, 3.0], [9.0, 2.0, -1.0]])
    assert mechanism.choose(utilities, rng=seeded(1)).tolist() == [1, 0]
    assert mechanism.choose(utilities, np.array([1.0, 0.0, 1.0]), rng=seeded(1)).tolist() == [2, 0]
    assert np.exp(mechanism.log_probabilities(utilities)).tolist() == [[0, 1, 0], [1, 0, 0]]


def test_every_row_is_a_choice_of_its_own():
    mechanism = ExponentialMechanism(epsilon=50.0, utility_range=1.0)
    utilities = np.eye(5) * 10
    assert mechanism.choose(utilities, rng=seeded(1)).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("epsilon", [0, -1.0, math.nan, "1"])
def test_a_budget_that_is_not_positive_is_refused(epsilon):
    with pytest.raises(ParameterError):
        ExponentialMechanism(epsilon=epsilon, utility_range=1.0)


@pytest.mark.parametrize("utility_range", [0.0, -1.0, math.inf, math.nan])
def test_a_range_that_is_not_positive_and_finite_is_refused(utility_range):
    with pytest.raises(ParameterError, match="range"):
        ExponentialMechanism(epsilon=1.0, utility_range=utility_range)


@pytest.mark.parametrize("utilities", [[[math.nan, 1.0]], [[math.inf, 1.0]], [[1e9, 0.0]], [[]], [1.0]])
def test_utilities_that_cannot_be_rounded_to_the_grid_are_refused(utilities):
    with pytest.raises(ParameterError):
        ExponentialMechanism(epsilon=1.0, utility_range=1.0).choose(np.array(utilities), rng=seeded(1))


@pytest.mark.parametrize("measure", [[-1.0, 1.0], [0.0, 0.0], [math.nan, 1.0], [math.inf, 1.0]])
def test_a_measure_that_is_none_is_refused(measure):
    with pytest.raises(ParameterError, match="base measure"):
        ExponentialMechanism(epsilon=1.0, utility_range=1.0).choose(np.zeros((1, 2)), np.array(measure), rng=seeded(1))
