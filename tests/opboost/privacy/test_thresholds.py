"""Thresholds without a grid of candidates: the law on every point, its ratio by brute force, and consistent routing."""

from __future__ import annotations

import itertools
from bisect import bisect_left

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from opboost.errors import ParameterError
from opboost.privacy.selection import ExponentialMechanism
from opboost.privacy.thresholds import Buckets, ThresholdGrid, bucket_extents, choose_point
from opboost.rng import seeded

FALSE_ALARM = 1e-6
N_DRAWS = 4_000
N_POINTS = 8
REG_LAMBDA = 0.1


@st.composite
def grids(draw: st.DrawFn) -> ThresholdGrid:
    lower, n_bits = draw(st.floats(-1e6, 1e6)), draw(st.integers(1, 40))
    least = 2.0 ** (n_bits + 2) * np.spacing(1e6)
    return ThresholdGrid(lower=lower, upper=lower + least * draw(st.floats(1, 1e3)), n_bits=n_bits)


@given(grids(), st.floats(-0.2, 1.2), st.floats(0, 1))
@settings(max_examples=300, deadline=None)
def test_a_value_is_at_most_a_threshold_exactly_if_its_point_is_at_most_the_thresholds(grid, place, of_point):
    value = grid.lower + place * (grid.upper - grid.lower)
    point = min(int(of_point * grid.n_points), grid.n_points - 1)
    own = int(grid.points(np.array([value]))[0])
    for near in {point, max(own - 1, 0), min(own, grid.n_points - 1)}:
        assert (value <= grid.thresholds(np.array([near]))[0]) == (own <= near)


def gain(points: list[int], grads: list[int], n_left: int) -> float:
    left, right = sum(grads[:n_left]), sum(grads[n_left:])
    return left**2 / (n_left + REG_LAMBDA) + right**2 / (len(points) - n_left + REG_LAMBDA)


def buckets(records: list[tuple[int, int]], *, on_wrong_side: bool = False) -> Buckets:
    """Buckets of one node's records (point, gradient) on eight points, with the gain as their utility."""
    points, grads = [p for p, _ in sorted(records)], [g for _, g in sorted(records)]
    starts, widths = bucket_extents(np.array(points, dtype=np.int64), begin=0, end=N_POINTS)
    n_left = range(len(points) + 1)
    if on_wrong_side:
        n_left = [0, *(bisect_left(points, point) for point in points)]
    utilities = [gain(points, grads, n) for n in n_left]
    return Buckets(starts=starts, widths=widths, utilities=np.array(utilities), weight_per_point=0.125)


def law_on_points(mechanism: ExponentialMechanism, features: list[Buckets]) -> np.ndarray:
    """Log-probability of every point of every feature, from the buckets."""
    measure = np.concatenate([b.weight_per_point * b.widths for b in features])
    utilities = np.concatenate([b.utilities for b in features])
    tables = np.split(
        mechanism.log_probabilities(utilities, measure), np.cumsum([len(b.starts) for b in features])[:-1]
    )
    return np.array(
        [
            table[j] - np.log(bucket.widths[j])
            for table, bucket in zip(tables, features, strict=True)
            for j in range(len(table))
            for _ in range(bucket.widths[j])
        ]
    )


ONE = ExponentialMechanism(epsilon=1.0, utility_range=4.0)
KINDS = [(p, g) for p in (0, 3, 4, 8) for g in (-1, 1)]
SMALL = [list(records) for n in range(4) for records in itertools.combinations_with_replacement(KINDS, n)]
LOPSIDED = [[(3, 1)] * n + [(p, 1)] * m for n in (5, 40) for m in (0, 1, 5) for p in (1, 4, 8)]
LOPSIDED.append([(0, -1)] * 20 + [(3, 1)] * 20)


def worst_ratio(mechanism: ExponentialMechanism, **rule) -> float:
    """The largest log-ratio of a point's probability over all these data sets with any one record more."""
    worst = 0.0
    for records in [*SMALL, *LOPSIDED]:
        before = law_on_points(mechanism, [buckets(records, **rule)])
        for kind in KINDS:
            after = law_on_points(mechanism, [buckets([*records, kind], **rule)])
            worst = max(worst, float(np.abs(after - before).max()))
    return worst


def test_the_density_of_every_threshold_loses_at_most_epsilon_between_neighbours():
    assert 0.5 < worst_ratio(ONE) <= 1.0


def test_scoring_a_bucket_as_if_the_value_at_its_start_went_right_is_caught_by_the_same_enumeration():
    assert worst_ratio(ONE, on_wrong_side=True) > 1.2


def test_the_law_on_points_is_the_exponential_mechanism_over_all_of_them():
    first, second = buckets([(3, 1), (3, 1), (6, -1)]), buckets([(0, -1), (8, 1)])
    heavier = Buckets(starts=second.starts, widths=second.widths, utilities=second.utilities, weight_per_point=0.375)
    on_points = [
        u for b in (first, heavier) for u, width in zip(b.utilities, b.widths, strict=True) for _ in range(width)
    ]
    expected = ONE.log_probabilities(np.array(on_points), np.repeat([0.125, 0.375], N_POINTS))
    assert law_on_points(ONE, [first, heavier]) == pytest.approx(expected)


def test_points_follow_the_law_over_features_and_buckets():
    """Chi-square of 4,000 choices; see `FALSE_ALARM`."""
    features = [buckets([(3, 1), (3, 1), (6, -1)]), buckets([(0, -1), (8, 1)])]
    rng = seeded(1)
    drawn = [
        feature * N_POINTS + point for feature, point in (choose_point(ONE, features, rng=rng) for _ in range(N_DRAWS))
    ]
    expected = np.exp(law_on_points(ONE, features)) * N_DRAWS
    counts = np.bincount(drawn, minlength=len(expected))
    assert chisquare(counts, expected * N_DRAWS / expected.sum()).pvalue > FALSE_ALARM
    always_first = np.array([feature * N_POINTS for feature in np.array(drawn) // N_POINTS])
    assert chisquare(np.bincount(always_first, minlength=len(expected)), expected).pvalue < FALSE_ALARM


def test_buckets_without_a_point_never_come_up_however_useful():
    starts, widths = bucket_extents(np.array([2, 2, 5]), begin=0, end=8)
    assert widths.tolist() == [2, 0, 3, 3]
    features = [Buckets(starts=starts, widths=widths, utilities=np.array([0, 1e6, 0, 0.0]), weight_per_point=1.0)]
    rng = seeded(2)
    points = [choose_point(ONE, features, rng=rng)[1] for _ in range(300)]
    assert set(points) == set(range(8))


def test_below_an_earlier_split_only_what_is_left_of_the_points_can_be_chosen():
    starts, widths = bucket_extents(np.array([1, 3, 6]), begin=2, end=5)
    assert starts.tolist() == [2, 2, 3, 5]
    assert widths.tolist() == [0, 1, 2, 0]


@given(st.floats(1e-9, 1e9), st.integers(1, 40), st.integers(0, 2**32))
def test_the_measure_of_a_bucket_is_exactly_the_sum_of_its_parts(weight, n_bits, seed):
    bucket = Buckets(
        starts=np.zeros(1, np.int64), widths=np.ones(1, np.int64), utilities=np.zeros(1), weight_per_point=weight
    )
    cut = seed % (1 << n_bits)
    parts = bucket.weight_per_point * cut + bucket.weight_per_point * ((1 << n_bits) - cut)
    assert parts == bucket.weight_per_point * (1 << n_bits)
    assert bucket.weight_per_point == pytest.approx(weight, rel=2**-12)


@pytest.mark.parametrize(
    "bounds", [(1.0, 1.0), (2.0, 1.0), (float("nan"), 1.0), (0.0, float("inf")), (-1.7e308, 1.7e308)]
)
def test_bounds_that_are_no_interval_are_refused(bounds):
    with pytest.raises(ParameterError, match="bounds"):
        ThresholdGrid(lower=bounds[0], upper=bounds[1])


@pytest.mark.parametrize("n_bits", [0, 41])
def test_a_grid_with_another_number_of_bits_is_refused(n_bits):
    with pytest.raises(ParameterError, match="bits"):
        ThresholdGrid(lower=0.0, upper=1.0, n_bits=n_bits)


def test_a_grid_finer_than_doubles_is_refused():
    with pytest.raises(ParameterError, match="fewer bits"):
        ThresholdGrid(lower=1e6, upper=1e6 + 0.5, n_bits=40)


def test_values_that_are_no_numbers_or_not_in_order_are_refused():
    with pytest.raises(ParameterError, match="numbers"):
        ThresholdGrid(lower=0.0, upper=1.0).points(np.array([0.5, np.nan]))
    with pytest.raises(ParameterError, match="ascending"):
        bucket_extents(np.array([3, 1]), begin=0, end=8)
    with pytest.raises(ParameterError, match="threshold to choose"):
        bucket_extents(np.array([3]), begin=4, end=4)
