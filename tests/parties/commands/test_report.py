"""Options of `opboost report`: unknown names are refused with the known ones, and a report goes where it is told."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from opboost.privacy.laws import Law
from parties.commands.report import asked_grid, deliver
from parties.errors import ConfigError
from parties.reports.page import FigureGrid, Page, PageSection
from parties.reports.writing import Report

PAGE = Page(title="t", lead="l", sections=(PageSection("s", (FigureGrid("grid", ("a",), (("1",),)),)),))


def test_without_options_nothing_is_compared() -> None:
    assert asked_grid(None, None, None, None, None) is None
    assert asked_grid([], [], [], [], []) is None


def test_options_are_the_grid() -> None:
    law = next(iter(Law))
    grid = asked_grid(["local"], [law.value], [0.5], [3], None)
    assert grid is not None
    assert (grid.mechanisms, grid.laws, grid.epsilons, grid.thetas) == (("local",), (law,), (0.5,), (3,))


@pytest.mark.parametrize(
    ("mechanisms", "laws", "words"),
    [
        (["global", "best"], None, "--mechanism must be one of .*; found best"),
        (None, ["x"], "--law must be one of .* x"),
    ],
)
def test_an_unknown_name_is_refused_with_those_there_are(
    mechanisms: list[str] | None, laws: list[str] | None, words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        asked_grid(mechanisms, laws, None, None, None)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        (([0.5, math.nan], None, None), "--epsilon must be positive and finite; found nan"),
        (([-1.0], None, None), "--epsilon .* found -1"),
        ((None, [0], None), "--theta must be positive and finite; found 0"),
        ((None, None, [math.inf]), "--alpha must be positive and finite; found inf"),
    ],
)
def test_a_number_that_no_mechanism_can_have_is_refused(numbers: tuple[Any, Any, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        asked_grid(["global"], None, *numbers)


@pytest.mark.parametrize("form", ["html", "json", "csv", "md"])
@pytest.mark.parametrize("is_named", [False, True])
def test_html_writes_files_and_other_forms_print_unless_a_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], form: str, is_named: bool
) -> None:
    report = Report({"n": 1}, PAGE, tmp_path / "report.html")
    deliver(report, form, tmp_path / "out" if is_named else None)
    said = capsys.readouterr().out
    found = {path.name for path in tmp_path.iterdir()}
    if is_named:
        assert found == {"out"}
        assert (tmp_path / "out").read_text() == report.text(form)
        assert said == f"report: {tmp_path / 'out'}\n"
    elif form == "html":
        assert found == {"report.html", "report.json"}
        assert said.endswith(f"report: {report.home}\n")
    else:
        assert (found, said) == (set(), report.text(form))
