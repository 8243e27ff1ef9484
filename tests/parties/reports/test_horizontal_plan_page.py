"""Page of a horizontal plan: odds in words, marks at the shares that count; the coordinator's may be shown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from parties.config.record_runs import read_record_run
from parties.reports.horizontal_plan_facts import RecordPlan, record_plan
from parties.reports.horizontal_plan_page import record_plan_page
from parties.reports.page import to_markdown
from parties.reports.sentences import HAS_RELEASED


@pytest.fixture
def plan(hospitals: Any) -> RecordPlan:
    return record_plan(hospitals.write("hub"))


def test_a_coordinators_plan_may_be_shown_and_a_workers_is_its_own(plan: RecordPlan, hospitals: Any) -> None:
    assert "may be shown to everybody" in record_plan_page(plan).lead
    assert "it is for north alone" in record_plan_page(record_plan(hospitals.write("north"))).lead


def test_a_worker_that_has_answered_already_is_told_so(hospitals: Any) -> None:
    path = hospitals.write("north")
    folder = read_record_run(path).run_folder
    assert record_plan(path).warnings == ()
    folder.mkdir(parents=True)
    (folder / "meta.json").write_text('{"released": true}')
    plan = record_plan(path)
    assert plan.warnings == (HAS_RELEASED,)
    assert HAS_RELEASED[1:] in to_markdown(record_plan_page(plan))
    assert "nothing was charged or sent for it" in record_plan_page(plan).lead


def test_the_promise_is_in_odds_and_the_agreed_budget_is_marked(plan: RecordPlan) -> None:
    text = to_markdown(record_plan_page(plan))
    assert "with odds at most" in text
    assert "(agreed)" in text
    assert "(counted on, and fewest that are summed)" in text


def test_sections_without_content_are_left_out(plan: RecordPlan) -> None:
    titles = [s.heading for s in record_plan_page(plan).sections]
    assert {"Noise", "Rounds and bytes"} <= set(titles)
    bare = [s.heading for s in record_plan_page(replace(plan, noises=(), shares=(), traffic=None)).sections]
    assert set(titles) - set(bare) == {"Noise", "Rounds and bytes"}


def test_more_workers_than_are_counted_on_have_marks_of_their_own(plan: RecordPlan) -> None:
    settings = {**plan.settings, "honest": 1}
    text = to_markdown(record_plan_page(replace(plan, settings=settings)))
    assert "1 (counted on)" in text
    assert "2 (fewest that are summed)" in text
