"""Parquet files and folders of them: one table, or a sentence that says why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from opboost.preprocess import category_texts
from parties.errors import TableError
from parties.tables.parquet_files import read_stored, stored_frames, stored_length, stored_names
from tests.support.parquet_folders import in_a_folder

FRAME = pd.DataFrame({"key": range(10), "y": [0, 1] * 5, "note": "n"})


def test_a_folder_is_the_table_of_its_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    path = in_a_folder(FRAME, tmp_path / "data")
    (path / "readme.txt").write_text("no part")
    assert stored_names(path) == list(FRAME)
    assert stored_length(path) == len(FRAME)
    pd.testing.assert_frame_equal(read_stored(path), FRAME)
    pieces = list(stored_frames(path, ["y", "key"]))
    assert len(pieces) == 4
    pd.testing.assert_frame_equal(pd.concat(pieces, ignore_index=True), FRAME[["y", "key"]])


def test_an_index_that_is_asked_for_is_a_column(tmp_path: Path) -> None:
    """pandas puts the record key there, and a file that every other program finds it in had none."""
    path, known = tmp_path / "data.parquet", FRAME.set_index(["key", "note"])
    known.to_parquet(path)
    assert stored_names(path) == list(known)
    assert set(stored_names(path, ["key", "absent"])) == {"key", *known}
    pd.testing.assert_frame_equal(read_stored(path, ["y", "key"])[["y", "key"]], FRAME[["y", "key"]])
    pieces = list(stored_frames(path, ["key"]))
    pd.testing.assert_frame_equal(pd.concat(pieces), FRAME[["key"]])
    assert set(read_stored(path).columns) == set(FRAME)
    FRAME.set_index(pd.Index(range(9, 9 + len(FRAME)))).to_parquet(path)
    assert list(read_stored(path).columns) == list(FRAME)


def test_what_pandas_noted_of_its_own_types_counts_for_nothing(tmp_path: Path) -> None:
    """Arrow's types in pandas have no times of dates and no large numbers: tables with them ended in a defect."""
    day, path = pd.Timestamp(2024, 5, 31).date(), tmp_path / "data.parquet"
    known = pd.DataFrame({"day": [day, None], "large": [2**63, 1], "half": [0.5, 1.5], "flag": [True, None]})
    types = {"day": pa.date32(), "large": pa.uint64(), "half": pa.float32(), "flag": pa.bool_()}
    typed = pd.DataFrame({name: known[name].astype(pd.ArrowDtype(kind)) for name, kind in types.items()})
    typed.columns = pd.CategoricalIndex(typed.columns)
    typed.to_parquet(path)
    found = read_stored(path, list(types))
    assert [found[name].dtype.kind for name in types] == list("OufO")
    assert found["day"].tolist() == [day, None]


@pytest.mark.parametrize("is_coded", [False, True])
@pytest.mark.parametrize("kind", [pa.int64(), pa.uint64()])
def test_whole_numbers_that_no_double_holds_stay_as_they_are_beside_missing_cells(
    tmp_path: Path, kind: pa.DataType, *, is_coded: bool
) -> None:
    """As doubles they were categories that are not listed, or another one that is."""
    cells = pa.array([2**53 + 1, None, 10**17], kind)
    pq.write_table(pa.table({"code": cells.dictionary_encode() if is_coded else cells}), tmp_path / "data.parquet")
    read = category_texts(read_stored(tmp_path / "data.parquet", ["code"])["code"], ())
    assert read.tolist() == ["9007199254740993", pd.NA, "100000000000000000"]


def test_whole_numbers_and_fractions_are_one_kind(tmp_path: Path) -> None:
    path = in_a_folder(FRAME, tmp_path / "data")
    FRAME.iloc[:2].assign(y=[0.5, np.nan]).to_parquet(path / "3.parquet", index=False)
    assert read_stored(path, ["y"])["y"].dtype == np.float64


@pytest.mark.parametrize(
    ("last", "read", "message"),
    [
        (None, stored_names, "that holds no Parquet files"),
        (FRAME.drop(columns="note"), stored_names, r"3.parquet and the first file .* differ in .* note"),
        (FRAME.assign(more=1), stored_names, r"differ in columns more"),
        (FRAME.assign(y="yes"), read_stored, r"of different kinds in a column: 'y' holds \w+ and \w*string; write all"),
    ],
    ids=["none", "a column less", "a column more", "other kinds"],
)
def test_folders_whose_files_are_not_one_table_are_refused(
    tmp_path: Path, last: pd.DataFrame | None, read: Callable[[Path], object], message: str
) -> None:
    path = in_a_folder(FRAME, tmp_path / "data")
    if last is None:
        path = tmp_path / "empty"
        path.mkdir()
    else:
        last.to_parquet(path / "3.parquet", index=False)
    with pytest.raises(TableError, match=message):
        read(path)


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+05:30"])
def test_times_with_a_zone_that_no_year_is_written_of_with_one_are_read_as_utc(tmp_path: Path, zone: str) -> None:
    """A contract without end that ends on 9999-12-31 in New York: the doctor, a party and a draft ended in a defect."""
    ends = pa.array([0, 253402318799, -62135596801, None, 2**40]).cast(pa.timestamp("s")).cast(pa.timestamp("us", zone))
    path = tmp_path / "data.parquet"
    pq.write_table(pa.table({"ends": ends}), path)
    (piece,) = stored_frames(path, ["ends"])
    for found in (read_stored(path)["ends"], piece["ends"]):
        assert found.isna().tolist() == [False] * 3 + [True, False]
        assert category_texts(found, ()).iloc[0] == "1970-01-01"
        assert category_texts(found, ()).iloc[1] == "10000-01-01 04:59:59"
    pq.write_table(pa.table({"ends": ends[:1]}), path)
    assert read_stored(path)["ends"].dt.tz is not None
