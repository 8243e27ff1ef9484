"""The Adj-Map: its exact loss against enumeration, closed forms and published bounds."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.adj_map import MAX_UNEVEN_DOMAIN, AdjMap
from opboost.privacy.domain import IntegerDomain, Partition
from opboost.privacy.laws import Kernel, Law, kernel

# Doubles carry 16 digits; the tables' logs reach 1000.
ROUNDING = 1e-9


HUNDRED = IntegerDomain(1, 100)


@st.composite
def cells(draw: st.DrawFn) -> dict[str, object]:
    """A domain with cells of equal width, divisible or not, or of any widths, also a wide one amid narrow ones."""
    lo = draw(st.integers(-50, 50))
    if draw(st.booleans()):
        domain = IntegerDomain(lo, lo + draw(st.integers(1, 24)))
        return {"domain": domain, "theta": draw(st.integers(1, domain.size))}
    widths = draw(st.lists(st.one_of(st.integers(1, 5), st.sampled_from([1, 12])), min_size=2, max_size=6))
    starts = [lo + sum(widths[:i]) for i in range(len(widths) + 1)]
    domain = IntegerDomain(lo, starts.pop() - 1)
    return {"domain": domain, "partition": Partition(domain, tuple(starts))}


laws = st.sampled_from(list(Law))


def loss_curve(log_table: np.ndarray) -> np.ndarray:
    """The largest log-ratio of two rows at distance at most 0, 1, .. n - 1."""
    n = len(log_table)
    with np.errstate(invalid="ignore"):
        gaps = [np.abs(log_table[t:] - log_table[: n - t]) for t in range(1, n)]
    return np.maximum.accumulate([0.0, *(np.nanmax(gap) for gap in gaps)])


@given(
    st.builds(
        lambda cells, **rest: AdjMap(**cells, **rest),
        cells(),
        epsilon=st.floats(10, 3000),
        law=laws,
        alpha=st.floats(0.05, 10),
    )
)
@settings(max_examples=60, deadline=None)
def test_the_loss_of_an_adj_map_is_the_enumerated_one_where_weights_underflow(mechanism):
    curve = loss_curve(mechanism.log_probabilities())
    assert [mechanism.loss(t) for t in range(len(curve))] == pytest.approx(curve, rel=ROUNDING)


def log_weight(chosen: Kernel, x: int, y: int) -> Decimal:
    """``log P[x, y]`` of a normalised kernel by the sum of two geometric series, to as many digits as are asked for."""
    q = (-Decimal(chosen.exponent)).exp()
    total = (1 - q ** (x + 1) + q * (1 - q ** (chosen.n - 1 - x))) / (1 - q)
    return -Decimal(chosen.exponent) * abs(x - y) - total.ln()


def log_probability(mechanism: AdjMap, x: int, y: int) -> Decimal:
    """``log P[x, y]`` of an Adj-Map with even cells."""
    theta, n = mechanism.theta, mechanism.domain.size
    start = y // theta * theta
    width = min(theta, n - start)
    inner = kernel(mechanism.law, width, mechanism.epsilon_ner)
    centre = min(max(x - start, 0), width - 1)
    return log_weight(mechanism.outer, x // theta, y // theta) + log_weight(inner, centre, y - start)


@pytest.mark.parametrize(("n", "epsilon"), [(1000, 1.28), (100_000, 0.02), (100_000, 3.0)])
@pytest.mark.parametrize("law", [Law.EXPONENTIAL, Law.CALIBRATED, Law.BOUNDED_LAPLACE])
def test_the_loss_of_an_adj_map_on_many_points_is_that_of_its_closed_form(n, epsilon, law):
    """Every pair near either end of the domain, at three distances, and every output in the first one's cell."""
    mechanism = AdjMap(epsilon=epsilon, domain=IntegerDomain(0, n - 1), law=law, theta=7, alpha=2)
    with localcontext(prec=60):
        for t in (1, 5, 16):
            lows = [*range(10), *range(n - 10 - t, n - t)]
            pairs = [pair for low in lows for pair in ((low, low + t), (low + t, low))]
            ratios = [
                log_probability(mechanism, x, y) - log_probability(mechanism, other, y)
                for x, other in pairs
                for y in {x, x // 7 * 7, min(x // 7 * 7 + 6, n - 1)}
            ]
            assert mechanism.loss(t) == pytest.approx(float(max(ratios)), rel=ROUNDING)
            assert Decimal(mechanism.loss(t)) >= max(ratios)


@pytest.mark.parametrize("alpha", [1e-300, 1e308])
def test_a_share_that_leaves_a_part_of_the_budget_without_a_number_is_refused(alpha):
    with pytest.raises(ParameterError, match=r"alpha .* leaves a budget of .* cells; .*Nothing was drawn"):
        AdjMap(epsilon=0.1, domain=HUNDRED, theta=10, alpha=alpha)


@pytest.mark.parametrize(
    ("law", "printed"), [(Law.EXPONENTIAL, ["6.0", "6.6", "7.1"]), (Law.CLAMPED, ["8.0", "9.1", "9.9"])]
)
def test_neighbours_across_a_border_of_the_adj_map_lose_the_published_multiples(law, printed):
    maps = (AdjMap(epsilon=0.1, domain=HUNDRED, law=law, theta=10, alpha=alpha) for alpha in (0.4, 1, 10))
    assert [f"{mechanism.loss(1) / 0.1:.1f}" for mechanism in maps] == printed


def test_the_order_probability_of_the_adj_map_is_the_published_one():
    mechanism = AdjMap(epsilon=0.1, domain=HUNDRED, law="exponential", theta=10, alpha=1)
    table = np.exp(mechanism.log_probabilities())
    above = table @ (np.cumsum(table, axis=1) - table).T
    gamma = [np.diagonal(above, -t).min() for t in range(5, 100, 10)]
    printed = ".4945 .5881 .6810 .7596 .8223 .8704 .9062 .9320 .9497 .9602"
    assert " ".join(f"{g:.4f}"[1:] for g in gamma) == printed


@pytest.mark.parametrize("alpha", [0, -1, math.nan, math.inf, True])
def test_a_share_for_the_cells_that_is_not_positive_and_finite_is_refused_by_name(alpha):
    with pytest.raises(ParameterError, match="alpha must be positive and finite"):
        AdjMap(epsilon=1, domain=HUNDRED, theta=10, alpha=alpha)


def test_an_uneven_adj_map_too_large_for_its_exact_curve_points_to_the_bound():
    domain = IntegerDomain(0, MAX_UNEVEN_DOMAIN)
    large = AdjMap(epsilon=0.1, domain=domain, partition=Partition(domain, (0, 64, 65)))
    with pytest.raises(ParameterError, match="partition_bound"):
        large.loss(1)
    assert 0 < large.partition_bound(1) < math.inf


def test_without_noise_an_adj_map_loses_everything_and_its_bound_says_so():
    free = AdjMap(epsilon=math.inf, domain=HUNDRED, theta=1)
    assert free.loss(1) == free.partition_bound(1) == math.inf
