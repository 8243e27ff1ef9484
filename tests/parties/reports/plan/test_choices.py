"""Candidates of a plan: the chosen settings, and a grid of budgets, mechanisms and points."""

from __future__ import annotations

from typing import Any

import pytest

from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, Kind
from parties.reports.plan.choices import (
    BUDGETS,
    FEW_POINTS,
    MANY_POINTS,
    MechanismGrid,
    alternatives_for,
    label,
    settings_of,
)


def mechanism(lower: float = 0, upper: float = 5000, **settings: Any) -> ColumnMechanism:
    schema = ColumnSchema(name="income", lower=lower, upper=upper)
    return ColumnMechanism(schema, MechanismSettings(**{"domain_size": 1000, "epsilon": 0.1, **settings}))


def test_options_span_a_grid_and_the_chosen_one_stays_first() -> None:
    grid = MechanismGrid(mechanisms=("global", "adj"), epsilons=(0.05, 0.1), alphas=(1.0, 3.0))
    found = [label(settings_of(one.choice)) for one in alternatives_for(mechanism(), grid)]
    assert found[0] == "global, clamped, 1000 points, epsilon 0.1"
    assert sum(one.startswith("adj") for one in found) == 4
    assert len(found) == len(set(found)) == 1 + 1 + 4 + 2


@pytest.mark.parametrize("law", ["clamped", "bounded_laplace"])
def test_a_what_if_costs_what_its_budget_says_and_hardly_less(law: str) -> None:
    found = [one for one in alternatives_for(mechanism(law=law), MechanismGrid()) if one.budget is not None]
    assert {one.budget for one in found} == set(BUDGETS)
    assert {one.n_points for one in found} == {*FEW_POINTS, 1000}
    for one in found:
        assert one.choice.epsilon == float(f"{one.choice.epsilon:.4g}")
        assert one.n_points <= MANY_POINTS or one.choice.name == "global"
        if one.choice.name == "global":
            assert one.choice.loss(one.n_points - 1) <= one.budget
            assert law != "clamped" or one.choice.loss(one.n_points - 1) >= 0.998 * one.budget


def test_categories_keep_their_points_and_a_small_domain_has_what_ifs_too() -> None:
    schema = ColumnSchema(name="tier", kind=Kind.ORDERED, categories=("low", "middle", "high"))
    tier = ColumnMechanism(schema, MechanismSettings(domain_size=3))
    assert {one.n_points for one in alternatives_for(tier, MechanismGrid())} == {3}
    for n in (2, 3, 5, 11):
        assert len(alternatives_for(mechanism(domain_size=n), MechanismGrid())) > 5


def test_cells_of_a_grid_are_no_wider_than_an_ordered_column() -> None:
    schema = ColumnSchema(name="tier", kind=Kind.ORDERED, categories=("low", "middle", "high"))
    grid = MechanismGrid(mechanisms=("adj", "global"), thetas=(2, 50), alphas=(2.0,))
    found = alternatives_for(ColumnMechanism(schema, MechanismSettings(domain_size=3)), grid)
    assert {settings_of(one.choice).get("theta") for one in found} == {None, 2, 3}


def test_a_mechanism_that_would_publish_every_value_is_no_what_if() -> None:
    schema = ColumnSchema(name="visits", lower=0, upper=5, step=1)
    found = alternatives_for(ColumnMechanism(schema, MechanismSettings(domain_size=100)), MechanismGrid())
    assert {one.choice.name for one in found if one.budget is not None} == {"global", "adj"}


def test_an_impossible_grid_is_refused() -> None:
    with pytest.raises(ParameterError, match="theta"):
        alternatives_for(mechanism(), MechanismGrid(mechanisms=("local",), thetas=(5000,)))
