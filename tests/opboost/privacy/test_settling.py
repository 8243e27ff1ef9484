"""Ambiguous draws: comparison by further bits against fractions, and settled outputs against a summed distribution."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Context, Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from opboost.privacy.laws import Kernel
from opboost.privacy.settling import LazyUniform, settle

# Further bits that push a uniform number to either end of its interval (all ones for ever would be the end itself).
LOWEST, HIGHEST = 0, 2**64 - 2


class Forced:
    """Bits that a test chose: the same word for ever."""

    is_secure = False

    def __init__(self, word: int) -> None:
        self.word = word
        self.n_drawn = 0

    def words(self, count: int) -> np.ndarray:
        self.n_drawn += count
        return np.full(count, self.word, dtype=np.uint64)


def ratio(value: Fraction) -> Callable[[Context], Decimal]:
    return lambda context: context.divide(Decimal(value.numerator), Decimal(value.denominator))


def cumulative(kernel: Kernel, x: int) -> list[Decimal]:
    """``Pr[output <= y]`` of a normalised kernel, by summing its weights."""
    weights = [(-Decimal(kernel.exponent) * abs(x - y)).exp() for y in range(kernel.n)]
    total = sum(weights)
    return [part / total for part in accumulate(weights)]


def tails(kernel: Kernel, reach: int) -> list[Decimal]:
    """``Pr[|Z| >= m]`` for m = 0 .. reach of a two-sided geometric step, by subtracting what lies below."""
    q = (-Decimal(kernel.exponent)).exp()
    at_zero = (1 - q) / (1 + q)
    probabilities = [at_zero, *(2 * at_zero * q**k for k in range(1, reach + 1))]
    return [1 - below for below in accumulate([Decimal(0), *probabilities[:-1]])]


def outputs_of_word(kernel: Kernel, x: int, word: int) -> set[int]:
    """The first and the last output that some uniform number with these first 64 bits leads to."""
    with localcontext(prec=400):
        if kernel.is_clamped:
            low, scale = Decimal(word & (2**63 - 1)), Decimal(2**63)
            side = -1 if word >> 63 else 1
            reach = x if side < 0 else kernel.n - 1 - x
            tail = tails(kernel, reach)
            farthest = sum(t > low / scale for t in tail[1:])
            nearest = sum(t >= (low + 1) / scale for t in tail[1:])
            return {x + side * farthest, x + side * nearest}
        low, scale = Decimal(word), Decimal(2**64)
        below = cumulative(kernel, x)[:-1]
        return {sum(c <= low / scale for c in below), sum(c < (low + 1) / scale for c in below)}


@st.composite
def words_near_boundaries(draw: st.DrawFn, kernel: Kernel, x: int) -> int:
    """A word within one of a boundary between two outputs, or at an end, or anywhere."""
    with localcontext(prec=60):
        if kernel.is_clamped:
            edges = [int(t * 2**63) + s for t in tails(kernel, kernel.n)[1:] for s in (0, 2**63)]
        else:
            edges = [int(c * 2**64) for c in cumulative(kernel, x)[:-1]]
    near = st.builds(int.__add__, st.sampled_from([0, 2**63, 2**64 - 1, *edges]), st.sampled_from([-1, 0, 1]))
    return draw(st.one_of(near, st.integers(0, 2**64 - 1))) % 2**64


@st.composite
def draws(draw: st.DrawFn) -> tuple[Kernel, int, int]:
    kernel = Kernel(draw(st.integers(1, 30)), draw(st.floats(0.001, 20)), is_clamped=draw(st.booleans()))
    x = draw(st.integers(0, kernel.n - 1))
    return kernel, x, draw(words_near_boundaries(kernel, x))


@given(st.integers(0, 2**64 - 1), st.fractions(0, 1), st.integers(0, 2**64 - 2))
@example(word=2**63, boundary=Fraction(1, 2), further=1)
@settings(max_examples=300, deadline=None)
def test_a_number_is_below_a_boundary_as_its_infinite_expansion_is(word, boundary, further):
    number = (word + Fraction(further, 2**64 - 1)) / 2**64
    if number != boundary:
        assert LazyUniform(word, 64, rng=Forced(further)).is_below(ratio(boundary)) == (number < boundary)


@given(st.integers(0, 2**64 - 1), st.fractions(0, 1))
@settings(max_examples=200, deadline=None)
def test_further_bits_are_drawn_only_if_the_boundary_lies_in_the_numbers_interval(word, boundary):
    rng = Forced(2**63)
    LazyUniform(word, 64, rng=rng).is_below(ratio(boundary))
    is_inside = word <= boundary * 2**64 <= word + 1
    assert (rng.n_drawn > 0) == is_inside


def test_bits_once_drawn_serve_every_later_comparison():
    rng = Forced(2**63)
    uniform = LazyUniform(2**63, 64, rng=rng)
    answers = [uniform.is_below(ratio(Fraction(2**64 + k, 2**65))) for k in (0, 2, 0, 2)]
    assert answers == [False, True, False, True]
    assert rng.n_drawn == 1


def test_the_complement_is_one_minus_the_number_to_the_bits_known():
    quarter = LazyUniform(2**62, 64, rng=Forced(0))
    assert quarter.is_below(ratio(Fraction(3, 10)))
    assert not quarter.complement().is_below(ratio(Fraction(7, 10)))
    assert quarter.complement().is_below(ratio(Fraction(8, 10)))


@given(draws(), st.integers(0, 2**64 - 2))
@settings(max_examples=200, deadline=None)
def test_further_bits_lead_to_both_ends_of_what_the_word_leaves_open_and_not_beyond(case, further):
    kernel, x, word = case
    possible = outputs_of_word(kernel, x, word)
    assert {settle(kernel, x, word, rng=Forced(end)) for end in (LOWEST, HIGHEST)} == possible
    assert min(possible) <= settle(kernel, x, word, rng=Forced(further)) <= max(possible)


@pytest.mark.parametrize("is_clamped", [True, False])
def test_a_settler_with_ten_percent_more_loss_is_caught_by_the_same_comparison(is_clamped):
    right, broken = (Kernel(20, exponent, is_clamped=is_clamped) for exponent in (0.3, 0.33))
    words = range(2**58, 2**64, 2**59)
    wrong = [word for word in words if settle(broken, 5, word, rng=Forced(1)) not in outputs_of_word(right, 5, word)]
    assert len(wrong) > 1


@pytest.mark.parametrize("exponent", [0.001, 0.5, 20.0])
@pytest.mark.parametrize(
    ("is_clamped", "word", "output"), [(True, 0, 99), (True, 2**63, 0), (False, 0, 0), (False, 2**64 - 1, 99)]
)
def test_the_extreme_words_reach_the_ends_of_the_domain_however_unlikely(is_clamped, exponent, word, output):
    assert settle(Kernel(100, exponent, is_clamped=is_clamped), 50, word, rng=Forced(0)) == output


@pytest.mark.parametrize(("is_clamped", "word"), [(True, 1), (True, 2**63 + 1), (False, 1), (False, 2**64 - 2)])
def test_a_domain_of_a_million_points_is_settled_as_one_of_a_thousand(is_clamped, word):
    steps = {
        settle(Kernel(2 * half + 1, 1.0, is_clamped=is_clamped), half, word, rng=Forced(2**63)) - half
        for half in (500, 500_000)
    }
    assert len(steps) == 1
    assert abs(steps.pop()) in (43, 44)
