"""Candidates of a plan: a grid around the chosen settings."""

from __future__ import annotations

from typing import Any

import pytest

from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema
from parties.reports.choices import MechanismGrid, choices_for, label, settings_of


def mechanism(lower: float = 0, upper: float = 5000, **settings: Any) -> ColumnMechanism:
    schema = ColumnSchema(name="income", lower=lower, upper=upper)
    return ColumnMechanism(schema, MechanismSettings(**{"domain_size": 1000, "epsilon": 0.1, **settings}))


def test_options_span_a_grid_and_the_chosen_one_stays_first() -> None:
    grid = MechanismGrid(mechanisms=("global", "adj"), epsilons=(0.05, 0.1), alphas=(1.0, 3.0))
    found = [label(settings_of(choice)) for choice in choices_for(mechanism(), grid)]
    assert found[0] == "global, clamped, epsilon 0.1"
    assert sum(one.startswith("adj") for one in found) == 4
    assert len(found) == len(set(found)) == 1 + 1 + 4 + 2


def test_a_small_domain_has_a_grid_too() -> None:
    for n in (2, 3, 5, 11):
        assert len(choices_for(mechanism(domain_size=n), MechanismGrid())) > 5


def test_an_impossible_grid_is_refused() -> None:
    with pytest.raises(ParameterError, match="theta"):
        choices_for(mechanism(), MechanismGrid(mechanisms=("local",), thetas=(5000,)))
