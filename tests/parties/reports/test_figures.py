"""Drawings of reports as SVG."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace

import pytest

from parties.reports.figures import Axis, Series, bars, intervals, lines, ranking, standalone

X = Axis(label="x & y")


def drawing(alt: str = "a < b & c", **options: object) -> str:
    return lines([Series("one", (1, 2), (3, 4)), Series("two", (1, 2), (4, 3), (0.1, 0.2))], x=X, y=X, alt=alt)


@pytest.mark.parametrize(
    "draw",
    [
        drawing,
        lambda: bars(["a", "b"], {"before": (1, 2), "after": (2, 1)}, x=X, y=X, alt="bars of a & b"),
        lambda: ranking(["a", "b"], [2, 1], x=X, alt="ranking of a & b"),
    ],
    ids=["lines", "bars", "ranking"],
)
def test_a_drawing_is_one_svg_element_with_text_title_and_page_colours(draw: Callable[[], str]) -> None:
    root = ET.fromstring(svg := draw())
    assert root.tag.endswith("svg")
    assert root.get("role") == "img"
    assert root[0].tag.endswith("title")
    assert "x & y" in [one.text for one in root.iter() if one.tag.endswith("text")]
    assert root.get("width") is None
    assert "var(--ink)" in svg
    assert "#0" not in svg.replace("#000000", "").replace('"#', "")


PRICES = r"$10_$20 \frac{$ \$5"


@pytest.mark.parametrize(
    "draw",
    [
        lambda: lines([Series(PRICES, (1, 2), (3, 4)), Series("two", (1, 2), (4, 3))], x=X, y=X, alt="lines"),
        lambda: bars([PRICES, "b"], {"before": (1, 2), PRICES: (2, 1)}, x=X, y=X, alt="bars"),
        lambda: ranking([PRICES, "b"], [2, 1], x=Axis(label=PRICES), alt="ranking"),
    ],
    ids=["lines", "bars", "ranking"],
)
def test_names_with_dollar_signs_are_no_formulas(draw: Callable[[], str]) -> None:
    """A peer's columns may have any name."""
    texts = [one.text for one in ET.fromstring(draw()).iter() if one.tag.endswith("text")]
    assert PRICES in texts


def test_a_drawing_alone_brings_its_colours_along() -> None:
    text = standalone(drawing())
    assert ET.fromstring(text.split("?>", 1)[1]).tag.endswith("svg")
    assert "--s1:" in text
    assert "prefers-color-scheme:dark" in text


@pytest.mark.parametrize("ends", [(0.1, 0.3), (0.3, 0.4), (0.0, 0.1), (float("inf"), 0.1)])
def test_an_interval_need_not_hold_its_value(ends: tuple[float, float]) -> None:
    assert "<path" in intervals(["uplift"], [0.2], [ends], x=X, alt="intervals")


def test_a_busy_machine_draws_a_legend_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    hours = count(0, 3600)
    monkeypatch.setattr("matplotlib.legend.time", SimpleNamespace(perf_counter=lambda: next(hours)))
    assert ">two</text>" in drawing()
