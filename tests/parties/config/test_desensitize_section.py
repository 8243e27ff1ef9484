"""The `desensitize` section: every column has a mechanism with a guarantee, and every budget is looked at."""

from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from opboost.schema import ColumnSchema, Kind, TableSchema
from parties.config.desensitize_section import MAX_POINTS, DesensitizeSection
from parties.config.protection import excessive
from parties.errors import ConfigError

SCHEMA = TableSchema(columns=(ColumnSchema(name="age", lower=0, upper=100),), id="id", label=None)


def of_column(**own: Any) -> DesensitizeSection:
    return DesensitizeSection(columns={"age": own})


def test_a_column_takes_the_common_settings_but_its_own() -> None:
    (found,) = DesensitizeSection(epsilon=0.3, domain_size=50, columns={"age": {"epsilon": 0.7}}).mechanisms(SCHEMA)
    assert (found.settings.epsilon, found.settings.domain_size) == (0.7, 50)


def test_a_cost_in_original_units_is_what_such_a_difference_costs() -> None:
    (found,) = of_column(cost=1.0, per=10).mechanisms(SCHEMA)
    points = round(10 / found.point)
    assert found.loss(points) == pytest.approx(1.0, rel=0.02)
    assert found.loss(points) <= 1.0 + 1e-9


@pytest.mark.parametrize(
    ("section", "words"),
    [
        (DesensitizeSection(columns={"height": {}}), "names columns that the schema lacks: height"),
        (of_column(cost=1.0), "desensitize.columns.age: give the budget in one way: epsilon, or cost"),
        (of_column(cost=1.0, per=1, epsilon=1.0), "found epsilon, cost"),
        (DesensitizeSection(epsilon=1.0, whole_range=8.0), "desensitize: give the budget in one way"),
        (of_column(cost=1.0, per=101), "columns.age: column 'age': the difference that the budget is stated for"),
        (
            DesensitizeSection(mechanism="local", theta=10),
            "publishes cells exactly, so that values on two sides of a border",
        ),
        (DesensitizeSection(mechanism="local"), "mechanism local needs `theta`"),
    ],
)
def test_keys_that_do_not_go_together_are_refused_by_their_place(section: DesensitizeSection, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        section.mechanisms(SCHEMA)


def test_a_column_may_state_its_budget_in_another_way_than_all() -> None:
    section = DesensitizeSection(epsilon=0.3, columns={"age": {"odds": {"within": 10, "at_most": 2}}})
    (found,) = section.mechanisms(SCHEMA)
    assert found.settings.domain_size == 100
    assert math.exp(found.loss(found.points(10))) == pytest.approx(2.0)
    (old,) = DesensitizeSection(epsilon=0.3).mechanisms(SCHEMA)
    assert (old.settings.epsilon, old.settings.domain_size) == (0.3, 1000)


def test_unordered_categories_have_no_difference_to_state() -> None:
    schema = TableSchema(columns=(ColumnSchema(name="age", kind=Kind.UNORDERED, categories=("a", "b")),))
    with pytest.raises(ConfigError, match=r"columns\.age: unordered categories have no distance"):
        of_column(cost=1.0, per=1).mechanisms(schema)


@pytest.mark.parametrize(
    ("own", "loses"),
    [
        ({"whole_range": 1}, 1),
        ({"whole_range": 9}, 5),
        ({"whole_range": 1, "category_epsilon": 4}, 4),
        ({}, 5),
        ({"epsilon": 1}, 5),
    ],
)
def test_categories_lose_no_more_than_is_stated_for_their_column(own: dict[str, float], loses: float) -> None:
    """A budget of all categories must not raise what one column states for any two of its values."""
    schema = TableSchema(columns=(ColumnSchema(name="age", kind=Kind.UNORDERED, categories=("a", "b")),))
    (found,) = DesensitizeSection(category_epsilon=5, columns={"age": own}).mechanisms(schema)
    assert found.guarantee().domain_loss == loses


def test_without_a_budget_no_range_loses_more_than_8() -> None:
    (found,) = DesensitizeSection().mechanisms(SCHEMA)
    assert found.guarantee().domain_loss == pytest.approx(8)
    assert found.guarantee().domain_loss <= 8


@pytest.mark.parametrize("given", [{"domain_size": MAX_POINTS + 1}, {"epsilon": 0}, {"alpha": 0}, {"theta": 0}])
def test_a_number_out_of_its_range_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        DesensitizeSection(**given)


def test_budgets_that_protect_nothing_are_found_in_common_and_own_settings() -> None:
    assert excessive(DesensitizeSection().budgets()) == []
    assert [found.words for found in excessive(of_column(epsilon=37.0).budgets())] == [
        "desensitize.columns.age.epsilon is 37"
    ]
    assert excessive(DesensitizeSection(category_epsilon=40).budgets())[0].words == "desensitize.category_epsilon is 40"


TWO = TableSchema(columns=(*SCHEMA.columns, ColumnSchema(name="spend", lower=0, upper=9)))


def test_columns_are_left_out_and_may_go_by_their_number() -> None:
    (found,) = DesensitizeSection(leave_out=("column 0",), columns={"column 1": {"whole_range": 2}}).mechanisms(TWO)
    assert (found.schema.name, round(found.guarantee().domain_loss, 9)) == ("spend", 2)
    # A column of such a name is meant itself.
    named = TableSchema(columns=(ColumnSchema(name="column 1", lower=0, upper=9), *SCHEMA.columns))
    assert [one.schema.name for one in DesensitizeSection(leave_out=("column 1",)).mechanisms(named)] == ["age"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"leave_out": ["age", "spend"]}, "leave_out names every column"),
        ({"leave_out": ["column 2"]}, "leave_out names columns that the schema lacks: column 2"),
        ({"leave_out": ["age", "column 0"]}, "leave_out names columns twice: age"),
        ({"columns": {"age": {}, "column 0": {}}}, "columns names columns twice: age"),
    ],
)
def test_columns_that_are_not_there_or_named_twice_are_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        DesensitizeSection(**given).mechanisms(TWO)
