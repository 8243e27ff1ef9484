"""The division of a budget: all releases together spend it, whatever the number of trees, and no more."""

from __future__ import annotations

import dataclasses
import math

import pytest

from opboost.horizontal.recommended.plan import TrainingPlan
from opboost.privacy.accounting import by_gaussian, total_mu

pytestmark = pytest.mark.usefixtures("one_thread")


DELTA = 1e-6


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
@pytest.mark.parametrize(("n_classes", "cells_l2"), [(0, 3.0), (2, 3.0), (2, 0.0), (5, 3.0)])
def test_however_many_trees_there_are_the_budget_is_spent_and_not_exceeded(epsilon, n_classes, cells_l2):
    plan = TrainingPlan.for_budget(epsilon, DELTA, n_classes=n_classes, cells_l2=cells_l2)
    for n_trees in (1, 2, 30, 600):
        spent = by_gaussian(plan.releases(1.3, n_trees), DELTA)
        assert 0.9999 * epsilon < spent <= epsilon
        assert total_mu(plan.releases(1.3, n_trees)) <= plan.mu * (1 + 1e-9)
    assert plan.releases(1.3, 0) == plan.releases(1.3, 5)[:-1]
    one_more = (*plan.releases(1.3, 30), plan.releases(1.3, 30)[-1])
    assert by_gaussian(one_more, DELTA) > epsilon


def test_without_noise_there_are_no_releases() -> None:
    plan = TrainingPlan.for_budget(math.inf, DELTA, n_classes=0, cells_l2=1.0)
    assert plan.releases(1.0, 30) == ()
    assert [stage.std for stage in plan.stages(1.0, 30)] == [0.0]
    assert plan.cells_std == plan.labels_std == plan.score_std == 0.0


@pytest.mark.parametrize(
    ("n_classes", "n_columns", "n_records", "kinds"),
    [
        (0, 3, 1e6, ["sums"]),
        (2, 40, 1e6, ["sums"]),
        (2, 41, 1e6, ["sums"]),
        (2, 200, 1e6, ["sums"]),
        (2, 200, 4000.0, ["sums"]),
        (0, 200, 4000.0, ["sums"]),
        (0, 200, 100.0, ["sums"]),
        (3, 3, 1e6, ["sums"]),
        (3, 3, 100.0, ["counts", "sums"]),
        (3, 200, 4000.0, ["counts", "sums"]),
    ],
)
def test_all_stages_together_spend_the_budget(
    n_classes: int, n_columns: int, n_records: float, kinds: list[str]
) -> None:
    plan = TrainingPlan.for_budget(0.5, DELTA, n_classes=n_classes, cells_l2=1.0).for_records(n_records, n_columns)
    assert [stage.kind for stage in plan.stages(1.3, 50)] == kinds
    assert total_mu(plan.releases(1.3, 50)) == pytest.approx(plan.mu, rel=1e-6)
    assert plan.stages(1.3, 0) == ()


@pytest.mark.parametrize(
    ("n_classes", "n_columns", "n_records", "is_screened"),
    [
        (2, 40, 1e6, False),
        (2, 41, 1e6, True),
        (2, 200, 4000.0, False),
        (0, 200, 4000.0, True),
        (0, 200, 100.0, False),
        (3, 200, 4000.0, True),
    ],
)
def test_many_columns_are_screened_where_that_can_tell_something(
    n_classes: int, n_columns: int, n_records: float, is_screened: bool
) -> None:
    plan = TrainingPlan.for_budget(0.5, DELTA, n_classes=n_classes, cells_l2=1.0).for_records(n_records, n_columns)
    assert plan.n_screened == is_screened * n_columns
    # Without noise nothing has to be told apart from it.
    no_noise = TrainingPlan.for_budget(math.inf, DELTA, n_classes=n_classes, cells_l2=1.0)
    assert not no_noise.for_records(n_records, n_columns).n_screened
    if is_screened:
        screen = plan.screen(1.3)
        assert 1.3 + 2 / screen.steps == screen.bound < 1.3 * 1.001
        assert screen.l2 == pytest.approx(screen.bound * math.sqrt(n_columns))
        without = dataclasses.replace(plan, n_screened=0, screen_share=0.0)
        n_more = len(plan.releases(1.3, 50)) - len(without.releases(1.3, 50))
        assert n_more == 1
        assert total_mu(plan.releases(1.3, 50)) == pytest.approx(total_mu(without.releases(1.3, 50)), rel=1e-6)
