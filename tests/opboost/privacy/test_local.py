"""Randomised response: the exact table, the exact loss, the draws, and the draws that need further bits."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost.errors import ParameterError
from opboost.privacy.local import RandomisedResponse
from opboost.rng import seeded

# A correct sampler fails a chi-square test below this p-value once in a million runs; the seeds are fixed besides.
FALSE_ALARM = 1e-6

N_DRAWS = 200_000

mechanisms = st.builds(
    lambda epsilon, n_categories: RandomisedResponse(epsilon=epsilon, n_categories=n_categories),
    st.floats(0.001, 30),
    st.integers(2, 20),
)


class Forced:
    """Bits that a test chose: these words, then the same word for ever."""

    is_secure = False

    def __init__(self, first: list[int], then: int) -> None:
        self.first, self.then = list(first), then

    def words(self, count: int) -> np.ndarray:
        given, self.first = self.first[:count], self.first[count:]
        return np.array([*given, *[self.then] * (count - len(given))], dtype=np.uint64)


def enumerated_loss(log_table: np.ndarray) -> float:
    """The largest log-ratio of two rows, whichever they are."""
    return float((log_table.max(axis=0) - log_table.min(axis=0)).max())


def p_value(outputs: np.ndarray, row: np.ndarray) -> float:
    return float(chisquare(np.bincount(outputs, minlength=len(row)), row * len(outputs)).pvalue)


@given(mechanisms)
@settings(max_examples=100, deadline=None)
def test_the_table_is_the_textbook_formula_and_sums_to_one(mechanism):
    k, keep = mechanism.n_categories, math.exp(mechanism.epsilon)
    expected = np.full((k, k), 1 / (keep + k - 1))
    np.fill_diagonal(expected, keep / (keep + k - 1))
    table = np.exp(mechanism.log_probabilities())
    assert table == pytest.approx(expected, rel=1e-9)
    assert table.sum(axis=1) == pytest.approx(np.ones(k))
    assert table[0, 0] == pytest.approx(mechanism.keep)


@given(mechanisms)
@settings(max_examples=100, deadline=None)
def test_the_reported_loss_is_the_enumerated_one_and_the_budget(mechanism):
    assert mechanism.loss(1) == mechanism.loss(5) == mechanism.epsilon
    assert mechanism.loss(0) == 0
    assert enumerated_loss(mechanism.log_probabilities()) == pytest.approx(mechanism.epsilon, rel=1e-9)


def test_a_table_with_ten_percent_more_loss_is_caught_by_the_same_enumeration():
    broken = RandomisedResponse(epsilon=1.1, n_categories=4)
    assert enumerated_loss(broken.log_probabilities()) > RandomisedResponse(epsilon=1.0, n_categories=4).loss(1) * 1.05


@pytest.mark.parametrize(("epsilon", "n_categories"), [(0.2, 2), (1.0, 3), (2.0, 7)])
def test_draws_follow_the_exact_table_and_those_with_ten_percent_more_loss_do_not(epsilon, n_categories):
    """Chi-square of 200,000 draws for every category; see `FALSE_ALARM`. The twin must be caught for one at least."""
    right = RandomisedResponse(epsilon=epsilon, n_categories=n_categories)
    broken = RandomisedResponse(epsilon=1.2 * epsilon, n_categories=n_categories)
    table, inputs = np.exp(right.log_probabilities()), range(n_categories)
    kept = [p_value(right.randomise(np.full(N_DRAWS, x), rng=seeded(x)), table[x]) for x in inputs]
    caught = [p_value(broken.randomise(np.full(N_DRAWS, x), rng=seeded(x)), table[x]) for x in inputs]
    assert min(kept) > FALSE_ALARM
    assert min(caught) < FALSE_ALARM


def test_a_step_that_prefers_the_next_category_is_caught():
    """The same chi-square on 200,000 draws of which one in a hundred of the last category is moved to the first."""
    mechanism = RandomisedResponse(epsilon=1.0, n_categories=4)
    outputs = mechanism.randomise(np.zeros(N_DRAWS, dtype=np.int64), rng=seeded(1))
    broken = np.where((outputs == 3) & (np.arange(N_DRAWS) % 10 == 0), 1, outputs)
    row = np.exp(mechanism.log_probabilities()[0])
    assert p_value(outputs, row) > FALSE_ALARM
    assert p_value(broken, row) < FALSE_ALARM


@given(mechanisms, st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_outputs_are_always_categories(mechanism, seed):
    codes = np.arange(300) % mechanism.n_categories
    outputs = mechanism.randomise(codes, rng=seeded(seed))
    assert outputs.dtype == np.int64
    assert outputs.min() >= 0
    assert outputs.max() < mechanism.n_categories


def is_kept(mechanism: RandomisedResponse, word: int, *, further: int) -> bool:
    rng = Forced([word], further)
    return int(mechanism.randomise(np.array([0]), rng=rng)[0]) == 0


@pytest.mark.parametrize(("epsilon", "n_categories"), [(0.5, 3), (3.0, 2), (0.001, 17)])
def test_at_the_word_of_the_keeping_probability_further_bits_decide_and_beside_it_they_do_not(epsilon, n_categories):
    mechanism = RandomisedResponse(epsilon=epsilon, n_categories=n_categories)
    with localcontext(prec=60):
        edge = int(2**64 / (1 + (n_categories - 1) * (-Decimal(epsilon)).exp()))
    for further in (1, 2**64 - 2):
        assert is_kept(mechanism, edge - 1, further=further)
        assert is_kept(mechanism, edge, further=further) == (further == 1)
        assert not is_kept(mechanism, edge + 1, further=further)


@pytest.mark.parametrize("word", [0, 2**64 - 1])
@pytest.mark.parametrize("n_categories", [2, 3, 1000])
def test_the_extreme_words_keep_the_category_or_step_to_the_farthest_other(word, n_categories):
    mechanism = RandomisedResponse(epsilon=1.0, n_categories=n_categories)
    kept = mechanism.randomise(np.array([0]), rng=Forced([0, word], 5))
    moved = mechanism.randomise(np.array([0]), rng=Forced([2**64 - 1, word], 5))
    assert kept.tolist() == [0]
    assert moved.tolist() == [1 if word == 0 else n_categories - 1]


@given(st.integers(3, 1000), st.data())
@settings(max_examples=100, deadline=None)
def test_the_steps_to_other_categories_divide_the_words_evenly(n_categories, data):
    step = data.draw(st.integers(1, n_categories - 2))
    mechanism = RandomisedResponse(epsilon=1.0, n_categories=n_categories)
    first_word_beyond = -(-step * 2**64 // (n_categories - 1))
    outputs = [
        int(mechanism.randomise(np.array([0]), rng=Forced([2**64 - 1, word], 5))[0])
        for word in (first_word_beyond - 2, first_word_beyond)
    ]
    assert outputs == [step, step + 1]


def test_a_budget_beyond_the_precision_of_doubles_still_changes_a_category_for_some_bits():
    mechanism = RandomisedResponse(epsilon=60.0, n_categories=2)
    assert mechanism.keep == 1.0
    assert is_kept(mechanism, 2**64 - 1, further=1)
    assert not is_kept(mechanism, 2**64 - 1, further=2**64 - 2)


def test_an_infinite_budget_keeps_every_category_and_draws_no_bit():
    rng, codes = seeded(1), np.array([0, 2, 1])
    mechanism = RandomisedResponse(epsilon=math.inf, n_categories=3)
    assert mechanism.randomise(codes, rng=rng).tolist() == [0, 2, 1]
    assert np.exp(mechanism.log_probabilities()).tolist() == np.eye(3).tolist()
    assert rng.words(1) == seeded(1).words(1)


@pytest.mark.parametrize("codes", [[-1], [3], [0, 1, 2, 777]])
def test_codes_that_are_not_categories_are_refused_unseen_and_before_any_bit_is_drawn(codes):
    rng = seeded(1)
    with pytest.raises(ParameterError, match=r"outside the domain \[0, 2\]\. Nothing was drawn") as caught:
        RandomisedResponse(epsilon=1.0, n_categories=3).randomise(np.array(codes), rng=rng)
    assert "777" not in str(caught.value)
    assert rng.words(1) == seeded(1).words(1)


@pytest.mark.parametrize("n_categories", [1, 0, -2, True])
def test_fewer_than_two_categories_are_refused(n_categories):
    with pytest.raises(ParameterError, match="an integer of at least 2"):
        RandomisedResponse(epsilon=1.0, n_categories=n_categories)


@pytest.mark.parametrize("epsilon", [0, -1, math.nan, "1", None])
def test_a_budget_that_is_not_a_positive_number_is_refused_by_name(epsilon):
    with pytest.raises(ParameterError, match="epsilon must be"):
        RandomisedResponse(epsilon=epsilon, n_categories=2)


@pytest.mark.parametrize("codes", [[0.5, 1.7], [np.nan], [True]])
def test_codes_that_are_no_integers_are_refused(codes):
    with pytest.raises(ParameterError, match="codes must be integers"):
        RandomisedResponse(epsilon=1.0, n_categories=3).randomise(np.array(codes), rng=seeded(1))


@pytest.mark.parametrize("n_categories", [2.5, "3", 1])
def test_a_number_of_categories_that_is_no_integer_of_two_or_more_is_refused(n_categories):
    with pytest.raises(ParameterError, match="an integer of at least 2"):
        RandomisedResponse(epsilon=1.0, n_categories=n_categories)
