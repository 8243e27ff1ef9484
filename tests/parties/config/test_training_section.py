"""The `training` section: what everybody agrees on, and how it travels."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from opboost.horizontal.public_task import PublicTask
from opboost.horizontal.rows.public_grid import PublicGrid
from opboost.schema import ColumnSchema, TableSchema
from parties.config.chain import ChainSection
from parties.config.reader_section import LABEL_TERM, ReadingSection
from parties.config.training_section import RecommendedSection, TaskSection, TrainingSection, flat

SHARED: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-6, "workers": 3, "threshold": 2, "honest": 2}
GIVEN: dict[str, Any] = {**SHARED, "recipe": "sgbdt"}


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
    assert not [name for name in other if name.startswith(("sgbdt.", "recommended."))]


@pytest.mark.parametrize(
    ("sections", "recipe"),
    [
        ({"recommended": {"records": 9}}, "recommended"),
        ({"sgbdt": {}}, "sgbdt"),
        ({"federated": {}}, "federated"),
        ({"sgbdt": {"max_depth": 3}, "recommended": None, "federated": None}, "sgbdt"),
        ({"federated": {}, "recipe": "sgbdt"}, "a section `federated`, but the recipe is sgbdt"),
        ({"sgbdt": {}, "federated": {}}, "a section `federated`, but the recipe is recommended"),
        ({"mode": "paper", "honest": None}, "`mode: paper` of this recipe .* name sgbdt"),
        ({}, "needs `recommended: {records: ...}`.* no recipe meant `recipe: sgbdt` in earlier builds"),
    ],
)
def test_a_recipe_that_is_not_named_is_that_of_its_section_or_recommended(
    sections: dict[str, Any], recipe: str
) -> None:
    if " " not in recipe:
        assert TrainingSection(**SHARED, **sections).recipe == recipe
        return
    with pytest.raises(ValidationError, match=recipe):
        TrainingSection(**{**SHARED, **sections})


SEVERAL: dict[str, Any] = {**GIVEN, "recipe": "recommended", "recommended": {"records": 9}}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"recommended": {"max_depth": 3}}, "needs `recommended: {records: ...}`"),
        ({"sgbdt": {}}, "a section `sgbdt`, but the recipe is recommended"),
        ({"objective": "multi:softprob"}, "`classes`, how many there are, goes with"),
        ({"classes": 3}, "`classes`, how many there are, goes with"),
        ({"recipe": "sgbdt", "objective": "multi:softprob", "classes": 3}, "a section `recommended`"),
        ({"mode": "paper", "honest": None}, "`mode: paper` of this recipe"),
    ],
)
def test_the_recommended_recipe_names_its_records_and_its_classes(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        TrainingSection(**{**SEVERAL, **changes})
    with pytest.raises(ValidationError, match="several classes need"):
        TrainingSection(**GIVEN, objective="multi:softprob", classes=3)
    assert TrainingSection(**SEVERAL).n_classes == 2
    several = TrainingSection(**SEVERAL, objective="multi:softprob", classes=3)
    assert (several.n_classes, several.terms(schema())["recommended.records"]) == (3, 9)


def test_terms_tell_columns_apart_by_a_digest() -> None:
    first, same, other = (TrainingSection(**GIVEN).terms(one)["schema"] for one in (schema(), schema(), schema(2.0)))
    assert first == same != other


def terms_of(section: TaskSection, **reading: Any) -> dict[str, Any]:
    return section.terms(replace(schema(), format=ReadingSection(**reading).format({})))


@pytest.mark.parametrize("section", [TrainingSection(**GIVEN), ChainSection(epsilon=1.0, order=("w0", "w1"))])
def test_terms_tell_by_a_digest_which_labels_mean_1_and_0(section: TaskSection) -> None:
    found = terms_of(section, positive="Very  ill", negative="well")
    assert len(found[LABEL_TERM]) == 64
    assert "ill" not in json.dumps(found)
    assert found == terms_of(section, positive=["very ill", "VERY ILL"], negative=["well"])
    opposite, open_end = {"positive": "well", "negative": "very ill"}, {"positive": "very ill"}
    for labels in (opposite, open_end, {"positive": ["very ill", "1"], "negative": "well"}):
        other = terms_of(section, **labels)
        assert {name for name in found if found[name] != other[name]} == {LABEL_TERM}
    assert terms_of(section, positive=True) != terms_of(section, positive=False)


def test_of_labels_that_are_numbers_no_term_tells_anything() -> None:
    section = TrainingSection(**GIVEN)
    assert LABEL_TERM not in terms_of(section)
    own_marks = {"reader": {"decimal": ",", "na_values": ["?"]}, "missing_label": "drop"}
    assert terms_of(section) == terms_of(section, **own_marks)
    assert terms_of(section, positive="ill") == terms_of(section, positive="ill", **own_marks)


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


def sizes(epsilon: float, **given: Any) -> tuple[int, int]:
    section = RecommendedSection(**given)
    task = PublicTask(("a",), PublicGrid([(0, 1)], section.max_cells), 0.0, 1.0, epsilon, True, True)
    return section.recipe(task, n_classes=2, delta=1e-6, n_honest=2, are_owners_known=True).sizes


def test_sizes_grow_with_records_and_budget_unless_they_are_given() -> None:
    assert sizes(1.0, records=500) < sizes(1.0, records=5_000) < sizes(8.0, records=5_000)
    assert sizes(1.0, records=500, n_estimators=7, max_depth=5) == (7, 5)


@pytest.mark.parametrize("wrong", [{"records": 0}, {"max_cells": 15}, {"n_estimators": 0}, {"max_depth": 13}])
def test_impossible_sizes_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValidationError, match=next(iter(wrong))):
        RecommendedSection(**wrong)
