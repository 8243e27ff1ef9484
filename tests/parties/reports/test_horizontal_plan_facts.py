"""Plan of a horizontal run: the agreed noise is among those shown, more shares promise more, a chain has no sums."""

from __future__ import annotations

import math
from typing import Any

import pytest

from opboost.horizontal.recommended.plan import N_COUNTED_TREES
from parties.config.reading import read_schema
from parties.config.record_runs import read_record_run, recipe_of
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


def test_of_several_classes_the_least_noise_of_a_tree_is_stated_and_first_rounds_are_no_trees(hospitals: Any) -> None:
    """A record moves two classes' sums of a tree: by 1.41 in all, and not by 1.03 as each pair's bounds say."""
    del hospitals.training["sgbdt"]
    hospitals.training |= {"objective": "multi:softprob", "classes": 3}
    hospitals.training |= {"recommended": {"records": 90, "n_estimators": 8, "max_depth": 2}}
    path = hospitals.write("hub")
    run = read_record_run(path)
    recipe = recipe_of(run, read_schema(run.table_schema)[0], path)
    of_trees = recipe.noise.releases[-2:]
    assert [one.n_rounds for one in of_trees] == [N_COUNTED_TREES, 8]
    least = min(math.sqrt(one.n_rounds) / one.mu for one in of_trees)
    plan = record_plan(path)
    assert [one.multiplier for one in plan.noises if one.epsilon == 3.0] == [pytest.approx(least)]
    assert plan.shares[1].multiplier == pytest.approx(least)
    assert plan.n_trees == 3 * (N_COUNTED_TREES + 8)


def test_a_screen_of_many_columns_is_no_trees_of_the_model(hospitals: Any) -> None:
    del hospitals.training["sgbdt"]
    hospitals.training |= {"epsilon": 20.0, "recommended": {"records": 900, "n_estimators": 8, "max_depth": 2}}
    hospitals.schema["columns"] |= {f"lab {number}": {"lower": 0, "upper": 1} for number in range(40)}
    path = hospitals.write("hub")
    run = read_record_run(path)
    recipe = recipe_of(run, read_schema(run.table_schema)[0], path)
    assert recipe.rounds.kinds[-1] == "columns"
    assert recipe.n_trees == recipe.rounds.n_trees + 8
    assert record_plan(path).n_trees == 8


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
