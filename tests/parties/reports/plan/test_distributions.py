"""Distributions: histograms hold every record before and after, and examples are quantiles of the mechanism's table."""

from __future__ import annotations

import numpy as np
import pytest

from opboost.schema import ColumnSchema
from parties.reports.plan.distributions import MOST_BARS, OBSERVED, examples_of, histogram_of
from tests.support.released_cells import mechanisms

SPEND, _, TOWN = mechanisms()


def uniform(n: int) -> np.ndarray:
    return np.log(np.full((n, n), 1 / n))


@pytest.mark.parametrize("n", [2, 7, MOST_BARS, MOST_BARS + 1, 997])
def test_every_record_is_in_a_bar_before_and_after(n: int) -> None:
    counts = np.random.default_rng(1).integers(0, 9, n)
    found = histogram_of(SPEND, counts, uniform(n))
    assert sum(found.before) == counts.sum()
    assert sum(found.after) == pytest.approx(counts.sum())
    assert len(found.labels) == len(found.before) == len(found.after) == min(n, MOST_BARS)
    assert found.labels[0] == "0"
    assert histogram_of(SPEND, counts, None).after == ()


def test_bars_of_times_begin_with_dates() -> None:
    (since,) = mechanisms(ColumnSchema(name="since", lower=19_358, upper=19_458))
    assert histogram_of(since, np.ones(101), uniform(101), 86400).labels[:2] == ("2023-01-01", "2023-01-03")


def test_categories_are_bars_of_their_own() -> None:
    found = histogram_of(TOWN, np.array([3, 0, 2]), uniform(3))
    assert (found.labels, found.before) == (("x", "y", "z"), (3.0, 0.0, 2.0))


def test_examples_are_points_of_the_public_range_and_their_releases_quantiles() -> None:
    n = 101
    (mechanism,) = mechanisms(ColumnSchema(name="age", lower=0, upper=100))
    examples = examples_of(mechanism, uniform(n), np.ones(n))
    assert [one.value for one in examples] == [25, 50, 75]
    for one in examples:
        assert (one.low, one.middle, one.high) == pytest.approx(tuple(100 * share for share in OBSERVED), abs=1)
        assert 0 <= one.rank_low <= one.rank_high <= 1
        assert one.rank_high - one.rank_low == pytest.approx(0.9, abs=0.02)


def test_without_noise_an_example_is_released_as_it_is() -> None:
    n = 101
    with np.errstate(divide="ignore"):
        exact = np.log(np.eye(n))
    (mechanism,) = mechanisms(ColumnSchema(name="age", lower=0, upper=100))
    for one in examples_of(mechanism, exact, np.ones(n)):
        assert one.low == one.middle == one.high == one.value
