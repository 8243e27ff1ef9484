"""Number formats: losses are rounded up, infinity is a word, and no limit is told as such."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.privacy.guarantee import compose
from parties.ledger.costs import Unit
from parties.reports.ledger_statement import ColumnStatement, Spending, Statement
from parties.reports.page import FigureGrid, Prose
from parties.reports.words import (
    columns_grid,
    guarantee_blocks,
    leakage_section,
    ledger_section,
    loss,
    most_percent,
    number,
    percent,
    size,
    spent_grid,
    spent_words,
)
from tests.support.released_cells import mechanisms

NOTHING = Spending(0.0, None)
STATEMENT = Statement(
    path=Path("ledger.sqlite"),
    n_lines=3,
    peers=("bank",),
    n_records=7,
    record=Spending(0.25, 1.0),
    record_cell_bits=NOTHING,
    columns=(
        ColumnStatement(
            column="age",
            unit=Unit(1.0, "1 year"),
            epsilon=Spending(0.25, 1.0),
            category_epsilon=NOTHING,
            cell_bits=NOTHING,
            n_records=6,
            n_releases=1,
            n_reuses=2,
            n_tests=3,
            n_cuts=5,
            n_answered=4,
        ),
    ),
)


@given(st.floats(1e-6, 1e6))
def test_a_loss_is_never_shown_smaller_than_it_is(epsilon: float) -> None:
    assert float(loss(epsilon).replace(",", "")) >= epsilon * (1 - 1e-12)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "-"),
        (math.inf, "infinite"),
        (0.123456, "0.1235"),
        (1234.5, "1,234"),
        (50_500, "50,500"),
        (9999.6, "10,000"),
        (12345678.0, "12,345,678"),
    ],
)
def test_a_number_has_few_digits(value: float | None, shown: str) -> None:
    assert number(value) == shown


@pytest.mark.parametrize(
    ("n_bytes", "shown"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (2_500_000, "2.5 MB"), (10**9, "1.0 GB")],
)
def test_bytes_have_decimal_units(n_bytes: int, shown: str) -> None:
    assert size(n_bytes) == shown
    assert percent(0.1234) == "12.3 %"


@pytest.mark.parametrize("is_secure", [False, True])
def test_a_guarantee_says_what_it_does_not_cover_and_seeded_bits_that_they_are_not_for_release(is_secure: bool) -> None:
    guarantee = compose(tuple(one.guarantee() for one in mechanisms()), is_secure=is_secure)
    said = " ".join(block.text for block in guarantee_blocks(guarantee) if isinstance(block, Prose))
    assert ("NOT FOR RELEASE" in said) is not is_secure
    assert "Not protected: " in said
    assert [row[0] for row in columns_grid(guarantee.columns).rows] == ["spend", "visits", "town"]


def test_a_ledger_is_told_in_words_and_per_column() -> None:
    assert "has spent 0.25 over all columns; remaining: 0.75" in spent_words(STATEMENT)
    assert spent_words(STATEMENT).endswith("remaining: 0.75. 1 cells of its records were never charged.")
    (row,) = spent_grid(STATEMENT).rows
    assert row == ("age", "1 year", "0.25", "0.75", "6", "1", "2", "3", "5", "4")
    with_cells = replace(STATEMENT.columns[0], cell_bits=Spending(spent=3.0, limit=None))
    grid = spent_grid(replace(STATEMENT, columns=(with_cells,)))
    assert dict(zip(grid.headings, grid.rows[0], strict=True))["cells, bits"] == "3"
    (told,) = ledger_section(None).blocks
    assert isinstance(told, Prose)
    assert "no ledger yet" in told.text


@given(st.floats(1e-6, 1e3), st.floats(1e-6, 1e3))
def test_a_ledger_tells_no_less_than_was_spent_and_no_more_than_is_left(spent: float, more: float) -> None:
    """Rounded to the nearest number of four digits, 1.00004 spent of 2 were told as 1, and 1 as left."""
    record = Spending(spent, spent + more)
    (row,) = spent_grid(replace(STATEMENT, columns=(replace(STATEMENT.columns[0], epsilon=record),))).rows
    words = spent_words(replace(STATEMENT, record=record, record_cell_bits=record))
    told = [float(one) for one in re.findall(r"(?:spent|most|remaining:) ([\d.e+-]*\d)", words)]
    for shown, left in ((float(row[2]), float(row[3])), (told[0], told[1]), (told[2], told[3])):
        assert spent * (1 - 1e-8) <= shown <= spent * 1.0011
        assert record.remaining * (1 - 1.1e-3) <= left <= record.remaining * (1 + 1e-8)


def test_rounding_to_the_nearest_would_tell_too_little() -> None:
    assert (number(1.00004), loss(1.00004)) == ("1", "1.001")
    assert (percent(0.66041), most_percent(0.66041), most_percent(0.66)) == ("66.0 %", "66.1 %", "66.0 %")


def test_who_is_in_the_data_shows_by_which_of_several_keys() -> None:
    """A key that finds a record tells that the other side has others, or none, of those before it."""
    (grid,) = leakage_section().blocks
    assert isinstance(grid, FigureGrid)
    ((of_a, of_b),) = (row[1:] for row in grid.rows if row[0] == "who is in the data")
    assert "B learns which of its records all parties know, with several `align.keys` also by which of them" in of_a
    assert "A learns which of its records B knows, with several `align.keys` also by which of them" in of_b


def test_leaks_are_told_of_both_sides() -> None:
    (grid,) = leakage_section().blocks
    assert isinstance(grid, FigureGrid)
    assert all(all(row) for row in grid.rows)
    assert len({row[0] for row in grid.rows}) == len(grid.rows)


def test_a_change_of_labels_shows_in_the_ranks_that_are_split_on_and_not_in_cells() -> None:
    told = []
    for by_cells in (False, True):
        (grid,) = leakage_section(by_cells=by_cells).blocks
        assert isinstance(grid, FigureGrid)
        told += [row[1:] for row in grid.rows if row[0] == "changes of values"]
    (of_a, of_b), (of_a_by_cells, of_b_by_cells) = told
    assert "labels too: trees then split on other ranks" in of_a
    assert of_a_by_cells == "none"
    assert of_b == of_b_by_cells
    assert "two of them can show a change" in of_b
