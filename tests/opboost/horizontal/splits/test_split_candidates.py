"""Split candidates: formulas, and what Iterative Hessian makes of histograms."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.horizontal.splits.split_candidates import (
    MassEstimate,
    Refinement,
    log_candidates,
    merged_candidates,
    quantile_candidates,
    uniform_candidates,
)

BOUNDS = [(0.0, 8.0), (-1.0, 1.0)]


def test_even_candidates_begin_at_the_lower_bound():
    columns = uniform_candidates(BOUNDS, 4)
    np.testing.assert_allclose(columns.cuts[0], [0, 2, 4, 6])
    np.testing.assert_allclose(columns.cuts[1], [-1, -0.5, 0, 0.5])
    assert (columns.axes.sizes == 6).all()  # Q + 1 bins and the missing one


def test_logarithmic_candidates_are_even_after_the_transform_and_mirror():
    columns = log_candidates(BOUNDS, 8, mirrored=np.array([False, True]))
    steps = np.diff(np.log1p(columns.cuts[0]))
    np.testing.assert_allclose(steps, np.log1p(8.0) / 8)
    mirror = np.sort(-1.0 + 1.0 - log_candidates(BOUNDS, 8).cuts[1])
    np.testing.assert_allclose(columns.cuts[1], mirror)
    assert (np.diff(columns.cuts[1]) > 0).all()


def test_quantiles_stay_within_the_bounds():
    rows = np.random.default_rng(0).normal(0, 3, (1000, 2))
    rows[:5, 0] = np.nan
    columns = quantile_candidates(BOUNDS, 10, rows)
    for (lower, upper), cuts in zip(BOUNDS, columns.cuts, strict=True):
        assert cuts.min() >= lower
        assert cuts.max() <= upper


def test_the_printed_rule_merges_light_bins_keeps_the_last_cut_and_fills_up():
    cuts, weights = np.arange(8.0), np.array([0, 10, 0, 0, 0, 10, 0, 0, 0.0])
    # The threshold is 20 / 8: cuts 1 and 5 are kept, and the last one; five points go into the two gaps.
    merged = merged_candidates(cuts, weights, mean_total=20.0)
    np.testing.assert_allclose(merged, [1, 2, 3, 4, 5, 5 + 2 / 3, 5 + 4 / 3, 7])


@given(st.lists(st.floats(-50, 50), min_size=33, max_size=33), st.floats(1, 500))
@settings(max_examples=200)
def test_the_printed_rule_always_gives_as_many_ascending_candidates(weights, total):
    cuts = np.linspace(0, 31, 32)
    merged = merged_candidates(cuts, np.array(weights), mean_total=total)
    assert len(merged) == 32
    assert (np.diff(merged) >= 0).all()
    assert merged[-1] == cuts[-1]


def test_equal_mass_finds_the_quantiles_of_a_skewed_column_in_a_few_rounds():
    values = np.sort(np.clip(np.random.default_rng(0).lognormal(0, 3, 20_000), 0, 1e6))
    columns = uniform_candidates([(0.0, 1e6)], 32)
    equal = Refinement(columns, equal_mass=True)
    printed = Refinement(columns, equal_mass=False)
    for refinement in (equal, printed):
        for _ in range(8):
            edges = np.concatenate([[-np.inf], refinement.columns.cuts[0], [np.inf]])
            counts = np.histogram(values, np.nextafter(edges, np.inf))[0].astype(float)
            refinement.learn(np.array([0]), counts[None])
    ranks = [np.searchsorted(values, each.columns.cuts[0]) / len(values) for each in (equal, printed)]
    wanted = np.arange(32) / 32
    assert np.abs(ranks[0] - wanted).max() < 0.02
    assert np.abs(ranks[1] - wanted).max() > 0.5  # halving gaps does not get there


def test_bins_get_the_mass_that_was_seen_and_keep_the_shape_inside():
    first = MassEstimate.of_nothing(0, 4).learnt(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0, 8, 0, 4, 4.0]))
    np.testing.assert_allclose(first.masses, [8, 0, 4, 4])
    second = first.learnt(np.array([0.0, 2.0]), np.array([0.0, 4.0, 4.0]))
    np.testing.assert_allclose(second.edges, [0, 1, 2, 3, 4])
    np.testing.assert_allclose(second.masses, [4, 0, 2, 2])
    np.testing.assert_allclose(second.quantiles(4), [0, 0.5, 1, 3], atol=1)
    assert first.learnt(np.array([0.0, 2.0]), np.array([-1.0, -2.0, 0.0])) is first


def test_columns_that_were_not_asked_for_stay():
    refinement = Refinement(uniform_candidates(BOUNDS, 8), equal_mass=True)
    before = refinement.columns.cuts
    after = refinement.learn(np.array([1]), np.array([[0, 9, 1, 1, 1, 1, 1, 1, 1.0]])).cuts
    np.testing.assert_array_equal(before[0], after[0])
    assert (before[1] != after[1]).any()
