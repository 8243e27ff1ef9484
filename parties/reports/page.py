"""Page: a report as headings, prose, tables and figures, and its forms (one HTML file, Markdown, CSV).

The HTML file is whole in itself: its style and its figures stand in it, it asks no network for anything, and it has no
script.
"""

from __future__ import annotations

import csv
import io
import re
from dataclasses import dataclass, field
from pathlib import Path

from parties.storage.csv_cells import as_text


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


PageBlock = Prose | FigureGrid | Figure


@dataclass(frozen=True, slots=True)
class PageSection:
    """A section of a page: a heading and its blocks."""

    heading: str
    blocks: tuple[PageBlock, ...]


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
            (one.heading, block) for one in self.sections for block in one.blocks if isinstance(block, FigureGrid)
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
    kinds = {Prose: "prose", FigureGrid: "grid", Figure: "figure"}
    environment.globals["kind_of"] = lambda block: kinds[type(block)]
    return environment.get_template("page.html.j2").render(page=page)


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
