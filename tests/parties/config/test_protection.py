"""Bounds on budgets: the largest allowed one passes, anything beyond it and no number do not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.schema import ColumnSchema, Kind, Missing
from parties.config.protection import (
    MOST_EPSILON,
    Delta,
    Epsilon,
    Finite,
    GivenBudget,
    LabelBounds,
    check_protection,
    excessive,
    given_budgets,
    loss_of,
)


@given(st.floats(allow_nan=True))
def test_a_budget_is_excessive_unless_it_is_at_most_the_most(value: float) -> None:
    budget = GivenBudget("epsilon", value)
    assert (excessive([budget]) == []) is (value <= MOST_EPSILON)


def test_every_excessive_budget_is_named_unless_no_privacy_is_asked_for() -> None:
    budgets = [*given_budgets("training", epsilon=40.0, delta=None), GivenBudget("b", 1.0), GivenBudget("c", math.nan)]
    with pytest.raises(ValueError, match=r"training\.epsilon is 40, which protects nothing.* \| c, which protects"):
        check_protection(budgets, no_privacy=False)
    check_protection(budgets, no_privacy=True)
    check_protection(budgets[1:2], no_privacy=False)


@pytest.mark.parametrize("name", ["global", "local", "adj"])
def test_a_columns_loss_is_that_of_neighbouring_values_in_its_own_unit(name: str) -> None:
    """Of 16 whole numbers on 100 points, neighbours are 7 points apart at most."""
    settings = MechanismSettings(mechanism=name, epsilon=35.0, domain_size=100, theta=10)
    mechanism = ColumnMechanism(ColumnSchema(name="years", lower=1, upper=16), settings)
    found = loss_of(mechanism, "here")
    assert found.value == mechanism.guarantee().epsilon == mechanism.loss(7) > 200
    assert found.words.startswith(f"here comes to {found.value:g} per 1 original unit, 7 points of the mapped domain")
    assert excessive([found]) == [found]
    fine = ColumnMechanism(ColumnSchema(name="fine", lower=1, upper=16, step=0.1), settings)
    assert loss_of(fine, "here").value == fine.loss(1)


@pytest.mark.parametrize("missing", [Missing.REFUSE, Missing.CATEGORY])
def test_a_columns_loss_has_that_of_categories_and_of_empty_cells(missing: Missing) -> None:
    town = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("Bern", "Genf"), missing=missing)
    settings = MechanismSettings(epsilon=0.1, category_epsilon=40.0)
    found = loss_of(ColumnMechanism(town, settings), "t")
    assert found.words == "t comes to 40 per any change of category (epsilon 40)"
    spend = ColumnSchema(name="spend", lower=0, upper=100, missing=missing)
    assert (loss_of(ColumnMechanism(spend, settings), "s").value == 40.0) is (missing is Missing.CATEGORY)


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (Epsilon, [0.1, math.inf], [0, -1, math.nan]),
        (Delta, [1e-9], [0, 1, math.nan]),
        (Finite, [1.0], [math.inf, math.nan, 0]),
        (LabelBounds, [(0, 1)], [(1, 0), (0, 0), (0, math.inf), (-1.7e308, 1.7e308), (0, math.nan)]),
    ],
)
def test_types_of_budgets_take_what_can_be_one(kind: object, good: list[object], bad: list[object]) -> None:
    adapter: TypeAdapter[object] = TypeAdapter(kind)
    for value in good:
        assert adapter.validate_python(value) == value
    for value in bad:
        with pytest.raises(ValidationError):
            adapter.validate_python(value)
