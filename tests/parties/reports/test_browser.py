"""Every report in a real browser: it fits the window, shows its figures, complains of nothing and fetches nothing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from parties.reports.figures import Axis, bars
from parties.reports.page import Figure, FigureGrid, Page, PageSection, Prose, VerdictRow, Verdicts, WhatIf, to_html
from parties.reports.plan.choices import BUDGETS
from parties.reports.sentences import Verdict
from parties.reports.writing import report_of

pytestmark = pytest.mark.browser

PHONE, DESK = 390, 1280

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIGURES = """[...document.querySelectorAll("figure")].map(figure => {
    const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
    const ink = Math.max(0, ...[...svg.querySelectorAll("g text")].map(text => text.getBoundingClientRect().width));
    return [box.width, box.height, ink, svg.querySelector("title").textContent.length,
            figure.querySelector("figcaption").textContent.length];
})"""
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
OPEN_ALL = 'document.querySelectorAll("details").forEach(one => one.open = true)'
DOUBLE_NAMES = """(() => {
    const names = [...document.querySelectorAll("[id]")].map(one => one.id);
    return names.filter((name, place) => names.indexOf(name) !== place);
})()"""


@pytest.fixture(scope="module")
def pages(finished: Any, treated: Any) -> dict[str, Path]:
    plans = [
        report_of(path, before=True) for path in (finished.shop.write(), treated.write("hub"), treated.write("west"))
    ]
    for plan in plans:
        plan.write()
    return {
        "plan": plans[0].home,
        "coordinator's plan": plans[1].home,
        "worker's plan": plans[2].home,
        "coordinator": treated.folder("hub") / "report.html",
        "worker": treated.folder("west") / "report.html",
        "active": finished.bank.run_folder / "report.html",
        "passive": finished.shop.run_folder / "report.html",
    }


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize(
    ("kind", "n_figures"),
    [
        ("plan", 4),
        ("active", 4),
        ("passive", 0),
        ("coordinator's plan", 4),
        ("worker's plan", 4),
        ("coordinator", 3),
        ("worker", 6),
    ],
)
def test_a_report_fits_any_window_and_shows_all_its_figures(
    browser: Any, pages: dict[str, Path], kind: str, n_figures: int, width: int
) -> None:
    browser.open(pages[kind], width=width)
    assert browser.ask("innerWidth") == width
    browser.ask(OPEN_ALL)
    assert browser.ask(OVERFLOW) <= 0
    figures = browser.ask(FIGURES)
    assert len(figures) == n_figures
    for drawn_width, height, ink, alt, caption in figures:
        assert 200 < drawn_width <= width
        assert height > 60
        assert ink > 0
        assert min(alt, caption) > 10
    assert browser.complaints == []
    assert browser.requests == [pages[kind].resolve().as_uri()]
    assert browser.ask(DOUBLE_NAMES) == []


def test_light_and_dark_differ_and_both_can_be_read(browser: Any, pages: dict[str, Path]) -> None:
    browser.open(pages["plan"], width=DESK)
    light = browser.ask(COLOURS)
    browser.open(pages["plan"], width=DESK, dark=True)
    dark = browser.ask(COLOURS)
    for paper, ink, is_dark in ((*light, False), (*dark, True)):
        brightness = [sum(int(part) for part in colour[4:-1].split(",")) for colour in (paper, ink)]
        assert (brightness[0] < brightness[1]) == is_dark
        assert abs(brightness[0] - brightness[1]) > 450
    axis = 'getComputedStyle(document.querySelector("figure svg g text")).fill'
    assert browser.ask(axis) == dark[1]


SETTING = """(([budget, mechanism, points, column]) => {
    const set = (name, value) => {
        const control = document.getElementById("w-" + name);
        control.value = value;
        control.dispatchEvent(new Event("input"));
    };
    set("column", column);
    set("points", points);
    set("mechanism", mechanism);
    set("budget", budget);
})"""
SHOWN = """({
    rows: [...document.querySelectorAll("#w-rows tr")].map(row => [...row.children].map(cell => cell.textContent)),
    curve: document.querySelector("#w-curves polyline:last-child").getAttribute("points"),
    yaml: document.getElementById("w-yaml").textContent,
    colours: [...document.querySelectorAll("#w-rows .grade")].map(one => getComputedStyle(one).backgroundColor),
    table: document.getElementById("what-if-table").checkVisibility(),
})"""


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_the_slider_shows_what_was_computed_and_the_setting_to_copy(
    browser: Any, pages: dict[str, Path], width: int, dark: bool
) -> None:
    plan = json.loads(pages["plan"].with_suffix(".json").read_text())
    columns = {column["promise"]["column"]: column["candidates"] for column in plan["columns"]}
    browser.open(pages["plan"], width=width, dark=dark)
    before = browser.ask(SHOWN)
    assert all("(run file)" in row[4] for row in before["rows"])
    assert before["yaml"] == "# as it stands in the run file"
    assert not before["table"]
    seen = []
    for asked in ((0, "global", 100), (3, "global", 20), (3, "adj", 100), (7, "adj", 100)):
        browser.ask(f"{SETTING}({json.dumps([*asked, ''])})")
        shown = browser.ask(SHOWN)
        copied = yaml.safe_load(shown["yaml"])["desensitize"]["columns"]
        for name, word, guess, order, _ in shown["rows"]:
            (one,) = (
                found
                for found in columns[name]
                if found["budget"] == BUDGETS[asked[0]]
                and (found["settings"]["mechanism"], found["settings"]["domain_size"]) == asked[1:]
            )
            assert {key: one["settings"].get(key, 3.0) for key in copied[name]} == copied[name]
            verdict = Verdict(**one["verdict"])
            assert (word, guess) == (verdict.word, "{}; {} without".format(*verdict.cases))
            assert order == f"{one['outlook']['kendall']:.3f}"
        seen.append((shown["rows"], shown["curve"], shown["colours"]))
    assert len({json.dumps(part) for part in seen}) == len({curve for _, curve, _ in seen}) == len(seen)
    # One column alone, and back.
    browser.ask('document.getElementById("w-reset").click()')
    assert browser.ask(SHOWN) == before
    browser.ask(f"{SETTING}({json.dumps([0, 'global', 100, 1])})")
    shown = browser.ask(SHOWN)
    assert ["(run file)" in row[4] for row in shown["rows"]] == [True, False]
    assert list(yaml.safe_load(shown["yaml"])["desensitize"]["columns"]) == [shown["rows"][1][0]]
    assert browser.ask(OVERFLOW) <= 0
    assert browser.complaints == []


def test_without_a_script_a_table_serves_and_no_other_script_runs(browser: Any, pages: dict[str, Path]) -> None:
    text = pages["plan"].read_text()
    other = pages["plan"].with_name("other.html")
    other.write_text(text.replace('"use strict";', '"use strict";document.title = "changed";'))
    browser.open(other, width=DESK)
    assert browser.ask("document.title") != "changed"
    assert any("Content Security Policy" in complaint for complaint in browser.complaints)
    assert browser.ask('document.getElementById("what-if-table").checkVisibility()')
    assert not browser.ask('document.getElementById("what-if").checkVisibility()')
    other.write_text(text.replace("</main>", "</main><script>document.title = 'changed'</script>"))
    browser.open(other, width=DESK)
    assert browser.ask("document.title") != "changed"


def test_a_plan_takes_one_sheet_of_paper_and_more_where_it_is_opened(browser: Any, pages: dict[str, Path]) -> None:
    browser.open(pages["plan"], width=DESK)
    assert browser.print().count(b"/Type /Page\n") == 1
    browser.ask(OPEN_ALL)
    assert browser.print().count(b"/Type /Page\n") > 4


HOSTILE = "</script></title><img src=x onerror=alert(1)>'\"`${alert(1)}{{7*7}}`<b>&amp;\u202e"


def test_a_name_does_nothing_on_a_page_but_stand_there(browser: Any, tmp_path: Path) -> None:
    shown = [0, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 0]
    column = {"name": HOSTILE, "points": 20, "chosen": shown, "options": {"global|20": [shown]}}
    data = {"columns": [column], "mechanisms": ["global"], "mechanism": "global", "points": [20], "curves": ["0,0 1,1"]}
    data |= {"budgets": [1], "said": [HOSTILE], "start": 0, "words": [HOSTILE], "ticks": [], "shares": []}
    grid = FigureGrid(HOSTILE, (HOSTILE, "AUC"), ((HOSTILE, HOSTILE),))
    row = VerdictRow(column=HOSTILE, grade=0, word="fair", guess=HOSTILE, example=HOSTILE, action=HOSTILE, strip=None)
    chart = bars([HOSTILE], {"before": [1]}, x=Axis(label=HOSTILE), y=Axis(label=HOSTILE), alt=HOSTILE)
    blocks = (WhatIf(data, grid), Verdicts(HOSTILE, (row,)), grid, Prose(HOSTILE), Figure(chart, HOSTILE))
    path = tmp_path / "page.html"
    path.write_text(to_html(Page(HOSTILE, HOSTILE, (PageSection(HOSTILE, blocks), PageSection("b", blocks[1:], True)))))
    browser.open(path, width=PHONE)
    browser.ask(f"{SETTING}({json.dumps([0, 'global', 20, ''])})")
    assert (
        browser.ask('[document.title, document.getElementById("w-yaml").textContent.split("\\n")[2]]') == [HOSTILE] * 2
    )
    assert browser.ask('document.querySelectorAll("img, b, main script:not([type])").length') == 0
    assert browser.complaints == []
    assert browser.requests == [path.resolve().as_uri()]


AXE = Path(os.environ.get("AXE_CORE", ".venv/axe/node_modules/axe-core/axe.min.js"))
# Contrast takes most of the time: the plan stands for all, which share its colours.
VIOLATIONS = """(contrast => axe.run(
    {exclude: ["svg"]}, {resultTypes: ["violations"], rules: {"color-contrast": {enabled: contrast}}},
).then(found => found.violations.filter(
    one => ["serious", "critical"].includes(one.impact)).map(one => [one.id, one.nodes[0].html])))"""


@pytest.mark.skipif(not AXE.exists(), reason=f"{AXE} is missing (make test installs axe-core where there is npm)")
def test_axe_finds_nothing_serious_and_finds_what_is(browser: Any, pages: dict[str, Path]) -> None:
    found = []
    for place, kind in enumerate(("plan", "passive", "active", "worker's plan", "worker")):
        browser.open(pages[kind], width=(PHONE, DESK)[place % 2], dark=place % 2 == 0)
        browser.ask(OPEN_ALL)
        browser.ask(AXE.read_text() + ";0")
        found += [(kind, *one) for one in browser.ask(f"{VIOLATIONS}({json.dumps(kind == 'plan')})")]
    assert found == []
    browser.ask("document.documentElement.removeAttribute('lang')")
    assert [name for name, _ in browser.ask(f"{VIOLATIONS}(false)")] == ["html-has-lang"]


def test_the_same_checks_find_what_is_wrong_with_a_page(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "wrong.html"
    path.write_text(
        '<!doctype html><link rel="icon" href="data:,"><div style="width:2000px" id="a">x</div><p id="a">'
        '<script>console.error("wrong")</script><img src="missing.png">'
        "<figure><svg><title></title></svg><figcaption></figcaption></figure>"
    )
    browser.open(path, width=PHONE)
    assert browser.ask(OVERFLOW) > 1000
    assert any("wrong" in complaint for complaint in browser.complaints)
    assert len(browser.requests) == 2
    assert browser.ask(DOUBLE_NAMES) == ["a"]
    assert browser.ask(FIGURES)[0][2:] == [0, 0, 0]
