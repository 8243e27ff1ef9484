"""Page of a plan: it is for its party alone, names what is let out, and has a section per column."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parties.reports.choices import MechanismGrid
from parties.reports.page import to_markdown
from parties.reports.plan_facts import Plan, plan_of
from parties.reports.plan_page import MOST_CURVES, _loss_series, plan_page


@pytest.fixture(scope="module")
def plan(finished: Any) -> Plan:
    path: Path = finished.shop.write()
    return plan_of(path, MechanismGrid(), wanted_order=(0.9,))


def test_every_column_has_a_section_and_the_page_is_for_its_party_alone(plan: Plan) -> None:
    page = plan_page(plan)
    assert [s.heading for s in page.sections if s.heading.startswith("Column ")] == ["Column spend", "Column visits"]
    assert "it is for shop alone" in page.lead
    assert "nothing was drawn, charged or sent" in page.lead


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"opaque_names": False}, "Column names travel as they are"),
        ({"share_thresholds": True}, "thresholds go to bank"),
        ({"share_thresholds": False}, "are kept from bank"),
        ({"allow_routed": False}, "exact routing bits for new records are refused"),
        ({"allow_routed": True, "most_tests": 7}, "at most 7 tests, as was agreed on"),
        ({"redraws": False}, "The first draw of every record and column stays"),
    ],
)
def test_what_is_let_out_is_said_in_words(plan: Plan, change: dict[str, Any], words: str) -> None:
    assert words in to_markdown(plan_page(replace(plan, **change)))


def test_a_drawing_has_few_curves_and_each_once(plan: Plan) -> None:
    for column in plan.columns:
        series = _loss_series(column)
        assert len(series) <= MOST_CURVES
        assert len({one.ys for one in series}) == len(series)
