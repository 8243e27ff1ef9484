"""Cells: numbers, times, truth values, categories and labels as files have them, read by a schema's table format."""

from __future__ import annotations

import datetime
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import DataError
from opboost.preprocess import own_features, read_numbers
from opboost.schema import ColumnSchema, Kind, TableSchema
from opboost.table_format import TableFormat
from parties.config.reading import read_schema
from parties.errors import EXPECTED_ERRORS, TableError, notes_on
from parties.tables.cells import named_as_listed, naming_times, number_pattern
from parties.tables.misfits import masked, showing_misfits
from parties.tables.party_table import PartyTable, own_columns, read_table


def read(
    folder: Path, text: str, document: dict[str, Any], *, needs_label: bool = False, encoding: str = "utf-8"
) -> PartyTable:
    (folder / "schema.yaml").write_text(yaml.safe_dump(document))
    (folder / "data.csv").write_bytes(text.encode(encoding))
    schema, ignore = read_schema(folder / "schema.yaml")
    with showing_misfits(folder / "data.csv", schema):
        table = read_table(folder / "data.csv", schema, ignore=ignore, needs_label=needs_label)
        own_columns(table, schema)
    return table


def values(folder: Path, cells: list[str], column: dict[str, Any], **reader: Any) -> list[float]:
    """Numbers of a column's cells, as trees see them."""
    text = "\n".join(["id;x", *(f"{row:03};{cell}" for row, cell in enumerate(cells))])
    document = {"columns": {"x": column}, "reader": {"sep": ";", **reader}}
    table = read(folder, text, document)
    schema, _ = read_schema(folder / "schema.yaml")
    return own_features(table.features, schema.columns)["x"].tolist()


NUMBER = {"lower": -1e9, "upper": 1e9, "missing": "category"}


@pytest.mark.parametrize(
    ("cells", "reader", "numbers"),
    [
        (["1.234,5", "-7", "12"], {"decimal": ",", "thousands": "."}, [1234.5, -7, 12]),
        (["1,234.5", "1234.5", "+3"], {"thousands": ","}, [1234.5, 1234.5, 3]),
        (["1 234,5", "1\u00a0234", "1\u202f234"], {"decimal": ",", "thousands": " "}, [1234.5, 1234, 1234]),
        (["€ 5", "5 €", "-€5", "€-5", "5"], {"currency": "€"}, [5, 5, -5, -5, 5]),
        (["$1,000", "2 USD"], {"currency": ["$", "USD"], "thousands": ","}, [1000, 2]),
        (["1e3", ".5", "5."], {"thousands": ","}, [1000, 0.5, 5]),
        (["0", "0.125", "007", "10,000"], {"thousands": ","}, [0, 0.125, 7, 10_000]),
        (["0,125", "-0,5", "1.000"], {"decimal": ",", "thousands": "."}, [0.125, -0.5, 1000]),
        (["?", "n/a", "1", ""], {"na_values": ["?", "n/a"]}, [np.nan, np.nan, 1, np.nan]),
        (["-999", "2"], {"na_values": -999}, [np.nan, 2]),
        (["-999", "2.5"], {"na_values": -999}, [np.nan, 2.5]),
        (["-999.0", "?", "2"], {"na_values": [-999, "?"]}, [np.nan, np.nan, 2]),
        (["1'234.5", "1\u2019234\u2019567", "7"], {"thousands": "'"}, [1234.5, 1234567, 7]),
        (["inf", "1.5", "inf"], {"na_values": ["Infinity"]}, [np.nan, 1.5, np.nan]),
        (["-inf", "1.5", "2"], {"na_values": ["-Inf"]}, [np.nan, 1.5, 2]),
        (["-9.990,0", "2"], {"na_values": "-9.990", "decimal": ",", "thousands": "."}, [np.nan, 2]),
    ],
)
def test_numbers_are_read_as_they_are_written(
    tmp_path: Path, cells: list[str], reader: dict[str, Any], numbers: list[float]
) -> None:
    np.testing.assert_array_equal(values(tmp_path, cells, NUMBER, **reader), numbers)


@pytest.mark.parametrize(
    ("cell", "reader"),
    [
        ("1.5", {"decimal": ","}),
        ("1,23", {"thousands": ","}),
        ("1,2345", {"thousands": ","}),
        ("12,34,567", {"thousands": ","}),
        ("0,582", {"thousands": ","}),
        ("-0.500", {"decimal": ",", "thousands": "."}),
        ("0'125", {"thousands": "'"}),
        ("0\u00a0125", {"decimal": ",", "thousands": " "}),
        ("00,125", {"thousands": ","}),
        ("012,345", {"thousands": ","}),
        ("0,000,001", {"thousands": ","}),
        ("0,125e3", {"thousands": ","}),
        ("$0,125", {"thousands": ",", "currency": "$"}),
        ("1.5.5", {"thousands": ","}),
        ("€", {"currency": "€"}),
        ("$5", {"currency": "€"}),
        ("--5", {"thousands": ","}),
        ("1.234.5", {"decimal": ",", "thousands": "."}),
        ("1_000", {"thousands": ","}),
        ("٣", {"thousands": ","}),
        ("nan", {"thousands": ","}),
    ],
)
def test_what_is_not_written_so_is_no_number(tmp_path: Path, cell: str, reader: dict[str, Any]) -> None:
    """A number that is read as another one would be worse than none."""
    with pytest.raises(DataError, match="1 cell is not a number"):
        values(tmp_path, ["7", cell], NUMBER, **reader)


@pytest.mark.parametrize("by_column", [False, True])
def test_a_decimal_comma_is_no_mark_of_thousands_in_parquet(tmp_path: Path, by_column: bool) -> None:
    """0,582 was read as 582."""
    cells = ["1,234", "0,582"]
    assert stored_values(tmp_path, cells, NUMBER, by_column=by_column, decimal=",") == [1.234, 0.582]
    with pytest.raises(DataError, match="1 cell is not a number"):
        stored_values(tmp_path, cells, NUMBER, by_column=by_column, thousands=",")


@given(
    numbers=st.lists(st.decimals(-(10**9), 10**9, places=2), min_size=2, max_size=20),
    marks=st.sampled_from([(".", ","), (",", "."), (",", " "), (".", "'")]),
)
def test_any_number_comes_back_from_the_text_it_was_written_as(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[Any], marks: tuple[str, str]
) -> None:
    decimal, thousands = marks
    swap = {",": thousands, ".": decimal}
    cells = ["".join(swap.get(one, one) for one in f"{number:,.2f}") for number in numbers]
    found = values(tmp_path_factory.mktemp("n"), cells, NUMBER, decimal=decimal, thousands=thousands)
    assert found == [float(number) for number in numbers]


DATE = {"kind": "date", "lower": "2000-01-01", "upper": "2030-01-01", "missing": "category"}
DAY, SECOND = 19_723, 1_704_067_200  # 2024-01-01


def test_a_cell_of_thousands_of_spaces_is_read_at_once() -> None:
    pattern, began = number_pattern(TableFormat(currency=("€", " kr "))), time.monotonic()
    assert pattern.fullmatch("€" + " " * 3000 + "x") is None
    assert pattern.fullmatch("-" + " " * 3000 + "7" + " " * 3000 + "kr")
    assert time.monotonic() - began < 1


@pytest.mark.parametrize(
    ("cells", "column", "numbers"),
    [
        (["2024-01-01", "2024-01-02", ""], {"kind": "date"}, [DAY, DAY + 1, np.nan]),
        (["01.01.2024", "31.12.2023"], {"kind": "date", "format": "%d.%m.%Y"}, [DAY, DAY - 1]),
        (["2024-01-01T00:00:05", "2024-01-01 01:00:00+01:00"], {"kind": "datetime"}, [SECOND + 5, SECOND]),
        (["2024-01-01T23:59:59"], {"kind": "datetime", "unit": "hour"}, [24 * DAY + 23]),
        (["1969-12-31T23:00:00"], {"kind": "datetime", "unit": "day"}, [-1]),
    ],
)
def test_times_are_whole_units_since_1970(
    tmp_path: Path, cells: list[str], column: dict[str, Any], numbers: list[float]
) -> None:
    bounds = {"lower": datetime.date(1950, 1, 1), "upper": datetime.date(2050, 1, 1), "missing": "category"}
    np.testing.assert_array_equal(values(tmp_path, cells, {**bounds, **column}), numbers)
    schema, _ = read_schema(tmp_path / "schema.yaml")
    assert schema.columns[0].own_step == 1


@pytest.mark.parametrize("pattern", [None, "%Y-%m-%d"])
@pytest.mark.parametrize("cell", ["2024-13-01", "01.02.2024", "soon", "20240101x", "now", " today "])
def test_a_date_that_cannot_be_read_is_counted(tmp_path: Path, cell: str, pattern: str | None) -> None:
    """Two words stood for the time at which the file was read."""
    described = DATE if pattern is None else {**DATE, "format": pattern}
    how = "2024-05-31" if pattern is None else repr(pattern)
    cure = f"not written as {how}; " if "0" in cell else "a word for an empty cell"
    said = f"'x' is a date by the schema but 1 cell is not a date written as {how}\n.*: {cure}"
    with pytest.raises(DataError, match=said):
        values(tmp_path, ["2024-01-01", cell], described)


def test_times_that_cannot_be_read_are_named_with_all_that_the_schema_reads(tmp_path: Path) -> None:
    column = {**DATE, "kind": "datetime"}
    said = "a datetime by the schema but 2 cells are not times written as 2024-05-31 14:30:00\n"
    with pytest.raises(DataError, match=said):
        values(tmp_path, ["x", "2024-01-01T10:00:00", "y"], column)
    with pytest.raises(DataError, match=r"1 cell is not a time written as '%d\.%m\.%Y %H:%M' or '%d\.%m\.%Y'\n"):
        values(tmp_path, ["x", "01.01.2024", "01.01.2024 10:30"], {**column, "format": ["%d.%m.%Y %H:%M", "%d.%m.%Y"]})


@pytest.mark.parametrize(
    ("unit", "bounds"), [("day", "2000-01-01, 2030-12-31"), ("hour", "2000-01-01 08:00, 2030-12-31")]
)
def test_bounds_of_times_are_told_as_times(tmp_path: Path, unit: str, bounds: str) -> None:
    bound = {"lower": "2000-01-01T08:30:00", "upper": "2030-12-31"}
    column = {"kind": "datetime", "unit": unit, "outside": "refuse", **bound}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": {"x": column}}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    table = read(tmp_path, "id,x\na,1999-12-31\nb,2001-01-01\n", {"columns": {"x": column}})
    message = rf"'x' has 1 value outside its public bounds \[{bounds}\] and .* Nothing was released"
    with pytest.raises(DataError, match=message), naming_times(schema):
        read_numbers(table.frame["x"], schema.columns[0])


@pytest.mark.parametrize("pattern", [None, "%Y-%m-%d", "%Y", "%Y%m%d"])
@pytest.mark.parametrize("cell", ["-1", "-99", "-999", "-20240531", "-2024-05-31", "0000", "00000101", "0000-12-31"])
def test_a_year_before_the_first_is_no_date(tmp_path: Path, cell: str, pattern: str | None) -> None:
    """Marks of an empty cell such as -999 were dates before Christ, which were clipped to the lower bound."""
    described = DATE if pattern is None else {**DATE, "format": [pattern, "%d.%m.%Y"]}
    with pytest.raises(DataError, match="1 cell is not a date"):
        values(tmp_path, ["01.01.2024" if pattern else "2024-01-01", cell], described)
    empty = values(tmp_path, ["", cell], described, na_values=cell)
    np.testing.assert_array_equal(empty, [np.nan, np.nan])


def test_the_first_year_and_the_last_are_dates(tmp_path: Path) -> None:
    wide = {**DATE, "lower": "0001-01-01", "upper": "9999-12-31"}
    cells = ["0001-01-01", "9999-12-31"]
    found = [(datetime.date.fromisoformat(cell) - datetime.date(1970, 1, 1)).days for cell in cells]
    assert values(tmp_path, cells, wide) == values(tmp_path, cells, {**wide, "format": "%Y-%m-%d"}) == found


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.int64(), pa.float64()])
def test_a_number_below_zero_in_parquet_is_no_date(tmp_path: Path, kind: pa.DataType, by_column: bool) -> None:
    cells = pa.array([20240101, -999]).cast(kind)
    with pytest.raises((DataError, TableError), match="1 cell is not a number"):
        stored_values(tmp_path, cells, DATE, by_column=by_column)


@pytest.mark.parametrize("by_column", [False, True])
def test_whole_numbers_are_dates_whether_or_not_a_cell_is_missing(tmp_path: Path, by_column: bool) -> None:
    """One missing cell made all the others unreadable."""
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": {"x": {**DATE, "format": "%Y%m%d"}}}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    table = pa.table({"id": ["a", "b"], "x": pa.array([20240101, None], pa.int64())})
    pq.write_table(table, tmp_path / "data.parquet")
    read = read_table(tmp_path / "data.parquet", schema, needs_label=False, by_column=by_column)
    np.testing.assert_array_equal(own_columns(read, schema)[0].values, [DAY, np.nan])


def test_truth_values_are_two_categories(tmp_path: Path) -> None:
    column = {"kind": "boolean", "missing": "category"}
    found = values(tmp_path, ["Yes", " no", "TRUE", "0", "", "f"], column)
    np.testing.assert_array_equal(found, [1, 0, 1, 0, np.nan, 0])
    assert values(tmp_path, ["ja", "NEIN"], column, true_values="ja", false_values="nein") == [1, 0]
    with pytest.raises(DataError, match="1 cell whose category is not among the 2 listed"):
        values(tmp_path, ["yes", "maybe"], column)


def test_words_of_truth_are_compared_as_cells_are(tmp_path: Path) -> None:
    words = {"true_values": [" Oui ", "1.0"], "false_values": ["pas  vrai", "0.0"]}
    assert values(tmp_path, ["oui", "Pas vrai", "1", "0.0"], {"kind": "boolean"}, **words) == [1, 0, 1, 0]


def test_categories_are_cleaned_up(tmp_path: Path) -> None:
    column = {"kind": "unordered", "categories": ["New York", "Bern"]}
    cells = ["New York", " new   york ", "BERN"]
    assert values(tmp_path, cells, column, strip=True, ignore_case=True) == [0, 0, 1]
    with pytest.raises(DataError, match="2 cells whose category"):
        values(tmp_path, cells, column)
    assert values(tmp_path, [*cells, "Genf"], {**column, "other": True}, strip=True, ignore_case=True) == [0, 0, 1, 2]


@pytest.mark.parametrize("by_column", [False, True])
def test_whole_numbers_are_categories_whether_or_not_a_cell_is_missing(tmp_path: Path, by_column: bool) -> None:
    """One missing cell made `other` of all the others."""
    described = {"kind": "unordered", "categories": ["10", "20"], "missing": "category", "other": True}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": {"x": described}}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    for cells, positions in (([20, 10, 30], [1, 0, 2]), ([20, None, 30], [1, np.nan, 2])):
        table = pa.table({"id": ["a", "b", "c"], "x": pa.array(cells, pa.int64())})
        pq.write_table(table, tmp_path / "data.parquet")
        read = read_table(tmp_path / "data.parquet", schema, needs_label=False, by_column=by_column)
        np.testing.assert_array_equal(own_columns(read, schema)[0].values, positions)


def test_whole_numbers_of_a_csv_file_are_categories_whether_or_not_a_cell_is_missing(tmp_path: Path) -> None:
    """pandas writes 1.0 then: such cells were refused, with the advice to take them all for `other`."""
    described = {"kind": "unordered", "categories": [1, 2], "missing": "category"}
    assert values(tmp_path, ["2", "1", "2"], described) == [1, 0, 1]
    np.testing.assert_array_equal(values(tmp_path, ["2.0", "1.0", ""], described), [1, 0, np.nan])
    found = values(tmp_path, ["2.0", "1.0", "", "3.0", "9.0"], {**described, "other": True}, na_values="9.0")
    np.testing.assert_array_equal(found, [1, 0, np.nan, 2, np.nan])
    assert values(tmp_path, ["2.0", "2", "x.0"], {**described, "categories": ["2", "2.0", "x", "x.0"]}) == [1, 0, 3]
    for cell in ("1.00", "01", "1.5"):
        with pytest.raises(DataError, match="1 cell whose category") as caught:
            values(tmp_path, ["2.0", cell], described)
        assert [note.split(", column")[0] for note in notes_on(caught.value)] == ["data.csv, line 3"]


def test_a_number_that_means_an_empty_cell_does_so_among_texts_however_programs_wrote_it(tmp_path: Path) -> None:
    """Beside a missing cell, -999 became -999.0: the category `other`, or a group of its own."""
    towns = {"kind": "unordered", "categories": [1, 2], "missing": "category", "other": True}
    for column in (towns, {"kind": "boolean", "missing": "category"}):
        for number in ("-999", "-999.0"):
            found = values(tmp_path, ["1.0", "", "-999.0", "-999"], column, na_values=number)
            assert np.isnan(found).tolist() == [False, True, True, True]
    found = stored_values(tmp_path, [1.0, None, -999.0], towns, by_column=False, na_values="-999.0")
    np.testing.assert_array_equal(found, [0, np.nan, np.nan])
    document = LABELLED | {"group": "g", "missing_label": "drop", "positive": 1, "reader": {"na_values": -1}}
    table = read(tmp_path, "id,x,y,g\na,1,0.0,1.0\nb,2,-1.0,1.0\nc,3,1.0,-1.0\nd,4,1.0,", document, needs_label=True)
    assert table.index.tolist() == ["a"]


def test_whole_numbers_are_looked_up_among_many_categories_at_once() -> None:
    """Of 1,000 categories, a pass for each took 39 seconds in a million cells."""
    column = ColumnSchema(name="x", kind=Kind.UNORDERED, categories=tuple(map(str, range(1000))))
    cells = pd.Series(np.arange(300_000) % 1000).astype(str).add(".0").astype("string")
    start = time.perf_counter()
    found = named_as_listed(pd.DataFrame({"x": cells}), TableSchema(columns=(column,)))
    assert time.perf_counter() - start < 5
    assert found["x"].tolist() == cells.str.removesuffix(".0").tolist()


def stored_values(folder: Path, cells: Any, column: dict[str, Any], *, by_column: bool, **reader: Any) -> list[float]:
    """The same of a Parquet file."""
    (folder / "schema.yaml").write_text(yaml.safe_dump({"columns": {"x": column}, "reader": reader}))
    schema, _ = read_schema(folder / "schema.yaml")
    table = pa.table({"id": [f"{row:03}" for row in range(len(cells))], "x": cells})
    pq.write_table(table, folder / "data.parquet")
    read = read_table(folder / "data.parquet", schema, needs_label=False, by_column=by_column)
    return own_columns(read, schema)[0].values.tolist()


@pytest.mark.parametrize("by_column", [False, True])
def test_an_empty_text_is_an_empty_cell_in_parquet_as_in_csv(tmp_path: Path, by_column: bool) -> None:
    """It was the category `other`."""
    towns = {"kind": "unordered", "categories": ["Bern", "Genf"], "other": True, "missing": "category"}
    texts, found = ["Genf", "", None, "Basel"], [1, np.nan, np.nan, 2]
    np.testing.assert_array_equal(values(tmp_path, ["" if one is None else one for one in texts], towns), found)
    np.testing.assert_array_equal(stored_values(tmp_path, texts, towns, by_column=by_column), found)
    packed = pa.array(texts).dictionary_encode()
    np.testing.assert_array_equal(stored_values(tmp_path, packed, towns, by_column=by_column), found)
    for cells, reader in ((["1,5", ""], {"decimal": ","}), (["1.5", ""], {})):
        amounts = stored_values(tmp_path, cells, NUMBER, by_column=by_column, **reader)
        np.testing.assert_array_equal(amounts, [1.5, np.nan])


def test_an_empty_label_in_parquet_is_none(tmp_path: Path) -> None:
    """It was the one other label beside the positive one, so 0."""
    document = {**LABELLED, "positive": "yes", "missing_label": "drop"}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(document))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    frame = pd.DataFrame({"id": ["a", "b", "c"], "x": [1, 2, 3], "y": ["yes", "", "no"]})
    frame.to_parquet(tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet", schema, needs_label=True)
    assert (list(table.index), list(table.labels)) == (["a", "c"], [1, 0])  # type: ignore[arg-type]


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", [pa.string(), pa.date32(), pa.timestamp("us"), pa.timestamp("s", "UTC")])
def test_a_day_that_means_an_empty_cell_does_so_in_every_type(
    tmp_path: Path, kind: pa.DataType, by_column: bool
) -> None:
    """A time stamp of the year 9999 was clipped to the upper bound."""
    column = {"kind": "date", "lower": datetime.date(1990, 1, 1), "upper": datetime.date(2030, 1, 1)}
    cells = pa.array([datetime.date(9999, 12, 31), datetime.date(2024, 5, 31), None]).cast(kind)
    found = stored_values(
        tmp_path, cells, {**column, "missing": "category"}, by_column=by_column, na_values="9999-12-31"
    )
    np.testing.assert_array_equal(found, [np.nan, 19874, np.nan])


@pytest.mark.parametrize("zone", [None, "Europe/Zurich"])
@pytest.mark.parametrize("days", [[None], ["9999-12-31"] * 2, ["2024-05-31", None, "9999-12-31", "2024-05-31"]])
def test_times_of_which_none_or_several_are_the_same_may_mean_empty_cells(
    tmp_path: Path, zone: str | None, days: list[str | None]
) -> None:
    column = {"kind": "datetime", "unit": "day", "lower": datetime.date(1990, 1, 1), "upper": datetime.date(2030, 1, 1)}
    cells = pa.Array.from_pandas(pd.Series(pd.to_datetime(days)).dt.tz_localize(zone))
    found = stored_values(tmp_path, cells, {**column, "missing": "category"}, by_column=False, na_values="9999-12-31")
    assert np.isfinite(found).tolist() == [day == "2024-05-31" for day in days]


@pytest.mark.parametrize("meant", ["1900-01-01", "1900-01-01 00:00:00", " 1900-01-01T00:00Z", "01.01.1900"])
@pytest.mark.parametrize("unit", ["s", "ns"])
def test_a_time_that_means_an_empty_cell_does_so_however_it_is_written(tmp_path: Path, meant: str, unit: str) -> None:
    """A time stamp of midnight was the text of its day alone, and in CSV that of a midnight beside times of day."""
    column = {"kind": "datetime", "lower": datetime.date(1890, 1, 1), "upper": datetime.date(2030, 1, 1)}
    column |= {"missing": "category"} | ({"format": ["%d.%m.%Y", "%d.%m.%Y %H:%M"]} if "." in meant else {})
    texts = ["1900-01-01 00:00:00", "2024-05-31 07:30:00", ""]
    cells = pa.array([datetime.datetime.fromisoformat(one) if one else None for one in texts], pa.timestamp(unit))
    if "." in meant:
        texts = ["01.01.1900 00:00", "31.05.2024 07:30", ""]
    reader = {"na_values": [meant, "1900", "9999-12-31"]}
    found = [np.nan, 1717140600, np.nan]
    np.testing.assert_array_equal(values(tmp_path, texts, column, **reader), found)
    for by_column in (False, True):
        np.testing.assert_array_equal(stored_values(tmp_path, cells, column, by_column=by_column, **reader), found)


def test_a_number_that_means_an_empty_cell_is_no_year(tmp_path: Path) -> None:
    column = {"kind": "date", "lower": datetime.date(1890, 1, 1), "upper": datetime.date(2030, 1, 1)}
    cells = pa.array([datetime.date(1900, 1, 1), datetime.date(1970, 1, 2)])
    found = stored_values(tmp_path, cells, column, by_column=False, na_values=[1900, 1])
    np.testing.assert_array_equal(found, [-25567, 1])


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("cells", [[1, 9, 0, None], [1.0, 9.0, 0.0, None], [Decimal("1.00"), Decimal(9), 0, None]])
def test_a_number_that_means_an_empty_cell_does_so_among_truth_values(
    tmp_path: Path, cells: list[Any], by_column: bool
) -> None:
    """Beside a missing cell, 9 became 9.0 and was refused."""
    for part in (cells[:3], cells):
        found = stored_values(
            tmp_path, part, {"kind": "boolean", "missing": "category"}, by_column=by_column, na_values=9
        )
        np.testing.assert_array_equal(found, [1, np.nan, 0, np.nan][: len(part)])


LABELLED = {"label": "y", "columns": {"x": {"lower": 0, "upper": 9}}}


@pytest.mark.parametrize(
    ("labels", "keys", "found"),
    [
        (["yes", "no", "YES "], {"positive": "yes"}, [1, 0, 1]),
        (["yes", "no", "true"], {"positive": True, "negative": False}, [1, 0, 1]),
        (["2", "1", "2"], {"positive": 2}, [1, 0, 1]),
        (["good", "bad", "poor"], {"positive": "good", "negative": ["bad", "poor"]}, [1, 0, 0]),
        (["a", "", "b"], {"positive": "a", "missing_label": "drop"}, [1, 0]),
        (["1", "", "0"], {"missing_label": "drop"}, [1, 0]),
        (["1.500", "2.250"], {"reader": {"decimal": ",", "thousands": "."}}, [1500, 2250]),
        (["1,5", "-2"], {"reader": {"sep": ";", "decimal": ","}}, [1.5, -2]),
        (
            ["$1,234.50", "n.a."],
            {"reader": {"sep": ";", "thousands": ",", "currency": "$", "na_values": "n.a."}}
            | {"missing_label": "drop"},
            [1234.5],
        ),
    ],
)
def test_labels_of_words_are_read(tmp_path: Path, labels: list[str], keys: dict[str, Any], found: list[float]) -> None:
    sep = keys.get("reader", {}).get("sep", ",")
    text = "\n".join(
        sep.join(row) for row in [("id", "x", "y"), *((str(i), str(i), one) for i, one in enumerate(labels))]
    )
    table = read(tmp_path, text, {**LABELLED, **keys}, needs_label=True)
    assert table.labels is not None
    assert table.labels.tolist() == found
    assert table.frame["x"].tolist() == [row for row, label in enumerate(labels) if label not in ("", "n.a.")]


def test_labels_and_groups_may_be_empty_by_another_word(tmp_path: Path) -> None:
    document = LABELLED | {"group": "g", "missing_label": "drop", "reader": {"na_values": [-1, "n/a"]}}
    table = read(tmp_path, "id,x,y,g\na,1,0,1\nb,2,-1,1\nc,3,1,n/a\nd,4,1,2", document, needs_label=True)
    assert table.index.tolist() == ["a", "d"]


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("kind", [pa.int64(), pa.float64(), pa.string()])
def test_a_number_that_means_an_empty_cell_does_so_in_parquet(
    tmp_path: Path, kind: pa.DataType, by_column: bool
) -> None:
    document = {"columns": {"x": NUMBER}, "reader": {"na_values": -999}}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(document))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    cells = pa.array([1, -999, None], pa.int64()).cast(kind)
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": cells}), tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet", schema, needs_label=False, by_column=by_column)
    np.testing.assert_array_equal(own_columns(table, schema)[0].values, [1, np.nan, np.nan])


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize(
    ("cells", "expected"),
    [([Decimal("1.234"), Decimal("-999.000"), None], [1.234, np.nan, np.nan]), ([True, False, None], [1, 0, np.nan])],
)
def test_numbers_of_a_parquet_file_are_none_of_texts(
    tmp_path: Path, cells: list[Any], expected: list[float], by_column: bool
) -> None:
    """A decimal 1.234 was read as 1234 where points are marks of thousands in texts."""
    reader = {"decimal": ",", "thousands": ".", "na_values": -999}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": {"x": NUMBER}, "reader": reader}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    pq.write_table(pa.table({"id": ["a", "b", "c"], "x": cells}), tmp_path / "data.parquet")
    table = read_table(tmp_path / "data.parquet", schema, needs_label=False, by_column=by_column)
    np.testing.assert_array_equal(own_columns(table, schema)[0].values, expected)


def test_weights_and_margins_are_written_like_other_numbers(tmp_path: Path) -> None:
    document = LABELLED | {"weight": "w", "base_margin": "m", "reader": {"sep": ";", "decimal": ","}}
    table = read(tmp_path, "id;x;y;w;m\n1;1;0;0,5;-1,25\n2;2;1;2,0;3,0", document, needs_label=True)
    assert table.weights is not None
    assert table.weights.tolist() == [0.5, 2.0]
    assert [one.tolist() for one in table.margins.values()] == [[-1.25, 3.0]]


@pytest.mark.parametrize(
    ("labels", "keys", "words"),
    [
        (["a", "b", "c"], {"positive": "a"}, "2 different values beside the `positive` ones"),
        (["a", "b", "c"], {"positive": "a", "negative": "b"}, "not a number in 1 rows"),
        (["a", "", "b"], {"positive": "a"}, "not a number in 1 rows"),
        (["a", "zz", "b"], {"positive": "a", "negative": "b", "missing_label": "drop"}, "not a number in 1 rows"),
        (["", "", ""], {"missing_label": "drop"}, "'y' is empty"),
    ],
)
def test_other_labels_are_refused(tmp_path: Path, labels: list[str], keys: dict[str, Any], words: str) -> None:
    """A label that is misspelled must neither become a negative one nor be left out."""
    text = "\n".join(["id,x,y", *(f"{row},{row},{label}" for row, label in enumerate(labels))])
    with pytest.raises(TableError, match=words):
        read(tmp_path, text, {**LABELLED, **keys}, needs_label=True)


def test_records_without_a_label_are_left_out_of_training_alone(tmp_path: Path) -> None:
    text, document = "id,x,y\na,1,1\nb,2,\nc,3,0\n", {**LABELLED, "missing_label": "drop"}
    assert list(read(tmp_path, text, document, needs_label=True).index) == ["a", "c"]
    assert list(read(tmp_path, text, document, needs_label=False).index) == ["a", "b", "c"]


def test_records_of_which_none_has_a_label_are_there_to_be_scored(tmp_path: Path) -> None:
    """A file of new customers was refused for its empty column, and taken with one label in it."""
    document = {**LABELLED, "missing_label": "drop"}
    for keys in ({}, {"positive": "good"}):
        table = read(tmp_path, "id,x,y\na,1,\nb,2,\n", document | keys, needs_label=False)
        assert list(table.index) == ["a", "b"]
        assert table.labels is None


@pytest.mark.parametrize("by_column", [False, True])
def test_a_parquet_file_is_read_by_the_same_format(tmp_path: Path, by_column: bool) -> None:
    frame = pd.DataFrame(
        {
            "id": ["a", "b", "c"],
            "amount": ["$1,000", "?", "$2"],
            "since": [datetime.date(2024, 1, 1), None, datetime.date(2024, 1, 3)],
            "seen": pd.to_datetime(["2024-01-01T00:00:05", None, "2024-01-01T00:00:00"]),
            "is_new": [True, False, None],
            "town": ["bern", " Genf", "Basel"],
            "y": ["good", None, "bad"],
        }
    )
    frame.to_parquet(tmp_path / "data.parquet")
    times = {"lower": "2000-01-01", "upper": "2030-01-01", "missing": "category"}
    document = {
        "label": "y",
        "positive": "good",
        "missing_label": "drop",
        "reader": {"thousands": ",", "currency": "$", "na_values": "?", "strip": True, "ignore_case": True},
        "columns": {
            "amount": {"lower": 0, "upper": 10_000, "missing": "category"},
            "since": {"kind": "date", **times},
            "seen": {"kind": "datetime", **times},
            "is_new": {"kind": "boolean", "missing": "category"},
            "town": {"kind": "unordered", "categories": ["Bern", "Genf"], "other": True},
        },
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(document))
    schema, ignore = read_schema(tmp_path / "schema.yaml")
    path = tmp_path / "data.parquet"
    for needs_label, rows in ((True, [0, 2]), (False, [0, 1, 2])):
        table = read_table(path, schema, ignore=ignore, needs_label=needs_label, by_column=by_column)
        found = own_features(table.features, schema.columns)
        expected = {
            "amount": [1000, np.nan, 2],
            "since": [DAY, np.nan, DAY + 2],
            "seen": [SECOND + 5, np.nan, SECOND],
            "is_new": [1, 0, np.nan],
            "town": [0, 1, 2],
        }
        for name, cells in expected.items():
            np.testing.assert_array_equal(found[name], np.array(cells)[rows], err_msg=name)


@pytest.mark.parametrize(
    ("cells", "column", "line", "shape", "cure"),
    [
        (["1", "12,345.60"], NUMBER, 3, "99,999.99", "thousands: ','"),
        (["1", "12.345,60"], NUMBER, 3, "99.999,99", "thousands: '.', decimal: ','"),
        (["1", "12\u2019345.60"], NUMBER, 3, "99\u2019999.99", 'thousands: "\'"'),
        (["1", "12\u202f345,60"], NUMBER, 3, "99?999,99", "thousands: ' '"),
        (["1,5", "2"], NUMBER, 2, "9,9", "decimal: ','"),
        (["1", "0,582"], NUMBER, 3, "9,999", ": a decimal comma?"),
        (["1", "-0,582"], NUMBER, 3, "-9,999", ": a decimal comma?"),
        (["1", "1,234"], NUMBER, 3, "9,999", "thousands separators, or a decimal comma?"),
        (["1", "01.12.2024"], NUMBER, 3, "99.99.9999", "kind: date"),
        (["1", "0.5 kg"], NUMBER, 3, "9.9 aa", "a unit?"),
        (["1", "€0"], NUMBER, 3, "€9", "currency"),
        (["1", "€5"], NUMBER, 3, "€9", "currency"),
        (["1", "31.12.2024"], NUMBER, 3, "99.99.9999", "kind: date"),
        (["1", "n/a"], NUMBER, 3, "a/a", "na_values"),
        (["1", '"a\nb"', "x7"], NUMBER, 4, "a?a", "na_values"),
        (["Bern", "bern "], {"kind": "unordered", "categories": ["Bern", "Genf"]}, 3, "aaaa ", "ignore_case: true"),
        (["Bern", "Witnessed"], {"kind": "unordered", "categories": ["Bern", "Genf"]}, 3, "Aaaaaaaaa", "other: true"),
        (["yes", "perhaps"], {"kind": "boolean"}, 3, "aaaaaaa", "true_values"),
        (
            ["2024-01-01", "1.1.24"],
            {"kind": "date", "lower": "2000-01-01", "upper": "2030-01-01"},
            3,
            "9.9.99",
            "format",
        ),
    ],
)
def test_the_owner_is_shown_where_a_cell_does_not_fit(
    tmp_path: Path, cells: list[str], column: dict[str, Any], line: int, shape: str, cure: str
) -> None:
    with pytest.raises(DataError) as caught:
        values(tmp_path, cells, column)
    note = notes_on(caught.value)[0]
    assert note.startswith(f"data.csv, line {line}, column 'x': {shape}: ")
    assert cure in note
    # What may leave is the sentence, which tells neither line nor shape.
    assert shape.strip() not in str(caught.value)
    assert "line" not in str(caught.value)


@pytest.mark.parametrize(
    ("cell", "cure"),
    [
        ("0.500", "a decimal point?"),
        ("1.5", "a decimal point?"),
        ("1.234", "thousands separators, or a decimal point?"),
    ],
)
def test_a_decimal_point_beside_decimal_commas_is_shown_as_such(tmp_path: Path, cell: str, cure: str) -> None:
    with pytest.raises(DataError) as caught:
        values(tmp_path, ["7,5", cell], NUMBER, decimal=",")
    assert f": {cure}" in notes_on(caught.value)[0]


def test_a_label_of_words_is_shown_with_its_cure(tmp_path: Path) -> None:
    with pytest.raises(TableError) as caught:
        read(tmp_path, "id,x,y\na,1,Good\nb,2,bad\n", LABELLED, needs_label=True)
    assert notes_on(caught.value)[0] == (
        "data.csv, line 2, column 'y': Aaaa: a word? `positive:` in the schema names the label that means 1"
    )


@given(st.text(max_size=60))
def test_a_mask_shows_no_letter_and_no_digit_of_a_cell(text: str) -> None:
    shape = masked(text)
    assert {one for one in shape if one.isalnum()} <= {
        "9",
        "a",
        "A",
        *(o for o in text if not o.isalpha() and not o.isdigit()),
    }
    assert shape.isprintable()
    assert len(shape) <= 25


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_an_encoding_is_read_where_it_is_named(tmp_path: Path, encoding: str) -> None:
    column = {"kind": "unordered", "categories": ["Zürich", "Genève"]}
    text, document = "id,x\na,Zürich\nb,Genève\n", {"columns": {"x": column}}
    table = read(tmp_path, text, {**document, "reader": {"encoding": encoding}}, encoding=encoding)
    assert table.frame["x"].tolist() == ["Zürich", "Genève"]
    with pytest.raises(EXPECTED_ERRORS, match="not text in UTF-8"):
        read(tmp_path, text, document, encoding=encoding)


def test_the_first_error_stays_where_the_file_cannot_be_read_again(tmp_path: Path) -> None:
    pd.DataFrame({"id": ["a"], "x": [1]}).to_parquet(tmp_path / "data.parquet")
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(LABELLED))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    with (
        pytest.raises(TableError, match="has no label column 'y'") as caught,
        showing_misfits(tmp_path / "data.parquet", schema),
    ):
        read_table(tmp_path / "data.parquet", schema, needs_label=True)
    assert notes_on(caught.value) == []
