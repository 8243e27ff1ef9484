"""The channel of a released column against the mechanisms' own tables, and against enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from opboost.denoise.channel import (
    MOST_CELLS,
    ColumnRelease,
    NoiseChannel,
    category_channel,
    group_ranks,
    order_channel,
)
from opboost.privacy.adj_map import OrderPreservingMap
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.laws import Law
from opboost.privacy.local import RandomisedResponse
from opboost.privacy.order_preserving import GlobalMap, LocalMap
from tests.support.order_preserving_maps import mechanisms


def channel_of(mechanism: OrderPreservingMap, missingness: RandomisedResponse | None = None) -> NoiseChannel:
    n = mechanism.domain.size
    release, counts = ColumnRelease(mechanism, missingness, np.arange(n)), np.ones(n, np.int64)
    return order_channel(release, group_ranks(release.positions, n, counts), counts)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("n", [2, 5, 40])
@pytest.mark.parametrize("epsilon", [0.01, 0.5, 3.0, math.inf])
def test_the_channel_of_few_points_is_the_mechanisms_own_table(law: Law, n: int, epsilon: float) -> None:
    """Differences of distribution functions lose what is below the last place of 1."""
    for mechanism in mechanisms(n, law, epsilon):
        exact = np.exp(mechanism.log_probabilities())
        np.testing.assert_allclose(channel_of(mechanism).matrix, exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("law", Law)
def test_codes_that_were_never_released_are_left_out(law: Law) -> None:
    mechanism, positions = mechanisms(20, law, 0.3)[0], np.array([0, 3, 4, 19])
    counts = np.ones(4, np.int64)
    found = order_channel(ColumnRelease(mechanism, None, positions), np.arange(4), counts).matrix
    np.testing.assert_allclose(found, np.exp(mechanism.log_probabilities())[:, positions], rtol=0, atol=1e-14)


@pytest.mark.parametrize("law", Law)
def test_wide_cells_hold_the_mean_of_their_points_and_groups_the_sum_of_theirs(law: Law) -> None:
    """Cells of up to 16 points are averaged over all of them."""
    for mechanism in mechanisms(400, law, 0.05):
        counts = np.ones(400, np.int64)
        release = ColumnRelease(mechanism, None, np.arange(400))
        groups = group_ranks(release.positions, 400, counts)
        channel = order_channel(release, groups, counts)
        assert channel.matrix.shape[0] <= MOST_CELLS
        assert channel.matrix.shape[1] <= MOST_CELLS
        table = np.exp(mechanism.log_probabilities())
        by_group = np.stack([table[:, groups == g].sum(axis=1) for g in range(groups[-1] + 1)], axis=1)
        expected = [by_group[a:b].mean(axis=0) for a, b in zip(channel.starts, channel.ends, strict=True)]
        np.testing.assert_allclose(channel.matrix, expected, rtol=0, atol=1e-12)
        np.testing.assert_allclose(channel.matrix.sum(axis=1), 1.0)


@pytest.mark.parametrize(
    "narrow",
    [
        GlobalMap(epsilon=4.0, domain=IntegerDomain(1, 100_000)),
        LocalMap(epsilon=4.0, domain=IntegerDomain(1, 100_000), theta=2),
    ],
)
def test_whatever_was_released_has_a_true_cell_however_narrow_the_noise(narrow: OrderPreservingMap) -> None:
    """Draws of a state that no true cell is released as would all be the last cell."""
    positions = np.sort(np.random.default_rng(0).choice(100_000, 100, replace=False))
    counts = np.ones(100, np.int64)
    channel = order_channel(ColumnRelease(narrow, None, positions), np.arange(100), counts)
    most_likely = channel.matrix.argmax(axis=0)
    assert (channel.matrix.max(axis=0) > 0.005).all()
    assert (channel.starts[most_likely] <= positions).all()
    assert (positions < channel.ends[most_likely]).all()


def test_a_domain_of_a_billion_points_needs_no_table_of_its_size() -> None:
    mechanism = GlobalMap(epsilon=1e-8, domain=IntegerDomain(1, 10**9))
    positions = np.sort(np.random.default_rng(0).choice(10**9, 5000, replace=False))
    counts = np.ones(5000, np.int64)
    channel = order_channel(ColumnRelease(mechanism, None, positions), group_ranks(positions, 10**9, counts), counts)
    np.testing.assert_allclose(channel.matrix.sum(axis=1), 1.0)


def enumerated_with_missing(value: np.ndarray, missingness: RandomisedResponse) -> np.ndarray:
    """What a cell is published as, by the steps of a release: the bit, then the code or nothing."""
    n = len(value)
    bit = np.exp(missingness.log_probabilities())
    table = np.zeros((n + 1, n + 1))
    for true, published in itertools.product(range(n + 1), range(n + 1)):
        is_missing = int(true == n)
        code = 0 if is_missing else true
        table[true, published] = bit[is_missing, 1] if published == n else bit[is_missing, 0] * value[code, published]
    return table


def test_missing_cells_are_a_state_of_their_own() -> None:
    missingness = RandomisedResponse(epsilon=1.5, n_categories=2)
    for mechanism in mechanisms(9, Law.CLAMPED, 0.4):
        expected = enumerated_with_missing(np.exp(mechanism.log_probabilities()), missingness)
        np.testing.assert_allclose(channel_of(mechanism, missingness).matrix, expected, rtol=0, atol=1e-14)


def test_categories_go_through_randomised_response() -> None:
    response, missingness = (RandomisedResponse(epsilon=2.0, n_categories=k) for k in (4, 2))
    table = np.exp(response.log_probabilities())
    np.testing.assert_allclose(category_channel(response, None).matrix, table)
    expected = enumerated_with_missing(table, missingness)
    np.testing.assert_allclose(category_channel(response, missingness).matrix, expected, atol=1e-15)
