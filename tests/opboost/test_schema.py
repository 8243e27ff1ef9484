"""What the public description of a table refuses, and how a schema file's description is read."""

from __future__ import annotations

import math

import pandas as pd
import pytest

from opboost.errors import SchemaError
from opboost.preprocess import encode
from opboost.privacy.domain import IntegerDomain
from opboost.schema import NARROWEST, WIDEST, ColumnSchema, Kind, Missing, Outside, TableSchema, column_from_mapping

AGE = ColumnSchema(name="age", lower=0, upper=120)
SIZES = ("small", "medium", "large")


def test_the_bounds_of_a_numeric_column_are_floats_in_its_own_unit():
    assert AGE.bounds == (0.0, 120.0)
    assert AGE.kind is Kind.NUMERIC
    assert AGE.missing is Missing.REFUSE
    assert AGE.outside is Outside.CLIP


@pytest.mark.parametrize("kind", [Kind.ORDERED, Kind.UNORDERED])
def test_the_bounds_of_a_categorical_column_are_positions_in_its_list(kind):
    column = ColumnSchema(name="size", kind=kind, categories=SIZES, missing=Missing.IMPUTE, fill="medium")
    assert column.bounds == (0.0, 2.0)
    assert column.fill_value == 1.0


def test_the_fill_of_a_numeric_column_is_a_float():
    assert ColumnSchema(name="age", lower=0, upper=120, missing=Missing.IMPUTE, fill=40).fill_value == 40.0


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({}, "needs public bounds"),
        ({"lower": 0}, "needs public bounds"),
        ({"upper": 0}, "needs public bounds"),
        ({"lower": 1, "upper": 1}, "lower < upper"),
        ({"lower": 2, "upper": 1}, "lower < upper"),
        ({"lower": math.nan, "upper": 1}, "finite"),
        ({"lower": 0, "upper": math.inf}, "finite"),
        ({"lower": 0, "upper": 1, "categories": SIZES}, "cannot have categories"),
        ({"lower": 0, "upper": 1, "step": 0}, r"step must lie in \(0, 1\]"),
        ({"lower": 0, "upper": 1, "step": -1}, "step must lie in"),
        ({"lower": 0, "upper": 1, "step": 2}, "step must lie in"),
        ({"lower": 0, "upper": 1, "step": math.nan}, "step must lie in"),
        ({"lower": 0, "upper": 1, "fill": 0.5}, "go together"),
        ({"lower": 0, "upper": 1, "missing": Missing.IMPUTE}, "go together"),
        ({"lower": 0, "upper": 1, "missing": Missing.CATEGORY, "fill": 0.5}, "go together"),
        ({"lower": 0, "upper": 1, "missing": Missing.IMPUTE, "fill": 2}, r"fill must be a number within \[0, 1\]"),
        ({"lower": 0, "upper": 1, "missing": Missing.IMPUTE, "fill": "a"}, "fill must be a number"),
        ({"lower": 0, "upper": 1, "missing": Missing.IMPUTE, "fill": math.nan}, "fill must be a number"),
    ],
)
def test_a_numeric_column_that_contradicts_itself_is_refused_by_name(description, words):
    with pytest.raises(SchemaError, match=rf"column 'age'.*{words}"):
        ColumnSchema(name="age", **description)


@pytest.mark.parametrize("kind", [Kind.ORDERED, Kind.UNORDERED])
@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({}, "at least two distinct"),
        ({"categories": ("one",)}, "at least two distinct"),
        ({"categories": ("one", "two", "one")}, "found 3, 2 of them distinct"),
        ({"categories": SIZES, "lower": 0}, "cannot have bounds"),
        ({"categories": SIZES, "upper": 2}, "cannot have bounds"),
        ({"categories": SIZES, "step": 1}, "cannot have bounds or a step"),
        ({"categories": SIZES, "missing": Missing.IMPUTE}, "go together"),
        ({"categories": SIZES, "missing": Missing.IMPUTE, "fill": "huge"}, "not one of its categories"),
    ],
)
def test_a_categorical_column_that_contradicts_itself_is_refused_by_name(kind, description, words):
    with pytest.raises(SchemaError, match=rf"column 'size'.*{words}"):
        ColumnSchema(name="size", kind=kind, **description)


@pytest.mark.parametrize(
    ("column", "step"),
    [
        (AGE, 1.0),
        (ColumnSchema(name="age", lower=0, upper=120, step=5), 5.0),
        (ColumnSchema(name="age", lower=0.5, upper=120), None),
        (ColumnSchema(name="age", lower=0, upper=9), None),
        (ColumnSchema(name="age", lower=0, upper=9, step=1), 1.0),
        (ColumnSchema(name="size", kind=Kind.ORDERED, categories=SIZES), 1.0),
        (ColumnSchema(name="size", kind=Kind.UNORDERED, categories=SIZES), None),
    ],
)
def test_a_column_knows_its_own_step_or_that_it_knows_none(column, step):
    assert column.own_step == step


@pytest.mark.parametrize(
    ("lower", "upper"),
    [(0, 9e-291), (-6e299, 6e299), (-1.7e308, 1.7e308), (10**400, 10**400 + 1), (0, 10**400), (1.0, 1.0), (2, 1)],
)
def test_bounds_without_a_width_to_compute_with_are_refused_in_short(lower, upper):
    with pytest.raises(
        SchemaError, match="bounds must be finite with lower < upper, 1e-290 to 1e\\+300 apart"
    ) as error:
        ColumnSchema(name="x", lower=lower, upper=upper)
    assert len(str(error.value)) < 300


@pytest.mark.parametrize("width", [NARROWEST, WIDEST])
def test_every_other_width_encodes_and_decodes(width):
    column = ColumnSchema(name="x", lower=0, upper=width)
    domain = IntegerDomain(1, 1000)
    codes = encode(pd.Series([0.0, width / 2, width]), column, domain=domain).codes
    assert codes.tolist() in ([1, 500, 1000], [1, 501, 1000])


def test_a_table_lists_its_columns_in_order():
    size = ColumnSchema(name="size", kind=Kind.ORDERED, categories=SIZES)
    assert TableSchema(columns=(size, AGE)).names == ("size", "age")


@pytest.mark.parametrize(
    ("description", "words"),
    [
        ({"columns": (AGE, AGE)}, "more than once in the schema: age"),
        ({"columns": (AGE,), "id": "age"}, "'age' cannot be both the id and a feature"),
        ({"columns": (AGE,), "label": "age"}, "'age' cannot be both the label and a feature"),
        ({"columns": (AGE,), "id": "key", "label": "key"}, "'key' cannot be both the id and the label"),
    ],
)
def test_a_column_has_one_role_only(description, words):
    with pytest.raises(SchemaError, match=words):
        TableSchema(**description)


def test_a_description_from_a_file_becomes_a_column():
    read = column_from_mapping("size", {"kind": "ordered", "categories": ["a", "b"], "missing": "impute", "fill": "b"})
    written = ColumnSchema(name="size", kind=Kind.ORDERED, categories=("a", "b"), missing=Missing.IMPUTE, fill="b")
    assert read == written


def test_a_numeric_description_from_a_file_is_the_default_kind():
    read = column_from_mapping("age", {"lower": 0, "upper": 120, "outside": "refuse"})
    assert read == ColumnSchema(name="age", lower=0, upper=120, outside=Outside.REFUSE)


def test_categories_that_a_file_gives_as_numbers_are_read_as_text():
    read = column_from_mapping("code", {"kind": "unordered", "categories": [1, 2], "missing": "impute", "fill": 2})
    assert read.categories == ("1", "2")
    assert read.fill_value == 1.0


@pytest.mark.parametrize(
    ("description", "words"),
    [
        (
            {"low": 0, "upper": 1},
            "unknown keys low; allowed are categories, fill, kind, lower, missing, outside, step, upper",
        ),
        ({"kind": "date"}, "kind is 'date'; allowed are numeric, ordered, unordered"),
        ({"lower": 0, "upper": 1, "missing": "drop"}, "missing is 'drop'; allowed are refuse, category, impute"),
        ({"lower": 0, "upper": 1, "outside": "drop"}, "outside is 'drop'; allowed are clip, refuse"),
        ({"lower": "0", "upper": 1}, "lower must be a number"),
        ({"lower": 0, "upper": 1, "step": "one"}, "step must be a number"),
        ({"lower": 0, "upper": True}, "upper must be a number"),
        ({"kind": "ordered", "categories": "ab"}, "categories must be a list; found str"),
        ({"kind": "ordered", "categories": {"a": 1}}, "categories must be a list; found dict"),
        ({"lower": 0}, "needs public bounds"),
    ],
)
def test_a_description_that_is_not_allowed_is_refused_with_what_is(description, words):
    with pytest.raises(SchemaError, match=f"column 'age'.*{words}"):
        column_from_mapping("age", description)


def test_a_kind_given_as_text_is_that_kind_or_refused():
    assert ColumnSchema(name="city", kind="unordered", categories=("a", "b")).kind is Kind.UNORDERED
    assert ColumnSchema(name="age", lower=0, upper=1, missing="category").missing is Missing.CATEGORY
    with pytest.raises(SchemaError, match="kind is 'banana'; allowed are numeric, ordered, unordered"):
        ColumnSchema(name="city", kind="banana", categories=("a", "b"))


def test_bounds_whose_difference_overflows_are_refused():
    with pytest.raises(SchemaError, match="finite with lower < upper"):
        ColumnSchema(name="age", lower=-1.7e308, upper=1.7e308)
