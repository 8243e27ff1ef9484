"""How a file is written: separator, encoding and numbers are found in its text."""

from __future__ import annotations

from pathlib import Path

import pytest

from opboost.table_format import TableFormat
from parties.errors import TableError
from parties.onboarding.dialect import read_raw, reads_numbers, separator


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("id,age\n")
    with pytest.raises(TableError, match="has no rows"):
        read_raw(tmp_path / "data.csv")


def test_a_separator_inside_quotes_does_not_count() -> None:
    assert separator(['a;b;"c, d, e"', '1;2;"x, y, z"']) == ";"


def test_a_title_above_the_header_is_named(tmp_path: Path) -> None:
    (tmp_path / "data.csv").write_text("Visits\n\nid,amount\n" + "".join(f"k{row},{row}\n" for row in range(20)))
    with pytest.raises(TableError, match=r"the header seems to be line 3; remove the lines above it"):
        read_raw(tmp_path / "data.csv")


BODY = "".join(f"k{row},{row}\n" for row in range(20))


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("book.xlsx", "PK", "is no table of text: save it as CSV or Parquet"),
        ("data.csv", "sep=,\nid,amount\n" + BODY, "the header seems to be line 2"),
        ("data.csv", BODY, "the first line seems to be a record"),
        ("data.csv", "17,2.5,a\n18,3.5,b\n", "the first line seems to be a record"),
    ],
)
def test_what_has_no_header_is_refused(tmp_path: Path, name: str, text: str, words: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(TableError, match=words):
        read_raw(tmp_path / name)


@pytest.mark.parametrize("header", ["id,amount", "id,2019", "id,2019,2020"])
def test_columns_may_be_named_after_years(tmp_path: Path, header: str) -> None:
    cells = ",".join(["k{0}", *["{0}.5"] * header.count(",")]) + "\n"
    (tmp_path / "data.csv").write_text(header + "\n" + "".join(cells.format(row) for row in range(20)))
    assert list(read_raw(tmp_path / "data.csv").frame.columns) == header.split(",")


def test_a_point_alone_is_an_empty_cell_and_no_number(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("id,spend\n" + "".join(f"c{row},{row}.5\n" for row in range(20)) + "c20,.\n")
    assert read_raw(path).format.na_values == (".",)
    assert not reads_numbers(["1.5", "."], TableFormat())
