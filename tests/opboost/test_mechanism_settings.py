"""Stated budgets: whatever the way, the enumerated kernel keeps what was stated, and not much more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost import mechanism_settings
from opboost.desensitize import ColumnMechanism
from opboost.errors import ParameterError
from opboost.mechanism_settings import DEFAULT_CATEGORY_LOSS, DEFAULT_WHOLE_RANGE, MechanismSettings, Odds, StatedBudget
from opboost.preprocess import encode
from opboost.privacy.laws import Law
from opboost.privacy.local import RandomisedResponse
from opboost.schema import ColumnSchema, Kind

SPEND = ColumnSchema(name="spend", lower=0, upper=1000)
GRADE = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=("low", "fair", "good", "high"))
WAYS: dict[str, tuple[StatedBudget, float, float]] = {
    "cost": (StatedBudget(cost=0.5, per=130.0), 0.5, 130.0),
    "whole_range": (StatedBudget(whole_range=8.0), 8.0, 1000.0),
    "odds": (StatedBudget(odds=Odds(within=100.0, at_most=2.0)), math.log(2), 100.0),
    "nothing": (StatedBudget(), DEFAULT_WHOLE_RANGE, 1000.0),
}


def mechanism(stated: StatedBudget, column: ColumnSchema = SPEND, **own: Any) -> ColumnMechanism:
    given = MechanismSettings(**{"domain_size": stated.points, **own})
    return ColumnMechanism(column, stated.resolve(column, given, own_points="domain_size" in own))


def enumerated_loss(found: ColumnMechanism, difference: float) -> float:
    """The largest log-ratio in the table over all pairs of values on a fine grid that differ by so much at most."""
    lower, upper = found.schema.bounds
    grid = np.linspace(lower, upper, 401)
    assert not isinstance(found.value, RandomisedResponse)
    codes = encode(pd.Series(grid), found.schema, domain=found.settings.domain).codes - found.settings.domain.lo
    table = found.value.log_probabilities()
    apart = max(int(np.abs(codes[k:] - codes[: len(codes) - k]).max()) for k in steps_within(grid, difference))
    return max(float(np.abs(table[t:] - table[:-t]).max()) for t in range(1, apart + 1))


def steps_within(grid: np.ndarray, difference: float) -> range:
    return range(1, int(np.searchsorted(grid - grid[0], difference * (1 + 1e-12), side="right")))


def keeps(stated: StatedBudget, loss: float, difference: float, **own: Any) -> bool:
    return enumerated_loss(mechanism(stated, **own), difference) <= loss * (1 + 1e-11)


@pytest.mark.parametrize("law", Law)
@pytest.mark.parametrize("own", [{}, {"domain_size": 13}, {"mechanism": "adj", "theta": 7, "alpha": 2.0}])
@pytest.mark.parametrize("way", WAYS)
def test_a_stated_budget_is_what_the_kernel_keeps(way: str, own: dict[str, Any], law: Law) -> None:
    stated, loss, difference = WAYS[way]
    assert keeps(stated, loss, difference, law=law, **own)


@pytest.mark.parametrize("way", WAYS)
def test_a_resolution_that_miscounts_points_by_one_is_caught(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right: Callable[..., int] = mechanism_settings.points_within
    monkeypatch.setattr(mechanism_settings, "points_within", lambda *given: right(*given) - 1)
    stated, loss, difference = WAYS[way]
    assert not keeps(stated, loss, difference)


@pytest.mark.parametrize("way", WAYS)
def test_the_default_distribution_spends_all_that_was_stated(way: str) -> None:
    stated, loss, difference = WAYS[way]
    found = mechanism(stated)
    points = found.points(difference)
    assert loss * (1 - 1e-9) <= found.loss(points) <= loss


def test_epsilon_is_per_point_of_a_domain_of_its_own_size() -> None:
    found = mechanism(StatedBudget(epsilon=0.1))
    assert (found.settings.epsilon, found.settings.domain_size) == (0.1, 1000)


@settings(max_examples=60, deadline=None)
@given(st.floats(1e-3, 30), st.integers(2, 3000))
def test_reported_losses_never_exceed_what_was_stated(loss: float, points: int) -> None:
    found = mechanism(StatedBudget(whole_range=loss), domain_size=points)
    assert found.loss(points - 1) <= loss
    assert found.guarantee().domain_loss <= loss


@pytest.mark.parametrize(("n", "neighbours"), [(2, 2.3), (3, 2.3), (4, 2.3), (5, 2.0), (9, 1.0)])
def test_ordered_categories_have_a_point_each_and_neighbours_odds_below_ten(n: int, neighbours: float) -> None:
    column = ColumnSchema(name="grade", kind=Kind.ORDERED, categories=tuple(map(str, range(n))))
    found = mechanism(StatedBudget(), column)
    assert found.settings.domain_size == n
    assert found.guarantee().epsilon == pytest.approx(neighbours)
    assert math.exp(found.guarantee().epsilon) <= 10


def test_cells_are_no_wider_than_the_categories() -> None:
    found = mechanism(StatedBudget(whole_range=2.0), GRADE, mechanism="adj", theta=10)
    assert found.guarantee().domain_loss <= 2.0


@pytest.mark.parametrize(
    ("stated", "loss"),
    [
        (StatedBudget(), DEFAULT_CATEGORY_LOSS),
        (StatedBudget(whole_range=1.0), 1.0),
        (StatedBudget(whole_range=math.inf), math.inf),
        (StatedBudget(epsilon=0.1), 3.0),
    ],
)
def test_unordered_categories_lose_no_more_than_a_whole_range(stated: StatedBudget, loss: float) -> None:
    column = ColumnSchema(name="region", kind=Kind.UNORDERED, categories=("n", "s", "w"), missing="category")  # type: ignore[arg-type]
    found = mechanism(stated, column)
    assert found.missingness is not None
    assert found.value.epsilon == found.missingness.epsilon == loss


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"epsilon": 1.0, "whole_range": 8.0}, "found epsilon, whole_range"),
        ({"cost": 1.0}, "found cost"),
        ({"per": 1.0}, "found per"),
        ({"whole_range": 0.0}, "whole_range must be positive"),
        ({"odds": {"within": 1.0, "at_most": 1.0}}, "at_most must be finite and above 1"),
        ({"odds": {"within": 1.0}}, "a budget has the keys"),
        ({"range": 1.0}, "a budget has the keys"),
    ],
)
def test_a_budget_is_stated_in_one_way(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        mechanism_settings.stated_budget(**given)


def test_what_a_mechanism_cannot_keep_is_refused() -> None:
    with pytest.raises(ParameterError, match="publishes cells exactly"):
        mechanism(StatedBudget(whole_range=8.0), mechanism="local", theta=10)
    with pytest.raises(ParameterError, match="must lie in"):
        mechanism(StatedBudget(cost=1.0, per=1001.0))
