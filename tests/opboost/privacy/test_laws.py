"""The laws' exact tables and losses, against the formulas written out and against enumeration of the tables."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.errors import ParameterError
from opboost.privacy.laws import Kernel, Law, calibrated_exponent, check_epsilon, kernel

# Doubles carry 16 digits; the tables' logs reach 500, the sums have at most 30 terms.
ROUNDING = 1e-9

laws = st.sampled_from(list(Law))
sizes = st.integers(1, 30)
epsilons = st.floats(0.001, 20)


def normalised_one_by_one(n: int, exponent: float) -> np.ndarray:
    """Weights ``exp(-exponent |x - y|)``, every row divided by its sum."""
    table = np.empty((n, n))
    for x in range(n):
        weights = [math.exp(-exponent * abs(x - y)) for y in range(n)]
        table[x] = [weight / math.fsum(weights) for weight in weights]
    return table


def clamped_one_by_one(n: int, exponent: float) -> np.ndarray:
    """``clamp(x + Z)`` for ``Pr[Z = z] = (1 - q) / (1 + q) q^|z|``, over so many steps that none is left."""
    table = np.zeros((n, n))
    q = math.exp(-exponent)
    steps = n + math.ceil(60 / exponent)
    for x in range(n):
        for z in range(-steps, steps + 1):
            table[x, min(max(x + z, 0), n - 1)] += (1 - q) / (1 + q) * q ** abs(z)
    return table


def enumerated_loss(log_table: np.ndarray, t: int) -> float:
    """The largest log-ratio of two rows at distance at most t, over all outputs."""
    n = len(log_table)
    pairs = ((x, other) for x in range(n) for other in range(n) if abs(x - other) <= t)
    return max(float((log_table[x] - log_table[other]).max()) for x, other in pairs)


def expected_kendall(table: np.ndarray) -> float:
    """Expected weighted Kendall tau of one record per point (ties of the outputs count 0)."""
    above = table @ (np.cumsum(table, axis=1) - table).T  # above[i, j] = Pr[output of i > output of j]
    distance = np.subtract.outer(np.arange(len(table)), np.arange(len(table)))
    pairs = distance > 0
    return float(((above - above.T) * distance)[pairs].sum() / distance[pairs].sum())


@given(laws, sizes, epsilons)
@settings(max_examples=200, deadline=None)
def test_every_row_of_every_law_sums_to_one(law, n, epsilon):
    sums = np.exp(kernel(law, n, epsilon).log_probabilities()).sum(axis=1)
    assert sums == pytest.approx(np.ones(n), rel=ROUNDING)


@given(st.sampled_from([Law.EXPONENTIAL, Law.BOUNDED_LAPLACE]), sizes, epsilons)
@settings(max_examples=100, deadline=None)
def test_normalised_tables_are_the_weights_divided_by_their_sum(law, n, epsilon):
    exponent = epsilon / 2 if law is Law.EXPONENTIAL else epsilon
    expected = normalised_one_by_one(n, exponent)
    assert np.exp(kernel(law, n, epsilon).log_probabilities()) == pytest.approx(expected, rel=ROUNDING)


@given(st.integers(1, 12), st.floats(0.05, 20))
@settings(max_examples=50, deadline=None)
def test_the_clamped_table_is_that_of_a_clamped_two_sided_geometric_step(n, epsilon):
    expected = clamped_one_by_one(n, epsilon)
    table = np.exp(kernel(Law.CLAMPED, n, epsilon).log_probabilities())
    assert table == pytest.approx(expected, rel=ROUNDING, abs=1e-25)


@pytest.mark.parametrize(("lowest", "highest"), [(0, 9), (-4, 5), (-9, 0), (-1, 0)])
def test_bounded_laplace_is_the_papers_formula_with_the_constant_that_sums_to_one(lowest, highest):
    n, x, q = highest - lowest + 1, -lowest, math.exp(-0.3)
    norm = 1 + q - q ** (1 - lowest) - q ** (highest + 1)
    expected = [(1 - q) * q ** abs(z) / norm for z in range(lowest, highest + 1)]
    assert np.exp(kernel(Law.BOUNDED_LAPLACE, n, 0.3).log_probabilities()[x]) == pytest.approx(expected, rel=ROUNDING)


@given(laws, sizes, epsilons, st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_the_reported_loss_is_the_enumerated_one_neither_exceeded_nor_loose(law, n, epsilon, t):
    chosen = kernel(law, n, epsilon)
    assert chosen.loss(t) == pytest.approx(enumerated_loss(chosen.log_probabilities(), t), rel=ROUNDING, abs=1e-12)


@given(laws, sizes, epsilons, st.integers(0, 40))
@settings(max_examples=200, deadline=None)
def test_no_law_loses_more_than_it_promises_at_any_distance(law, n, epsilon, t):
    assert kernel(law, n, epsilon).loss(t) <= law.promise * epsilon * t * (1 + 1e-10)


@pytest.mark.parametrize("law", list(Law))
@pytest.mark.parametrize("n", [2, 11, 100])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 5.0])
def test_a_kernel_with_ten_percent_more_loss_is_caught_by_the_same_enumeration(law, n, epsilon):
    reported = kernel(law, n, epsilon)
    broken = Kernel(n, reported.exponent * 1.1, is_clamped=reported.is_clamped)
    assert enumerated_loss(broken.log_probabilities(), 1) > reported.loss(1) * 1.05


@given(laws, sizes, epsilons)
@settings(max_examples=100, deadline=None)
def test_divergence_is_the_largest_log_ratio_of_every_pair_of_rows(law, n, epsilon):
    chosen = kernel(law, n, epsilon)
    x, other = (axis.ravel() for axis in np.indices((n, n)))
    table = chosen.log_probabilities()
    expected = (table[x] - table[other]).max(axis=1)
    assert chosen.divergence(x, other) == pytest.approx(expected, rel=ROUNDING, abs=1e-12)


@pytest.mark.parametrize(
    ("law", "epsilon", "printed"),
    [
        (Law.EXPONENTIAL, 0.1, "0.953"),
        (Law.EXPONENTIAL, 1.0, "0.714"),
        (Law.BOUNDED_LAPLACE, 0.1, "1.826"),
        (Law.CALIBRATED, 0.1, "1.000"),
        (Law.CLAMPED, 0.1, "1.000"),
    ],
)
def test_tight_losses_at_100_points_are_the_published_ones(law, epsilon, printed):
    assert f"{kernel(law, 100, epsilon).loss(1) / epsilon:.3f}" == printed


@given(st.integers(2, 10**6), st.floats(0.001, 5))
@settings(max_examples=100, deadline=None)
def test_the_loss_between_neighbours_of_a_normalised_kernel_has_its_closed_form(n, exponent):
    q = math.exp(-exponent)
    tight = exponent + math.log((1 + q - q**2 - q ** (n - 1)) / (1 - q**n))
    assert Kernel(n, exponent, is_clamped=False).loss(1) == pytest.approx(tight, rel=ROUNDING)


@given(st.integers(2, 10**6), epsilons)
@settings(max_examples=200, deadline=None)
def test_calibration_spends_the_whole_budget_and_not_more(n, epsilon):
    loss = Kernel(n, calibrated_exponent(n, epsilon), is_clamped=False).loss(1)
    assert epsilon * (1 - 1e-9) <= loss <= epsilon


@pytest.mark.parametrize(
    ("law", "printed"),
    [
        ("exponential", ".0111 .0222 .0444 .0889 .1766 .3409 .5955 .8386 .9560 .9919"),
        ("calibrated", ".0122 .0245 .0494 .0996 .2017 .4022 .7162 .9374 .9912 .9994"),
        ("clamped", ".0275 .0548 .1088 .2118 .3899 .6334 .8483 .9567 .9919 .9995"),
    ],
)
def test_expected_weighted_kendall_on_11_points_is_the_published_one(law, printed):
    tables = (np.exp(kernel(Law(law), 11, 0.01 * 2**i).log_probabilities()) for i in range(10))
    assert " ".join(f"{expected_kendall(table):.4f}"[1:] for table in tables) == printed


@pytest.mark.parametrize(
    ("law", "printed"),
    [("exponential", ".100 .640 .959"), ("calibrated", ".101 .656 .970"), ("clamped", ".238 .871 .989")],
)
def test_expected_weighted_kendall_on_100_points_is_the_published_one(law, printed):
    tables = (np.exp(kernel(Law(law), 100, epsilon).log_probabilities()) for epsilon in (0.01, 0.08, 0.32))
    assert " ".join(f"{expected_kendall(table):.3f}"[1:] for table in tables) == printed


@pytest.mark.parametrize("law", list(Law))
def test_an_infinite_budget_is_the_identity_and_promises_nothing(law):
    chosen = kernel(law, 5, math.inf)
    assert np.exp(chosen.log_probabilities()).tolist() == np.eye(5).tolist()
    assert chosen.loss(1) == math.inf
    assert chosen.loss(0) == 0


@pytest.mark.parametrize("law", list(Law))
def test_one_point_alone_comes_out_for_certain_and_loses_nothing(law):
    chosen = kernel(law, 1, 0.7)
    assert np.exp(chosen.log_probabilities()) == pytest.approx(np.ones((1, 1)))
    assert chosen.loss(5) == 0


@pytest.mark.parametrize("epsilon", [0, -1, -0.0, math.nan, -math.inf, True, "1", None, [1.0]])
def test_a_budget_that_is_not_a_positive_number_is_refused_by_name(epsilon):
    with pytest.raises(ParameterError, match=r"cost must be .*positive.*Nothing was drawn"):
        check_epsilon(epsilon, "cost")


@pytest.mark.parametrize("epsilon", [1, 0.5, math.inf, np.float32(2), np.int16(3)])
def test_a_positive_budget_comes_back_as_a_float(epsilon):
    assert check_epsilon(epsilon) == epsilon
    assert type(check_epsilon(epsilon)) is float


@pytest.mark.parametrize("law", [Law.EXPONENTIAL, Law.CALIBRATED])
@pytest.mark.parametrize("n", [3, 10, 100, 1000])
@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-4, 1.0])
def test_the_reported_loss_covers_the_exact_one_however_small_the_budget(law, n, epsilon):
    chosen = kernel(law, n, epsilon)
    with localcontext(prec=60):
        q = (-Decimal(chosen.exponent)).exp()
        exact = Decimal(chosen.exponent) + ((1 + q - q**2 - q ** (n - 1)) / (1 - q**n)).ln()
        assert exact <= Decimal(chosen.loss(1)) <= exact * (1 + Decimal("1e-10"))


def test_a_budget_too_small_to_draw_with_is_refused():
    with pytest.raises(ParameterError, match="epsilon must be at least 1e-09"):
        check_epsilon(5e-324)
