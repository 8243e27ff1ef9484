"""The `training` section: what everybody agrees on, and how it travels."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from pydantic import ValidationError

from opboost.schema import ColumnSchema, TableSchema
from parties.config.training_section import TaskSection, TrainingSection, flat

GIVEN: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "workers": 3, "threshold": 2, "honest": 2}


def schema(upper: float = 1.0) -> TableSchema:
    return TableSchema(columns=(ColumnSchema(name="age", lower=0, upper=upper),), id="id", label="y")


@pytest.mark.parametrize("n_workers", range(2, 8))
@pytest.mark.parametrize("threshold", range(2, 9))
def test_every_sum_is_over_more_than_half_and_at_most_all(n_workers: int, threshold: int) -> None:
    try:
        TrainingSection(**{**GIVEN, "workers": n_workers, "threshold": threshold, "honest": 1})
        is_taken = True
    except ValidationError:
        is_taken = False
    assert is_taken is (n_workers / 2 < threshold <= n_workers)


def test_settings_of_the_other_recipe_do_not_travel() -> None:
    found = TrainingSection(**GIVEN).terms(schema())
    assert not [name for name in found if name.startswith("federated.")]
    assert found["sgbdt.max_depth"] == TrainingSection(**GIVEN).sgbdt.max_depth
    json.dumps(found)
    other = TrainingSection(**{**GIVEN, "recipe": "federated"}).terms(schema())
    assert not [name for name in other if name.startswith("sgbdt.")]


def test_terms_tell_columns_apart_by_a_digest() -> None:
    first, same, other = (TrainingSection(**GIVEN).terms(one)["schema"] for one in (schema(), schema(), schema(2.0)))
    assert first == same != other


def test_an_infinite_epsilon_travels_as_a_number() -> None:
    assert TaskSection(epsilon=math.inf).agreed()["epsilon"] == math.inf


@pytest.mark.parametrize(
    ("objective", "bounds", "is_taken"),
    [
        ("binary:logistic", None, True),
        ("binary:logistic", (0, 1), False),
        ("reg:squarederror", None, False),
        ("reg:squarederror", (2, 6), True),
    ],
)
def test_numbers_have_public_bounds_and_classes_have_none(objective: Any, bounds: Any, is_taken: bool) -> None:
    if not is_taken:
        with pytest.raises(ValidationError, match="public `label_bounds` go with"):
            TaskSection(objective=objective, label_bounds=bounds, epsilon=1.0)
        return
    task = TaskSection(objective=objective, label_bounds=bounds, epsilon=1.0).task(("age",), None)  # type: ignore[arg-type]
    assert (task.centre, task.spread) == ((0.0, 1.0) if bounds is None else (4.0, 2.0))


def test_sections_are_flattened_under_dotted_keys() -> None:
    assert flat({"a": 1, "b": {"c": 2, "d": [3]}}) == {"a": 1, "b.c": 2, "b.d": [3]}
