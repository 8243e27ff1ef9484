"""Page: a report as headings, prose, tables and figures, and its forms (one HTML file, Markdown, CSV).

The HTML file is whole in itself: its style and its figures stand in it, and it asks no network for anything. The only
script is that of `WhatIf`, which its content security policy names by its digest; other pages have none.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from parties.storage.csv_cells import as_text

# Terms that a page explains where they stand in prose and headings.
GLOSSARY = {
    "epsilon": "The privacy budget: the odds between two possibilities grow by at most e to this number. Smaller is "
    "more private.",
    "mapped domain": "The whole numbers that a column's public range is divided into before noise is added; each is a "
    "point.",
    "weighted kendall": "How much of a column's order is kept: 1 is all of it, 0 none. Pairs far apart weigh more.",
    "partition-dldp": "A bound on the loss between two values by how far apart they are, for mechanisms with cells.",
    "ldp": "Local differential privacy: a bound on the loss between any two values, however far apart.",
    "gamma(t)": "The least chance that two values t points apart come out in the same order.",
    "beta": "The chance that no record of a small group comes out on the wrong side of a split.",
    "exact loss": "The natural logarithm of the worst odds by which a release tells two values apart.",
    "split test": "A question of the model about one column: is the value at most this rank? The answer is one bit.",
    "auc": "The chance that a random case with label 1 is scored above one with label 0; 0.5 is guessing.",
    "ks": "The largest distance between the scores' distributions of the two labels; 0 is guessing, 1 is perfect.",
    "gini": "2 AUC - 1; 0 is guessing, 1 is perfect.",
    "uplift": "By how much the joint model scores better than the active party's own.",
    "calibration": "Whether predicted shares come true.",
    "lift": "How many times as many cases as in the whole are among the records with the highest scores.",
}
_TERMS = re.compile(rf"(?<![\w-])({'|'.join(sorted(map(re.escape, GLOSSARY), key=len, reverse=True))})(?![\w-])", re.I)

# Characters that a cell of a narrow table may hold.
MOST_IN_CELL = 60

_CODE = re.compile("`([^`]+)`")


@dataclass(frozen=True, slots=True)
class Prose:
    """A paragraph; a strong one is set off from the others."""

    text: str
    is_strong: bool = False


@dataclass(frozen=True, slots=True)
class FigureGrid:
    """A table. The first cell of every row names the row.

    Attributes
    ----------
    caption : str
    headings : tuple of str
    rows : tuple of tuple of str
        Each as long as `headings`.
    """

    caption: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if any(len(row) != len(self.headings) for row in self.rows):
            raise ValueError(f"the table {self.caption!r} has rows of another length than its headings")

    @property
    def is_wordy(self) -> bool:
        """Whether narrow windows show its rows as cards: of few columns, one of which holds sentences."""
        return len(self.headings) < 5 and any(len(cell) > MOST_IN_CELL for row in self.rows for cell in row)


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure.

    Attributes
    ----------
    svg : str
        Made by `parties.reports.figures`, with its own short alternative text.
    caption : str
        What there is to see, for those who see it and those who do not.
    """

    svg: str
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerdictRow:
    """A column's verdict, for people who sign.

    Attributes
    ----------
    column : str
    grade : int
        Its colour, 0 for the best.
    word, guess, example, action : str
    strip : tuple of float or None
        Where an example value lies on its range, and from where to where its release, as shares of the range.
    """

    column: str
    grade: int
    word: str
    guess: str
    example: str
    action: str
    strip: tuple[float, float, float] | None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Verdicts of all columns, with a strip for an example of each."""

    caption: str
    rows: tuple[VerdictRow, ...]

    @property
    def grid(self) -> FigureGrid:
        """The verdicts as a plain table."""
        headings = ("column", "verdict", "the attacker's exact guess", "an example person", "recommended")
        rows = tuple((row.column, row.word, row.guess, row.example, row.action) for row in self.rows)
        return FigureGrid(self.caption, headings, rows)


@dataclass(frozen=True, slots=True)
class Blanks:
    """Lines to fill in by hand."""

    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Controls that choose among results computed before; without a script, the table serves.

    Attributes
    ----------
    data : mapping
        What `what_if.js` reads.
    grid : FigureGrid
    """

    data: Mapping[str, Any]
    grid: FigureGrid


PageBlock = Prose | FigureGrid | Figure | Verdicts | Blanks | WhatIf


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of a page: a heading and its blocks; a folded one is opened by who wants to see it."""

    heading: str
    blocks: tuple[PageBlock, ...]
    is_folded: bool = False


@dataclass(frozen=True, slots=True)
class Page:
    """A whole report.

    Attributes
    ----------
    title, lead : str
    sections : tuple of PageSection
    """

    title: str
    lead: str
    sections: tuple[PageSection, ...] = field(default=())

    @property
    def grids(self) -> tuple[tuple[str, FigureGrid], ...]:
        """Tables of the page, each with the heading of its section."""
        return tuple(
            (section.heading, block if isinstance(block, FigureGrid) else block.grid)
            for section in self.sections
            for block in section.blocks
            if isinstance(block, FigureGrid | Verdicts | WhatIf)
        )


def to_html(page: Page) -> str:
    """Render a page as one self-contained HTML file."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["kind_of"] = lambda block: type(block).__name__
    used: dict[str, int] = {}
    environment.filters["explained"] = partial(_explained, used)
    environment.filters["unbroken"] = lambda text: text.replace(" %", "\N{NO-BREAK SPACE}%")
    data = next(
        (block.data for section in page.sections for block in section.blocks if isinstance(block, WhatIf)), None
    )
    script = Path(__file__).with_name("what_if.js").read_text() if data is not None else ""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return environment.get_template("page.html.j2").render(
        page=page,
        script=script,
        policy=f"'sha256-{digest}'" if script else "'none'",
        # No name can end the element that holds it.
        data=json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
        used=used,
        glossary=GLOSSARY,
    )


def _explained(used: dict[str, int], text: str) -> str:
    """The text with a button at every term of the glossary, which shows what it means; notes the terms in `used`.

    What stands between backticks becomes code.
    """
    from markupsafe import Markup, escape

    def button(match: re.Match[str]) -> str:
        key = match[0].lower()
        place, explanation = used.setdefault(key, len(used)), escape(GLOSSARY[key])
        return (
            f'<button type="button" class="term" popovertarget="term-{place}" title="{explanation}">{match[0]}</button>'
        )

    return Markup(_CODE.sub(r"<code>\1</code>", _TERMS.sub(button, str(escape(text)))))


def to_markdown(page: Page) -> str:
    """Render a page as Markdown, with captions for figures. No name or value becomes markup, a link or an image."""
    lines = [f"# {_escaped(page.title)}", "", _escaped(page.lead)]
    for section in page.sections:
        lines += ["", f"## {_escaped(section.heading)}"]
        for block in section.blocks:
            lines += ["", *_markdown_of(block)]
    return "\n".join(lines) + "\n"


def _markdown_of(block: PageBlock) -> list[str]:
    match block:
        case Prose(text, is_strong):
            return [f"**{_escaped(text)}**" if is_strong else _escaped(text)]
        case Figure(caption=caption):
            return [f"*Figure: {_escaped(caption)}*"]
        case Verdicts() | WhatIf():
            return _markdown_of(block.grid)
        case Blanks(labels):
            return ["  ".join(f"{_escaped(label)}: ____________" for label in labels)]
        case FigureGrid(caption, headings, rows):
            cells = [list(map(_escaped, row)) for row in (headings, *rows)]
            cells.insert(1, ["---"] * len(headings))
            return [f"{_escaped(caption)}:", "", *("| " + " | ".join(row) + " |" for row in cells)]


def _escaped(text: str) -> str:
    return re.sub(r"([\\`\[\]<>|])", r"\\\1", " ".join(text.splitlines()))


def to_csv(page: Page) -> str:
    """Render all tables as CSV, a line per cell: section, table, row, column, value; safe against CSV injection."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("section", "table", "row", "column", "value"))
    for heading, grid in page.grids:
        for row in grid.rows:
            for name, value in zip(grid.headings[1:], row[1:], strict=True):
                writer.writerow(map(as_text, (heading, grid.caption, row[0], name, value)))
    return text.getvalue()
