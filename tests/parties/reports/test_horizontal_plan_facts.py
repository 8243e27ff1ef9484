"""Plan of a horizontal run: the agreed noise is among those shown, more shares promise more, a chain has no sums."""

from __future__ import annotations

from typing import Any

import pytest

from parties.reports.horizontal_plan_facts import NOISE_MULTIPLES, record_plan


def test_a_larger_budget_needs_less_noise_and_the_agreed_one_is_shown(hospitals: Any) -> None:
    plan = record_plan(hospitals.write("hub"))
    epsilons = [one.epsilon for one in plan.noises]
    assert epsilons == sorted(epsilons)
    assert 3.0 in epsilons
    assert len(epsilons) <= len(NOISE_MULTIPLES)
    multipliers = [one.multiplier for one in plan.noises]
    assert multipliers == sorted(multipliers, reverse=True)
    assert (plan.n_records, plan.peers, plan.n_columns, plan.n_trees) == (None, ("north", "south", "west"), 3, 8)


def test_every_further_share_of_noise_promises_more_and_the_agreed_number_what_was_agreed(hospitals: Any) -> None:
    shares = record_plan(hospitals.write("north")).shares
    assert [one.n_workers for one in shares] == [1, 2, 3]
    epsilons = [one.epsilon for one in shares]
    assert epsilons == sorted(epsilons, reverse=True)
    assert epsilons[1] <= 3.0 < epsilons[0]


@pytest.mark.parametrize("name", ["hub", "north"])
def test_a_party_knows_its_own_number_of_rows_alone(hospitals: Any, name: str) -> None:
    assert record_plan(hospitals.write(name)).n_records == (None if name == "hub" else 90)


def test_other_budgets_may_be_asked_for(hospitals: Any) -> None:
    steps: list[tuple[str, int, int]] = []
    plan = record_plan(hospitals.write("hub"), epsilons=(1.0,), progress=lambda *step: steps.append(step))
    assert [one.epsilon for one in plan.noises] == [1.0, 3.0]
    assert [step[1] for step in steps] == [1]
    assert plan.traffic is not None
