"""The `reader` section: marks that could be mixed up are refused, dates are whole units, and a draft is no schema."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from opboost.errors import SchemaError
from opboost.table_format import OTHER
from parties.config.reader_section import (
    TODO,
    TRUTH,
    ReaderSection,
    ReadingSection,
    check_complete,
    described_column,
    is_open,
)


@pytest.mark.parametrize(
    "given",
    [
        {"sep": "ab"},
        {"sep": "a"},
        {"sep": '"'},
        {"sep": "\u00a6"},
        {"encoding": "utf-99"},
        {"encoding": "rot13"},
        {"decimal": ",", "thousands": ","},
        {"true_values": ["Y"], "false_values": ["y"]},
        {"true_values": ["1"], "false_values": ["0", " 1.0"]},
        {"currency": ["-"]},
        {"currency": ["\u20ac", " + "]},
        {"currency": ["."]},
        {"currency": ["'"], "thousands": "'"},
        {"currency": ["m2"]},
        {"na_values": [True]},
    ],
)
def test_marks_that_mean_nothing_or_two_things_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ReaderSection(**given)


def test_a_tab_has_a_name_an_encoding_one_spelling_and_one_text_is_a_list() -> None:
    found = ReaderSection(sep="tab", encoding="UTF8", na_values="-", currency=["€", ".-"])
    assert (found.sep, found.encoding, found.na_values, found.currency) == ("\t", "utf-8", ("-",), ("€", ".-"))
    assert ReaderSection(na_values=["-", -999, 1.5]).na_values == ("-", "-999", "1.5")


def test_labels_may_be_words_of_truth() -> None:
    found = ReadingSection(positive=True, missing_label="drop").format({})
    assert "true" in found.positive
    assert found.drops_unlabelled
    with pytest.raises(ValidationError, match="`negative` goes with `positive`"):
        ReadingSection(negative="no")
    for both in ({"positive": ["bad", "No "], "negative": ["good", "no"]}, {"positive": 1, "negative": "1.0"}):
        with pytest.raises(ValidationError, match=r"(no|1) stands under `positive` and under `negative`"):
            ReadingSection(**both)
    with pytest.raises(ValidationError, match="stands under `positive` and under `negative`"):
        ReadingSection(positive=True, negative=["no", "Y"])
    assert ReadingSection(positive=True, negative=False).format({}).negative[0] == "false"


@pytest.mark.parametrize(("unit", "upper"), [("day", 1), ("hour", 24), ("second", 86400)])
def test_bounds_of_dates_are_whole_units_since_1970(unit: str, upper: int) -> None:
    column, form = described_column("d", {"kind": "date", "unit": unit, "lower": "1970-01-01", "upper": "1970-01-02"})
    assert column.bounds == (0, upper)
    assert form.unit_s * upper == 86400


@pytest.mark.parametrize(
    ("described", "words"),
    [
        ({"kind": "date", "lower": "soon", "upper": "later"}, "must be a date such as 2024-05-31"),
        ({"kind": "date", "lower": -999, "upper": "2024-01-01"}, "must be a date such as 2024-05-31"),
        ({"kind": "date", "lower": "-999", "upper": "2024-01-01"}, "must be a date such as 2024-05-31"),
        ({"kind": "date", "lower": "0000-01-01", "upper": "2024-01-01"}, "must be a date such as 2024-05-31"),
        ({"kind": "date", "unit": "year", "lower": "1970-01-01", "upper": "1971-01-01"}, "unit must be one of"),
        ({"kind": "date", "unit": ["day"], "lower": "1970-01-01", "upper": "1971-01-01"}, "unit must be one of"),
        ({"kind": "date", "format": "dd", "lower": "1970-01-01", "upper": "1971-01-01"}, "format must be a pattern"),
        ({"kind": "boolean", "categories": ["a", "b"]}, "has the categories false and true"),
        ({"kind": "ordered", "categories": ["a", "b"], "other": True}, "at its place among the categories"),
        ({"kind": "unordered", "categories": ["a", "b"], "other": "yes"}, "other must be true or false"),
        ({"kind": "unordered", "categories": ["a", "", "b"]}, "empty text is an empty cell; say `missing: category`"),
    ],
)
def test_a_description_that_cannot_be_meant_is_refused_by_column(described: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaError, match=f"column 'd'.*{words}"):
        described_column("d", described)


def test_other_categories_have_one_of_their_own_and_truth_has_two() -> None:
    column, form = described_column("d", {"kind": "unordered", "categories": ["a", "b"], "other": True})
    assert column.categories == ("a", "b", OTHER)
    assert form.has_other
    assert described_column("d", {"kind": "boolean"})[0].categories == TRUTH


def test_a_draft_is_no_schema() -> None:
    assert is_open(f"{TODO}: lowest age")
    assert not is_open(3)
    check_complete({"age": {"lower": 0}})
    with pytest.raises(SchemaError, match=f"columns age have a {TODO}"):
        check_complete({"age": {"lower": f"{TODO}"}, "town": {"kind": "unordered"}})
    check_complete({"age": {"lower": 0}}, {"decimal": ","})
    with pytest.raises(SchemaError, match=f"`reader` has a {TODO} under decimal, thousands"):
        check_complete({"age": {"lower": 0}}, {"decimal": f"{TODO}: . or ,", "sep": ";", "thousands": TODO})
    check_complete({"age": {"lower": 0}}, None, "sick")
    with pytest.raises(SchemaError, match=f"`positive` has a {TODO}: write down the label that means 1"):
        check_complete({"age": {"lower": 0}}, None, f"{TODO}: sick or well")
