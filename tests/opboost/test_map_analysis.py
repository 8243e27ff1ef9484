"""What a map costs and keeps: losses against the table itself, order by hand, budgets against the curve."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.map_analysis import MAX_TABLE_DOMAIN, analyse, analyse_column, least_epsilon, split_outlooks
from opboost.mechanism_settings import MechanismSettings
from opboost.order_metrics import crossing, expected_weighted_kendall, gamma
from opboost.privacy.baselines import Piecewise
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.local import RandomisedResponse

SMALL = MechanismSettings(epsilon=0.5, domain_size=12, theta=4)
COUNTS = np.array([3, 0, 5, 1, 0, 0, 9, 2, 2, 0, 4, 1])


def loss_by_table(table, t):
    """The largest log-ratio of two rows at most t apart, over all outputs."""
    n = len(table)
    pairs = ((x, y) for x in range(n) for y in range(n) if 0 < abs(x - y) <= t)
    with np.errstate(invalid="ignore"):
        return max(np.nanmax(table[x] - table[y]) for x, y in pairs)


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
@pytest.mark.parametrize("law", ["clamped", "exponential", "calibrated", "bounded_laplace"])
def test_losses_are_those_of_the_table(mechanism: str, law: str) -> None:
    choice = replace(SMALL, mechanism=mechanism, law=law).build()
    table = choice.log_probabilities()
    found = analyse(choice, table, 12)
    assert [point.t for point in found.losses] == [1, 2, 5, 10, 11]
    for point in found.losses:
        assert point.loss == pytest.approx(loss_by_table(table, point.t), rel=1e-9)
        assert (point.bound is not None) == (mechanism == "adj")
        assert point.bound is None or point.loss <= point.bound
    assert found.domain_loss == found.losses[-1].loss
    inside = max(loss_by_table(table[s : s + 4, s : s + 4], 1) for s in (0, 4, 8))
    assert found.tight == pytest.approx(inside if mechanism == "local" else found.losses[0].loss, rel=1e-9)
    assert found.gammas == tuple((t, gamma(table, t)) for t in (1, 2, 5, 10))


def test_a_domain_too_large_for_a_table_still_has_its_losses() -> None:
    choice = replace(SMALL, domain_size=10**6).build()
    found = analyse(choice, None, 10**6)
    assert found.tight == pytest.approx(0.5)
    assert found.domain_loss == pytest.approx(0.5 * (10**6 - 1))
    assert (found.gammas, found.kendall) == ((), None)


def test_categories_have_no_order_to_keep() -> None:
    choice = RandomisedResponse(epsilon=1.0, n_categories=4)
    found = analyse(choice, choice.log_probabilities(), 4)
    assert (found.tight, found.domain_loss, found.gammas, found.kendall) == (1.0, 1.0, (), None)


def test_a_baseline_loses_the_same_at_every_distance() -> None:
    choice = Piecewise(epsilon=1.0, domain=IntegerDomain(1, 12))
    found = analyse(choice, choice.log_probabilities(), 12)
    assert {point.loss for point in found.losses} == {found.tight}


def test_crossing_counts_what_comes_out_on_the_other_side() -> None:
    table = SMALL.build().log_probabilities()
    expected = sum(
        COUNTS[x] * math.exp(table[x, y]) for x, y in itertools.product(range(12), repeat=2) if (x <= 6) != (y <= 6)
    )
    assert crossing(table, 6, COUNTS) == pytest.approx(expected / COUNTS.sum())
    assert crossing(np.where(np.eye(12), 0.0, -np.inf), 6, COUNTS) == 0.0


@pytest.mark.parametrize("split", [-1, 11])
def test_a_split_with_nothing_behind_it_is_refused(split: int) -> None:
    with pytest.raises(ParameterError, match=r"must lie in 0\.\.10"):
        crossing(SMALL.build().log_probabilities(), split)


def test_split_points_part_the_records_and_leave_some_on_both_sides() -> None:
    found = split_outlooks(SMALL.build().log_probabilities(), COUNTS)
    assert [one.position for one in found] == [2, 6, 8]
    assert all(0 < one.crossing < 0.5 and 0 <= one.beta <= 1 for one in found)
    last = split_outlooks(SMALL.build().log_probabilities(), np.array([1] + [0] * 10 + [99]))
    assert [one.position for one in last] == [0]


def test_a_column_of_one_value_has_no_order_and_no_splits() -> None:
    found = analyse_column(SMALL.build().log_probabilities(), np.eye(12, dtype=np.int64)[3] * 7)
    assert (found.kendall, found.splits) == (None, ())
    assert found.attack.blind_success == pytest.approx(found.attack.success) == 1.0


@pytest.mark.parametrize("mechanism", ["global", "adj"])
@pytest.mark.parametrize("wanted", [0.3, 0.6, 0.9])
def test_the_least_budget_keeps_the_order_and_a_little_less_does_not(mechanism: str, wanted: float) -> None:
    settings = replace(SMALL, mechanism=mechanism)
    epsilon = least_epsilon(settings, COUNTS, wanted)
    assert epsilon is not None

    def kept(budget: float) -> float:
        return expected_weighted_kendall(replace(settings, epsilon=budget).build().log_probabilities(), COUNTS)

    assert kept(epsilon) >= wanted > kept(epsilon * 0.97)


def test_no_budget_is_found_where_none_keeps_the_order() -> None:
    assert least_epsilon(replace(SMALL, mechanism="adj", alpha=1e-5), COUNTS, 0.99) is None


def test_the_cells_of_a_local_map_keep_order_for_nothing() -> None:
    assert least_epsilon(replace(SMALL, mechanism="local"), COUNTS, 0.5) == 1e-4


@pytest.mark.parametrize("wanted", [0, 1, -0.5, float("nan")])
def test_an_impossible_order_is_refused(wanted: float) -> None:
    with pytest.raises(ParameterError, match="between 0 and 1"):
        least_epsilon(SMALL, COUNTS, wanted)


def test_order_on_a_huge_domain_is_refused_rather_than_tabulated() -> None:
    with pytest.raises(ParameterError, match="at most 2000 points"):
        least_epsilon(replace(SMALL, domain_size=MAX_TABLE_DOMAIN + 1), None, 0.5)
