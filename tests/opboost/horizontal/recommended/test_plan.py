"""The division of a budget: all releases together spend it, whatever the number of trees, and no more."""

from __future__ import annotations

import math

import pytest

from opboost.horizontal.recommended.plan import TrainingPlan, tree_sizes
from opboost.privacy.accounting import by_gaussian, total_mu

pytestmark = pytest.mark.usefixtures("one_thread")


DELTA = 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("has_numbers", "counted"), [(True, 3.0), (False, 3.0), (False, 0.0)])
def test_however_many_trees_there_are_the_budget_is_spent_and_not_exceeded(epsilon, has_numbers, counted):
    plan = TrainingPlan.for_budget(epsilon, DELTA, has_numbers=has_numbers, counted=counted)
    for n_trees in (1, 2, 30, 600):
        spent = by_gaussian(plan.releases(1.3, n_trees), DELTA)
        assert 0.9999 * epsilon < spent <= epsilon
        assert total_mu(plan.releases(1.3, n_trees)) <= plan.mu * (1 + 1e-9)
    assert plan.releases(1.3, 0) == plan.releases(1.3, 5)[:-1]
    one_more = (*plan.releases(1.3, 30), plan.releases(1.3, 30)[-1])
    assert by_gaussian(one_more, DELTA) > epsilon


def test_without_noise_there_are_no_releases() -> None:
    plan = TrainingPlan.for_budget(math.inf, DELTA, has_numbers=True, counted=1.0)
    assert plan.releases(1.0, 30) == ()
    assert plan.sums_std(1.0, 30) == plan.cells_std == plan.labels_std == plan.score_std == 0.0


@pytest.mark.parametrize(
    ("n_columns", "n_records", "is_of_two", "is_screened"),
    [(3, 1e6, False, False), (40, 1e6, True, False), (41, 1e6, True, True), (200, 1e6, True, True)]
    + [(200, 4000.0, True, False), (200, 4000.0, False, True), (200, 100.0, False, False)],
)
def test_first_trees_of_many_columns_and_all_others_spend_the_budget(
    n_columns: int, n_records: float, is_of_two: bool, is_screened: bool
) -> None:
    plan = TrainingPlan.for_budget(0.5, DELTA, has_numbers=False, counted=1.0)
    plan = plan.screening(n_columns, n_records, is_of_two=is_of_two)
    assert (plan.n_screened > 0) == is_screened
    assert total_mu(plan.releases(1.3, 50)) == pytest.approx(plan.mu, rel=1e-6)


def test_sizes_grow_with_what_stands_out_of_the_noise() -> None:
    found = [tree_sizes(n, 0.1, 1) for n in (1, 1e3, 1e4, 1e5, 1e9)]
    assert found == sorted(found)
    assert found[0] == (30, 2)
    assert found[-1] == (600, 6)
    assert tree_sizes(1e5, 0.1, 26) < tree_sizes(1e5, 0.1, 1)
    assert tree_sizes(5000, math.inf, 1) == (600, 6)
