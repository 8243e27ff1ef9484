"""Pages in their forms: nothing that a name or a value holds becomes markup, and figures stand by themselves."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import matplotlib
import pytest
from markupsafe import escape

from parties.commands.printing import print_page
from parties.reports.figures import Axis, Series, lines
from parties.reports.page import (
    GLOSSARY,
    Blanks,
    Figure,
    FigureGrid,
    Page,
    PageSection,
    Prose,
    VerdictRow,
    Verdicts,
    WhatIf,
    to_csv,
    to_html,
    to_markdown,
)
from parties.reports.plain import plain

X = Axis(label="x & y")
NASTY = '<img src=x onerror="alert(1)"> | & é'


def drawing(alt: str = "a < b & c", **options: object) -> str:
    return lines([Series("one", (1, 2), (3, 4)), Series("two", (1, 2), (4, 3), (0.1, 0.2))], x=X, y=X, alt=alt)


def page() -> Page:
    blocks = (Prose(NASTY, is_strong=True), FigureGrid(NASTY, ("", "value"), ((NASTY, "1"),)), Figure(drawing(), NASTY))
    return Page(NASTY, NASTY, (PageSection(NASTY, blocks),))


def test_names_and_values_never_become_markup() -> None:
    html = to_html(page())
    assert "<img" not in html
    assert html.count("&lt;img src=x onerror=&#34;alert(1)&#34;&gt;") == 10
    assert html.count("<svg") == 1


def test_a_table_in_markdown_keeps_its_columns() -> None:
    line = next(line for line in to_markdown(page()).splitlines() if line.startswith("| \\<img"))
    assert line.replace("\\|", "").count("|") == 3


ACTIVE = "<img src=x> ![a](http://b.example) `code` <http://b.example> \\<b>\n# heading\r\n- item | cell"


def test_no_name_or_value_is_active_in_markdown() -> None:
    blocks = (
        Prose(ACTIVE),
        Prose(ACTIVE, is_strong=True),
        FigureGrid(ACTIVE, ("", "v"), ((ACTIVE, "1"),)),
        Figure("", ACTIVE),
    )
    text = to_markdown(Page(ACTIVE, ACTIVE, (PageSection(ACTIVE, blocks),)))
    plain_text = re.sub(r"\\[\\`\[\]<>|]", "", text)
    assert not set("<>[`\\") & set(plain_text)
    assert [line for line in text.splitlines() if line.startswith(("#", "-"))] == [
        line for line in text.splitlines() if line.startswith(("# \\<img", "## \\<img"))
    ]
    assert text.count("heading - item") == 8


def test_what_is_active_in_markdown_is_seen() -> None:
    assert set("<>[`\\") & set(re.sub(r"\\[\\`\[\]<>|]", "", ACTIVE))


def test_no_name_ends_a_script_or_gets_another_one_to_run() -> None:
    name = "</script><script>alert(1)</script>"
    row = VerdictRow(column=name, grade=0, word=name, guess=name, example=name, action=name, strip=(0.5, 0.4, 0.6))
    what_if = WhatIf({"name": name}, FigureGrid(name, (name,), ((name,),)))
    made = Page(name, name, (PageSection(name, (Verdicts(name, (row,)), Blanks((name,)), what_if), is_folded=True),))
    html = to_html(made)
    scripts = re.findall("<script[^>]*>(.*?)</script>", html, re.DOTALL)
    assert [json.loads(scripts[0]), len(scripts), "alert" in scripts[1]] == [{"name": name}, 2, False]
    digest = base64.b64encode(hashlib.sha256(scripts[1].encode()).digest()).decode()
    assert f"default-src 'none'; script-src 'sha256-{digest}';" in html
    assert "script-src 'none';" in to_html(page())
    assert "<script" not in to_html(page())


def test_terms_are_explained_in_prose_and_headings_and_nowhere_else() -> None:
    html = to_html(Page("AUC", "the AUC", (PageSection("Gini", (FigureGrid("lift", ("KS",), (("uplift",),)),)),)))
    assert re.findall('<button [^>]*popovertarget="(term-[0-9]+)"[^>]*>([^<]+)', html) == [
        (f"term-{place}", term) for place, term in enumerate(("AUC", "lift", "KS"))
    ]
    assert re.findall('<div popover id="(term-[0-9])">(.*)</div>', html) == [
        (f"term-{place}", escape(GLOSSARY[term])) for place, term in enumerate(("auc", "lift", "ks"))
    ]


def test_csv_has_a_line_per_cell() -> None:
    assert list(csv.reader(io.StringIO(to_csv(page()))))[1:] == [[NASTY, NASTY, NASTY, "value", "1"]]


def test_a_table_with_a_row_too_short_is_a_defect() -> None:
    with pytest.raises(ValueError, match="another length"):
        FigureGrid("t", ("a", "b"), (("1",),))


def test_the_same_facts_draw_the_same_drawing_and_names_differ_between_drawings() -> None:
    assert drawing() == drawing()
    names = [{one.get("id") for one in ET.fromstring(drawing(alt)).iter() if one.get("id")} for alt in ("a", "b")]
    assert names[0] & names[1] == set()


def test_drawing_changes_no_setting_of_the_process() -> None:
    before = dict(matplotlib.rcParams)
    drawing()
    assert dict(matplotlib.rcParams) == before


def test_facts_become_plain_values_and_folders_stay_private() -> None:
    assert plain({"a": (1, float("inf"), None), "p": Path("/home/someone/ledger.sqlite")}) == {
        "a": [1, "inf", None],
        "p": "ledger.sqlite",
    }
    with pytest.raises(TypeError, match="object"):
        plain(object())


def test_a_printed_page_obeys_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    name = "\x1b]0;title\x07\x1b[2J[red]spend[/]"
    print_page(Page(name, name, (PageSection(name, (FigureGrid(name, ("column", "value"), ((name, "1\u202e"),)),)),)))
    printed = capsys.readouterr().out
    assert printed.count("[red]spend[/]") == 2
    assert not {"\x1b", "\x07", "\u202e"} & set(printed)


def luminance(colour: str) -> float:
    """Relative luminance of a colour, as WCAG 2.1 defines it."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_all_text_stands_out_from_its_ground_in_light_dark_and_print() -> None:
    schemes = [dict(re.findall(r"--([a-z0-9-]+): (#[0-9a-f]{6});", one)) for one in re.split(":root", to_html(page()))]
    schemes = [one for one in schemes if one]
    assert len(schemes) == 3
    for colours in schemes:
        for ground in ("page", "raised"):
            for ink in ("ink", "soft", "accent"):
                assert contrast(colours[ink], colours[ground]) >= 4.5, (ink, ground)
        for grade in ("g0", "g1", "g2", "g3"):
            assert contrast(colours["on-grade"], colours[grade]) >= 4.5, grade
        for line in ("s1", "s2", "s3", "s4", "s5", "s6"):
            assert contrast(colours[line], colours["page"]) >= 3, line
    assert contrast("#777777", "#ffffff") < 4.5 < contrast("#767676", "#ffffff")
