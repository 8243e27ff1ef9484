"""Every report in a real browser: it fits the window, shows its figures, complains of nothing and fetches nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parties.reports.writing import report_of

pytestmark = pytest.mark.browser

PHONE, DESK = 360, 1280

OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FIGURES = """[...document.querySelectorAll("figure")].map(figure => {
    const svg = figure.querySelector("svg"), box = svg.getBoundingClientRect();
    const ink = Math.max(0, ...[...svg.querySelectorAll("g text")].map(text => text.getBoundingClientRect().width));
    return [box.width, box.height, ink, svg.querySelector("title").textContent.length,
            figure.querySelector("figcaption").textContent.length];
})"""
COLOURS = "[getComputedStyle(document.body).backgroundColor, getComputedStyle(document.body).color]"
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
        ("plan", 6),
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
