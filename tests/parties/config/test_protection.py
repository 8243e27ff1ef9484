"""Bounds on budgets: the largest allowed one passes, anything beyond it and no number do not."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from opboost.mechanism_settings import MechanismSettings
from parties.config.protection import (
    MOST_EPSILON,
    Delta,
    Epsilon,
    Finite,
    GivenBudget,
    LabelBounds,
    budgets_of,
    check_protection,
    excessive,
    given_budgets,
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


@pytest.mark.parametrize("mechanism", ["global", "local", "adj"])
def test_the_budget_of_settings_is_the_loss_between_neighbouring_codes(mechanism: str) -> None:
    settings = MechanismSettings(mechanism=mechanism, epsilon=0.5, domain_size=20, theta=5)  # type: ignore[arg-type]
    found = list(budgets_of(settings, "here"))
    assert len(found) == (2 if mechanism == "adj" else 1)
    assert all(one.words.startswith("here comes to ") for one in found)
    assert max(one.value for one in found) >= 0.5


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
