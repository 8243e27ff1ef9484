"""CSV injection: cells that begin like a formula are marked as text by an apostrophe.

A peer chooses names that stand in reports, and people choose ids. Opened in a spreadsheet, a cell such as
``=HYPERLINK(...)`` could send other cells away ("CSV injection").
"""

from __future__ import annotations

import re

# Signs with which spreadsheets let a formula begin, in their wide form too, and characters that they skip before one.
_FORMULA = re.compile(r"['\s]*[=+\-@＝＋－＠]|'*[\t\r\n]")

# Numbers as reports write them, and the dash that stands for none.
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*([.][0-9]*)?([eE][+-]?[0-9]+)?( ?%)?|-")


def as_text(cell: str) -> str:
    """Escape a cell that begins like a formula and is no number. Cells that differ stay different."""
    return f"'{cell}" if _FORMULA.match(cell) and not _NUMBER.fullmatch(cell) else cell


def without_mark(cell: str) -> str:
    """The cell of which `as_text` made this one."""
    return cell[1:] if cell[:1] == "'" and as_text(cell[1:]) == cell else cell
