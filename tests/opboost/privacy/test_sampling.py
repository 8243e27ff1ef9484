"""The compiled sampler against the settler, its rare ambiguous draws, and its outputs against the exact tables."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal, localcontext

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost.privacy import sampling
from opboost.privacy.laws import Kernel, Law, kernel
from opboost.privacy.sampling import draw
from opboost.privacy.settling import settle
from opboost.rng import BitSource, seeded

# A correct sampler fails a chi-square test below this p-value once in a million runs; the seeds are fixed besides.
FALSE_ALARM = 1e-6

N_DRAWS = 200_000


class Forced:
    """Bits that a test chose: first these words, then the same word for ever."""

    is_secure = False

    def __init__(self, first: list[int], then: int) -> None:
        self.first, self.then = list(first), then

    def words(self, count: int) -> np.ndarray:
        given, self.first = self.first[:count], self.first[count:]
        return np.array([*given, *[self.then] * (count - len(given))], dtype=np.uint64)


class Biased:
    """A seeded source whose top bit is set in 51 of 100 words."""

    is_secure = False

    def __init__(self, seed: int) -> None:
        self.rng = seeded(seed)

    def words(self, count: int) -> np.ndarray:
        words = self.rng.words(count)
        words[::50] |= np.uint64(2**63)
        return words


@pytest.fixture
def restored_threads() -> Iterator[None]:
    before = numba.get_num_threads()
    yield
    numba.set_num_threads(before)


def draw_one_kernel(chosen: Kernel, centres: list[int] | np.ndarray, *, rng: BitSource | Forced | Biased) -> np.ndarray:
    centres = np.asarray(centres, dtype=np.int64)
    return draw(centres, np.zeros_like(centres), [chosen], rng=rng)


def p_value(outputs: np.ndarray, row: np.ndarray) -> float:
    """Chi-square p-value of outputs against a row of probabilities; the rare outputs share a bin of 20 or more."""
    counts, expected = np.bincount(outputs, minlength=len(row)), row * len(outputs)
    is_rare = expected < 20
    if expected[is_rare].sum() < 20:
        is_rare |= expected == expected[~is_rare].min()
    merged = [np.append(each[~is_rare], each[is_rare].sum()) for each in (counts, expected)]
    return float(chisquare(*merged).pvalue)


@st.composite
def kernels(draw: st.DrawFn) -> Kernel:
    """Every law, budgets from .001 to 20, one point to a million."""
    n = draw(st.one_of(st.integers(1, 20), st.sampled_from([100, 1000, 4097, 10**5, 10**6])))
    return kernel(draw(st.sampled_from(list(Law))), n, draw(st.floats(0.001, 20)))


# Words of every magnitude from either end, so that far tails come up as often as near ones.
magnitudes = st.integers(1, 62).flatmap(lambda n_bits: st.integers(2 ** (n_bits - 1), 2**n_bits - 1))
words_of_all_sizes = st.builds(
    lambda magnitude, top, flip: (magnitude | top) ^ flip,
    magnitudes,
    st.sampled_from([0, 2**63]),
    st.sampled_from([0, 2**64 - 1]),
)
anywhere = st.integers(1, 2**64 - 2).filter(lambda word: word % 2**63 != 0)


@given(kernels(), st.lists(st.one_of(words_of_all_sizes, anywhere), min_size=1, max_size=10), st.data())
@settings(max_examples=150, deadline=None)
def test_the_compiled_path_is_the_settler_whatever_bits_follow(chosen, words, data):
    x = data.draw(st.sampled_from([0, chosen.n // 3, chosen.n // 2, chosen.n - 1]))
    for further in (0, 2**64 - 2):
        drawn = draw_one_kernel(chosen, [x] * len(words), rng=Forced(words, further))
        assert drawn.tolist() == [settle(chosen, x, word, rng=Forced([], further)) for word in words]


@pytest.mark.parametrize("exponent", [0.01, 0.3, 2.0, 4.0, 20.0])
@pytest.mark.parametrize(
    ("is_clamped", "word", "output"), [(True, 0, 99), (True, 2**63, 0), (False, 0, 0), (False, 2**64 - 1, 99)]
)
def test_the_extreme_words_reach_the_ends_of_the_domain_however_unlikely(is_clamped, exponent, word, output):
    chosen = Kernel(100, exponent, is_clamped=is_clamped)
    assert draw_one_kernel(chosen, [50], rng=Forced([word], 0)).tolist() == [output]


def words_of_boundaries(chosen: Kernel, x: int) -> list[tuple[int, int]]:
    """Per boundary between outputs m and m + 1: the word whose interval contains it, and m."""
    with localcontext(prec=60):
        if chosen.is_clamped:
            q = (-Decimal(chosen.exponent)).exp()
            above = [(int(2 * q**m / (1 + q) * 2**63), x + m - 1) for m in range(1, chosen.n - x)]
            below = [(int(2 * q**m / (1 + q) * 2**63) + 2**63, x - m) for m in range(1, x + 1)]
            return above + below
        weights = [(-Decimal(chosen.exponent) * abs(x - y)).exp() for y in range(chosen.n)]
        return [(int(sum(weights[: y + 1]) / sum(weights) * 2**64), y) for y in range(chosen.n - 1)]


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize(("n", "epsilon"), [(2, 20.0), (5, 2.0), (20, 0.3), (40, 0.001)])
def test_at_the_word_of_a_boundary_further_bits_decide_and_beside_it_they_do_not(law, n, epsilon):
    chosen, x = kernel(law, n, epsilon), n // 3
    edges, lower = np.array(words_of_boundaries(chosen, x), dtype=object).T
    words = [*(edges - 2**15), *edges, *(edges + 2**15)]
    low, high = (
        draw_one_kernel(chosen, [x] * len(words), rng=Forced(words, further)).reshape(3, -1)
        for further in (0, 2**64 - 2)
    )
    assert (np.sort([low[1], high[1]], axis=0) == [lower, lower + 1]).all()
    assert (low[[0, 2]] == high[[0, 2]]).all()
    assert (np.sort(low[[0, 2]], axis=0) == [lower, lower + 1]).all()


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The words that were settled, filled as draws are made."""
    words: list[int] = []

    def settle_and_note(chosen: Kernel, x: int, word: int, *, rng: BitSource) -> int:
        words.append(word)
        return settle(chosen, x, word, rng=rng)

    monkeypatch.setattr(sampling, "settle", settle_and_note)
    return words


def test_the_short_logarithm_is_within_its_bound() -> None:
    """At both ends of every 256th, close to powers of two, and in between; against 40 digits."""
    edges = 1 + np.arange(257) / 256
    points = np.concatenate(
        [edges, np.nextafter(edges, 0), np.nextafter(edges, 9), np.random.default_rng(1).random(50)]
    )
    numbers = np.concatenate([np.ldexp(points, e) for e in (-30, -29, -7, -1, 0)])
    found = logs_of(numbers)
    with localcontext(prec=40):
        exact = [Decimal(x).ln() for x in numbers.tolist()]
        errors = [abs(Decimal(y) - z) / (1 + abs(z)) for y, z in zip(found.tolist(), exact, strict=True)]
    assert max(errors) < Decimal("4e-16")


@numba.njit
def logs_of(numbers):
    return np.array([sampling._log(x) for x in numbers])


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize(("n", "epsilon"), [(10, 5.12), (1000, 0.1), (10**6, 0.01), (10**6, 0.001)])
def test_hardly_any_draw_needs_settling(law, n, epsilon, settled):
    """Of a million draws at most .01 are expected; the limit is passed once in 10^7 runs."""
    draw_one_kernel(kernel(law, n, epsilon), np.arange(10**6) % n, rng=seeded(5))
    assert len(settled) < 4


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize(("n", "epsilon"), [(7, 4.5), (30, 0.5), (50, 0.001)])
@pytest.mark.parametrize("beside", [-(2**11), -1, 3])
def test_words_close_to_a_boundary_are_drawn_as_they_are_settled(law, n, epsilon, beside):
    chosen, x = kernel(law, n, epsilon), n // 3
    words = [word + beside for word, _ in words_of_boundaries(chosen, x)]
    drawn = draw_one_kernel(chosen, [x] * len(words), rng=Forced(words, 1))
    assert drawn.tolist() == [settle(chosen, x, word, rng=Forced([], 1)) for word in words]


@pytest.mark.parametrize("law", list(Law))
def test_a_draw_at_a_boundary_is_settled(law, settled):
    words = [word for word, _ in words_of_boundaries(kernel(law, 9, 0.5), 3)]
    draw_one_kernel(kernel(law, 9, 0.5), [3] * len(words), rng=Forced(words, 1))
    assert settled == words


DRAWN = [(Law.CLAMPED, 11, 0.4), (Law.EXPONENTIAL, 11, 0.4), (Law.CALIBRATED, 30, 0.15), (Law.BOUNDED_LAPLACE, 5, 1.0)]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize(("law", "n", "epsilon"), DRAWN)
def test_draws_follow_the_exact_table(law, n, epsilon, seed):
    """Chi-square of 200,000 draws at both ends, beside one and in the middle; see `FALSE_ALARM`."""
    chosen = kernel(law, n, epsilon)
    table = np.exp(chosen.log_probabilities())
    for x in (0, 1, n // 2, n - 1):
        assert p_value(draw_one_kernel(chosen, np.full(N_DRAWS, x), rng=seeded(seed)), table[x]) > FALSE_ALARM


def with_more_loss(chosen: Kernel, centres: np.ndarray) -> np.ndarray:
    return draw_one_kernel(
        Kernel(chosen.n, 1.1 * chosen.exponent, is_clamped=chosen.is_clamped), centres, rng=seeded(1)
    )


def with_an_empty_upper_tail(chosen: Kernel, centres: np.ndarray) -> np.ndarray:
    outputs = draw_one_kernel(chosen, centres, rng=seeded(1))
    return np.where(outputs == chosen.n - 1, chosen.n - 2, outputs)


def with_a_biased_sign(chosen: Kernel, centres: np.ndarray) -> np.ndarray:
    return draw_one_kernel(chosen, centres, rng=Biased(1))


@pytest.mark.parametrize("broken", [with_more_loss, with_an_empty_upper_tail, with_a_biased_sign])
@pytest.mark.parametrize(("law", "n", "epsilon"), DRAWN)
def test_a_broken_sampler_is_caught_by_the_same_chi_square(law, n, epsilon, broken):
    """200,000 draws in the middle of the domain, where each twin is at least seven standard deviations off."""
    chosen, x = kernel(law, n, epsilon), n // 2
    assert p_value(broken(chosen, np.full(N_DRAWS, x)), np.exp(chosen.log_probabilities()[x])) < FALSE_ALARM


@given(kernels(), st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_outputs_never_leave_the_domain(chosen, seed):
    outputs = draw_one_kernel(chosen, np.arange(500) * 7919 % chosen.n, rng=seeded(seed))
    assert outputs.min() >= 0
    assert outputs.max() < chosen.n


@given(st.booleans(), st.lists(st.sampled_from([1, 7, 50, 300, 1100]), min_size=2, max_size=6), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_every_value_is_drawn_by_the_kernel_of_its_own_cell(is_clamped, widths, seed):
    several = [Kernel(width, 0.003 * (i + 1), is_clamped=is_clamped) for i, width in enumerate(widths)]
    cells = np.arange(60) % len(several)
    centres = np.array([i * 7919 % several[cell].n for i, cell in enumerate(cells)])
    words = seeded(seed).words(60).tolist()
    together = draw(centres, cells, several, rng=Forced(words, 1))
    values = zip(cells, centres, words, strict=True)
    assert together.tolist() == [settle(several[c], int(x), w, rng=Forced([], 1)) for c, x, w in values]


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.usefixtures("restored_threads")
def test_draws_do_not_depend_on_the_number_of_threads(law):
    outputs = []
    for n_threads in (1, numba.config.NUMBA_NUM_THREADS):
        numba.set_num_threads(n_threads)
        outputs.append(draw_one_kernel(kernel(law, 1000, 0.1), np.arange(300_000) % 1000, rng=seeded(9)))
    assert (outputs[0] == outputs[1]).all()


def test_drawing_takes_one_word_per_value_and_leaves_the_inputs_alone():
    rng, centres = seeded(4), np.arange(100)
    draw_one_kernel(Kernel(100, 0.5, is_clamped=True), centres, rng=rng)
    assert (rng.words(5) == seeded(4).words(105)[100:]).all()
    assert (centres == np.arange(100)).all()
