"""Text of a schema file in the making: YAML that says what the draft does, with remarks and open bounds."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from parties.config.reader_section import TODO
from parties.onboarding.schema_text import LABELS, LISTED, MARKS, Draft, flow


@pytest.mark.parametrize(
    "value", [1, "1", 0.5, None, True, "no", "a: b # c", ["x", "1:30"], {"lower": 0, "upper": "é"}]
)
def test_a_value_stands_on_one_line_and_reads_as_itself(value: Any) -> None:
    assert "\n" not in flow(value)
    assert yaml.safe_load(flow(value)) == value


def test_the_file_says_what_the_draft_does_and_remarks_are_comments() -> None:
    draft = Draft("id", "bought", keys={"positive": "yes"}, remark="  # the rarer of the two", ignore=["note: #1"])
    draft.columns = {"age": {"kind": "numeric", "lower": 0, "upper": 120}, "spend": {"lower": TODO, "upper": TODO}}
    draft.notes = {"age": "proposed by the name: check it", "note: #1": "a single value"}
    text = draft.text()
    assert yaml.safe_load(text) == {
        "id": "id",
        "label": "bought",
        "positive": "yes",
        "ignore": ["note: #1"],
        "columns": draft.columns,
    }
    for line in ("positive: 'yes'  # the rarer of the two", "# proposed by the name: check it", "# a single value"):
        assert line in text
    assert draft.open_bounds == ["spend"]
    assert LISTED not in text


def test_marks_that_are_open_come_with_an_explanation() -> None:
    draft = Draft("id", None, keys={"reader": {"sep": ";"}}, columns={"age": {"lower": 0, "upper": 120}})
    assert (draft.open_marks, MARKS in draft.text()) == ([], False)
    draft.keys["reader"] |= {"decimal": f"{TODO}: . or ,", "thousands": f"{TODO}: , or none"}
    assert (draft.open_marks, MARKS in draft.text()) == (["decimal", "thousands"], True)
    assert yaml.safe_load(draft.text())["reader"] == draft.keys["reader"]


def test_a_label_that_is_open_comes_with_an_explanation() -> None:
    draft = Draft("id", "y", keys={"positive": "sick"}, columns={"age": {"lower": 0, "upper": 120}})
    assert (draft.is_label_open, LABELS in draft.text()) == (False, False)
    draft.keys["positive"] = f"{TODO}: sick or well"
    assert (draft.is_label_open, LABELS in draft.text()) == (True, True)


def test_found_categories_come_with_a_warning() -> None:
    draft = Draft("id", None, columns={"plan": {"kind": "unordered", "categories": ["a", "b"]}})
    assert LISTED in draft.text()
    assert "label" not in yaml.safe_load(draft.text())
