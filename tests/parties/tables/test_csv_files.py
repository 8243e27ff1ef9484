"""CSV files: only empty cells are missing, texts stay texts, and another table than was meant is never read."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opboost.table_format import TableFormat
from parties.errors import TableError
from parties.tables.csv_files import read_csv

TEXT = "id,age,note\n007,40,NA\n1,,null\n"


def zipped(content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("table.csv", content)
    return buffer.getvalue()


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "csv": bytes,
    "csv.gz": gzip.compress,
    "csv.bz2": bz2.compress,
    "csv.xz": lzma.compress,
    "csv.zip": zipped,
    "CSV.GZ": gzip.compress,
}


@pytest.mark.parametrize("ending", PACKERS)
def test_the_same_table_is_read_however_it_is_packed(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"table.{ending}"
    path.write_bytes(PACKERS[ending](TEXT.encode()))
    found = read_csv(path, as_text=["id"], form=TableFormat())
    assert found["id"].tolist() == ["007", "1"]
    assert found["note"].tolist() == ["NA", "null"]
    assert found["age"].isna().tolist() == [False, True]


def test_an_archive_of_several_files_is_no_table(tmp_path: Path) -> None:
    """Some programs add files of their own to what they pack."""
    with zipfile.ZipFile(tmp_path / "table.zip", "w") as archive:
        for name in ("table.csv", "__MACOSX/._table.csv"):
            archive.writestr(name, TEXT)
    with pytest.raises(TableError, match=r"table\.zip holds 2 files, where one is needed"):
        read_csv(tmp_path / "table.zip", as_text=["id"], form=TableFormat())


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(*(st.one_of(st.none(), st.text(st.characters(codec="utf-8", exclude_characters="\0"))),) * 2),
        min_size=1,
    )
)
def test_every_text_comes_back_and_only_empty_cells_are_missing(
    tmp_path: Path, rows: list[tuple[str | None, str | None]]
) -> None:
    frame = pd.DataFrame({"a": [a for a, _ in rows], "b": [b for _, b in rows], "end": 1})
    path = tmp_path / "table.csv"
    frame.to_csv(path, index=False, quoting=1, lineterminator="\n")
    found = read_csv(path, as_text=["a", "b"], form=TableFormat())
    for name in ("a", "b"):
        cells = [None if pd.isna(cell) else cell for cell in found[name]]
        assert cells == [row[0 if name == "a" else 1] or None for row in rows]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("a,b\n1,2,3\n", "more cells than its header"),
        ("a,b\n1\n2,3\n", "1 rows with fewer cells"),
        ("a,b,a\n1,2,3\n", "several columns named a"),
        ("a,b\n1,\0\n", "not text in UTF-8"),
        # Both records that lie between two such quotes were left out.
        ('a,b,c\n1,"x,5\n2,y,6\n3,"z,7\n', "a quote is not closed in line 2"),
        # The second row was 2, x and a missing cell.
        ("a,b,c\r1,1,y\r\r,2,x\r3,3,y\r", "a blank line that ends with a carriage return alone"),
        ("a,b,c\n1,1,y\n \r,2,x\n3,3,y\n", "a blank line that ends with a carriage return alone"),
        ('\ufeff"a",b\r\n"1,2\r\n3,4\r\n5,"6\r\n"7",8\r\n', "a quote is not closed in line 2"),
    ],
)
def test_what_would_be_another_table_is_refused(tmp_path: Path, rows: str, words: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(rows, newline="")
    with pytest.raises(TableError, match=f"table.csv .*{words}"):
        read_csv(path, as_text=[], form=TableFormat())


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\r\r\n"])
@pytest.mark.parametrize("sep", [",", "\t"])
def test_rows_whose_first_cell_is_empty_keep_their_places(tmp_path: Path, end: str, sep: str) -> None:
    path, rows = tmp_path / "table.csv", (("a", "b", "c"), ("1", "1", "y"), ("", "2", ""), ("3", "3", "y"))
    path.write_text(end.join([sep.join(row) for row in rows]), newline="")
    found = read_csv(path, as_text=["a", "b", "c"], form=TableFormat(sep=sep)).fillna("")
    assert list(found.itertuples(index=False, name=None)) == list(rows[1:])


IDS = {"even": (1, 2, 3), "from zero": (0, 1, 2), "uneven": (1, 5, 7), "texts": ("x", "y", "z")}


@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
@pytest.mark.parametrize("n_separators", [1, 2])
def test_rows_that_are_longer_than_the_header_shift_nothing(
    tmp_path: Path, ids: tuple[object, ...], n_separators: int
) -> None:
    """pandas takes their first cells for an index, and an index of even numbers for none."""
    path = tmp_path / "table.csv"
    path.write_text("\n".join(["id,a,b", *(f"{one},10,20," for one in ids)]))
    assert read_csv(path, as_text=["id"], form=TableFormat()).to_dict("list") == {
        "id": [str(one) for one in ids],
        "a": [10] * 3,
        "b": [20] * 3,
    }
    path.write_text("\n".join(["id,a,b", *(f"{one},10,20" + ",30" * n_separators for one in ids)]))
    with pytest.raises(TableError, match="has rows with more cells than its header names columns"):
        read_csv(path, as_text=["id"], form=TableFormat())
