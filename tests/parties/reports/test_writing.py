"""Reports: the run file's role and state choose which, and all forms are of the same facts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from parties.errors import ConfigError, RunFolderError
from parties.reports.page import FigureGrid, Page, PageSection
from parties.reports.plan.choices import MechanismGrid
from parties.reports.writing import FORMAT, Report, finished_report, report_of
from tests.support.modes import exposed
from tests.support.sites import Sites

PAGE = Page(title="t", lead="l", sections=(PageSection("s", (FigureGrid("g", ("a",), (("1",),)),)),))


def test_both_files_are_written_for_their_owner_alone_and_replaced(tmp_path: Path) -> None:
    for value in (1, 2):
        Report({"n": value}, PAGE, tmp_path / "new" / "report.html").write()
    assert json.loads((tmp_path / "new" / "report.json").read_text()) == {"n": 2}
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"report.html", "report.json"}
    assert exposed(tmp_path / "new") == set()


@pytest.mark.parametrize(("form", "start"), [("html", "<!doctype html>"), ("json", "{"), ("csv", ""), ("md", "#")])
def test_every_form_can_be_had(form: str, start: str) -> None:
    assert Report({"n": 1}, PAGE, Path("x")).text(form).startswith(start)
    with pytest.raises(ValueError, match="Out of range"):
        Report({"n": float("nan")}, PAGE, Path("x")).text("json")


def test_a_finished_run_has_its_report_and_its_plan_only_where_asked_for(finished: Any) -> None:
    path = finished.shop.write()
    assert report_of(path).document["kind"] == "run"
    assert report_of(path, before=True).document["kind"] == "plan"
    assert report_of(path).document["format"] == FORMAT
    with pytest.raises(ConfigError, match="ask for the plan with --before"):
        report_of(path, wanted_order=(0.8,))


def test_an_active_party_has_nothing_to_report_before_the_end(sites: Sites) -> None:
    with pytest.raises(ConfigError, match="an active party releases no columns, so it has no plan"):
        report_of(sites.bank.write())
    with pytest.raises(RunFolderError):
        finished_report(sites.bank.path / "run.yaml")


def test_of_a_horizontal_plan_other_budgets_alone_are_compared(hospitals: Any) -> None:
    path = hospitals.write("hub")
    found = report_of(path, grid=MechanismGrid(epsilons=(1.0,)))
    assert found.document["kind"] == "record plan"
    assert found.home.name == "spring.plan.html"
    with pytest.raises(ConfigError, match="there is --epsilon alone"):
        report_of(path, wanted_order=(0.9,))
