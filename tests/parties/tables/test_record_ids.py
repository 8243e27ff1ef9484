"""What names a record: the same text for the same record, different texts for different ones."""

from __future__ import annotations

import datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.errors import SchemaError
from opboost.schema import ColumnSchema, TableSchema
from parties.errors import TableError
from parties.tables.party_table import read_table
from parties.tables.record_ids import canonical, join, read_ids, rows_to_keep, split, with_parts

FILE = Path("data.csv")
SECRET = "81726354"

_parts = st.lists(st.text(max_size=6) | st.text("0123456789:,", max_size=6), min_size=1, max_size=3)


def ids_of(values: object, dtype: object = None) -> list[str]:
    return list(read_ids(pd.DataFrame({"k": pd.Series(values, dtype=dtype)}), ["k"], FILE))  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (["1", "22"], object),
        (["1", "22"], "string"),
        (["1", "22"], "category"),
        ([" 1", "22\t"], "string"),
        ([1, 22], "int64"),
        ([1, 22], "uint8"),
        ([1, 22], "Int64"),
        ([1.0, 22.0], "float64"),
        ([1.0, 22.0], "Float64"),
        ([1, 22], object),
        ([1.0, "22"], object),
        ([Decimal(1), Decimal("22.00")], object),
    ],
)
def test_a_number_is_the_same_id_however_a_file_stores_it(values: object, dtype: object) -> None:
    assert ids_of(values, dtype) == ["1", "22"]


def test_a_text_means_its_zeros_and_dots() -> None:
    assert ids_of(["1", "01", "1.0", "+1", "1e0"], "string") == ["1", "01", "1.0", "+1", "1e0"]


def test_composed_and_decomposed_letters_are_one() -> None:
    assert ids_of(["Zo\u00eb", "Zoe\u0308"]) == ["Zo\u00eb"] * 2
    assert canonical("\u212b") == "\u00c5"


def test_dates_are_written_as_days() -> None:
    day = datetime.date(1980, 2, 1)
    for values in ([day], [datetime.datetime(1980, 2, 1)], pd.to_datetime(["1980-02-01"]), ["1980-02-01"]):
        assert ids_of(values) == ["1980-02-01"]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.5, 2.0], "float64"),
        ([2.0**53 + 2, 1.0], "float64"),
        ([2.0**53 + 1, 1.0], "float64"),
        ([2.0**24 + 1, 1.0], "float32"),
        ([2.0**24 + 1, 1.0], "Float32"),
        ([np.inf], "float64"),
        ([True, False], "bool"),
        ([True, "x"], object),
        ([Decimal("1.5")], object),
        ([Decimal("Infinity")], object),
        ([b"81726354"], object),
        (pd.to_datetime(["1980-02-01 10:00"]), None),
    ],
)
def test_what_could_be_read_in_two_ways_is_refused_without_showing_it(values: object, dtype: object) -> None:
    with pytest.raises(TableError, match="column 'k' holds values that are neither text nor whole numbers") as refusal:
        ids_of(values, dtype)
    assert SECRET not in str(refusal.value)


@pytest.mark.parametrize("values", [["a", None, " "], [None, None, "x"], [1.0, np.nan, np.nan]])
def test_rows_without_an_id_are_counted(values: object) -> None:
    with pytest.raises(TableError, match=r"data\.csv: 2 rows have no 'k'"):
        ids_of(values)


@given(one=_parts, other=_parts)
def test_joined_ids_are_alike_only_if_every_part_is(one: list[str], other: list[str]) -> None:
    assert split(join(one)) == one
    assert (join(one) == join(other)) == (one == other)


def test_glued_parts_would_confuse_records_that_joined_ones_tell_apart() -> None:
    frame = pd.DataFrame({"name": ["ab", "a"], "born": ["c", "bc"]})
    assert list(read_ids(frame, ["name", "born"], FILE)) == ["2:ab,1:c,", "1:a,2:bc,"]


@pytest.mark.parametrize(
    ("duplicates", "rows"), [("first", [3, 0, 2]), ("last", [3, 4, 2]), ("drop", [3, 2]), ("refuse", None)]
)
def test_rows_of_a_repeated_id_are_treated_as_was_agreed(duplicates: str, rows: list[int] | None) -> None:
    ids = pd.Index(["b", "b", "c", "a", "b"], dtype=object)
    if rows is None:
        with pytest.raises(TableError, match=r"repeats an id in 2 of 5 rows; .* `duplicates: first`, `last` or `drop`"):
            rows_to_keep(ids, "refuse", ["k"], FILE)
    else:
        assert rows_to_keep(ids, duplicates, ["k"], FILE).tolist() == rows  # type: ignore[arg-type]


def test_a_file_of_repeated_ids_alone_has_nothing_left() -> None:
    with pytest.raises(TableError, match=r"has no rows whose id is not repeated in columns 'k', 'l'"):
        rows_to_keep(pd.Index(["a", "a"], dtype=object), "drop", ["k", "l"], FILE)


def test_a_table_with_several_id_columns_is_read_alike_from_csv_and_parquet(tmp_path: Path) -> None:
    schema = TableSchema(columns=(ColumnSchema(name="x", lower=0, upper=9),), id=("name", "number"))
    frame = pd.DataFrame({"number": [7, 12], "x": [1, 2], "name": ["Zoe\u0308", "Al"]})
    frame.to_csv(tmp_path / "t.csv", index=False)
    frame.assign(number=frame["number"].astype(float)).to_parquet(tmp_path / "t.parquet", index=False)
    tables = [read_table(tmp_path / name, schema, needs_label=False) for name in ("t.csv", "t.parquet")]
    assert [list(table.ids) for table in tables] == [["2:Al,2:12,", "3:Zo\u00eb,1:7,"]] * 2
    assert tables[0].id_digest == tables[1].id_digest


def test_predictions_show_the_columns_that_the_id_was_made_of() -> None:
    scored = pd.DataFrame({"id": [join(["Al", "12"]), join(["Zoë", "7"])], "prediction": [0.5, 0.25]})
    shown = with_parts(scored, ["name", "number"])
    assert shown.columns.tolist() == ["id", "id.name", "id.number", "prediction"]
    assert shown["id.number"].tolist() == ["12", "7"]
    assert with_parts(scored, ["name"]) is scored


@pytest.mark.parametrize("columns", [(), ("a", "a"), ("a", "x"), ("a", "y")])
def test_a_schema_refuses_an_id_of_no_repeated_or_otherwise_used_columns(columns: tuple[str, ...]) -> None:
    with pytest.raises(SchemaError, match="id"):
        TableSchema(columns=(ColumnSchema(name="x", lower=0, upper=9),), id=columns, label="y")
