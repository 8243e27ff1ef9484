"""The active party's columns of the records in a request are those that a data file would give."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pandas as pd
import pytest
import yaml
from hypothesis import given
from pydantic import ValidationError

from opboost.errors import DataError, OpBoostError
from opboost.schema import ColumnSchema, Kind, Missing, TableSchema
from parties.config.reading import read_schema
from parties.errors import PartyError
from parties.service.requests import OwnRecords, RecordBody, ScoresBody

SCHEMA = TableSchema(
    columns=(
        ColumnSchema(name="age", kind=Kind.NUMERIC, lower=0, upper=100, missing=Missing.CATEGORY),
        ColumnSchema(name="region", kind=Kind.UNORDERED, categories=("north", "south", "3")),
    ),
    id="id",
)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> OwnRecords:
    path = tmp_path_factory.mktemp("own") / "data.csv"
    frame = pd.DataFrame({"id": ["k1", "k2", "k3"], "age": [31, np.nan, 4.5], "region": ["south", "north", "3"]})
    frame.to_csv(path, index=False)
    return OwnRecords.read(path, SCHEMA, (), "refuse")


def parsed(*records: dict[str, Any]) -> list[RecordBody]:
    return ScoresBody.model_validate({"records": list(records)}).records


def test_an_id_alone_takes_the_data_files_columns_and_columns_that_were_sent_come_first(records: OwnRecords) -> None:
    sent = {"age": 7, "region": 3}
    ids, own, is_there = records.of(
        parsed(
            {"id": " k3 "}, {"id": "new"}, {"id": "k1", "columns": sent}, {"id": 5, "columns": {**sent, "age": None}}
        )
    )
    assert ids == ["k3", "new", "k1", "5"]
    assert is_there.tolist() == [True, False, True, True]
    np.testing.assert_array_equal(own["age"][is_there], [4.5, 7, np.nan])
    np.testing.assert_array_equal(own["region"][is_there], [2, 2, 2])


@given(
    rows=st.lists(
        st.tuples(st.none() | st.floats(-1e6, 1e6, width=32), st.sampled_from(["north", "south", "3"])), min_size=1
    )
)
def test_columns_in_json_are_read_as_those_of_a_data_file(
    rows: list[tuple[float | None, str]], records: OwnRecords, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("twin") / "data.parquet"
    ids = [f"k{i:03}" for i in range(len(rows))]
    ages = pd.array([age for age, _ in rows], dtype="Float64")
    pd.DataFrame({"id": ids, "age": ages, "region": [region for _, region in rows]}).to_parquet(path)
    twin = OwnRecords.read(path, SCHEMA, (), "refuse")
    bodies = parsed(*({"id": i, "columns": {"age": a, "region": r}} for i, (a, r) in zip(ids, rows, strict=True)))
    _, own, is_there = records.of(bodies)
    assert is_there.all()
    for name, values in twin.values.items():
        np.testing.assert_array_equal(own[name], values)


def test_texts_in_json_are_read_by_the_format_of_the_schema(tmp_path: Path) -> None:
    """A category that is not listed was refused in place of read as `other`, and so was every date."""
    times = {"kind": "date", "format": "%d.%m.%Y", "lower": date(1990, 1, 1), "upper": date(2030, 1, 1)}
    document = {
        "reader": {"decimal": ",", "thousands": ".", "na_values": "n/a", "strip": True},
        "columns": {
            "town": {"kind": "unordered", "categories": ["Bern", "Genf"], "other": True},
            "since": {**times, "missing": "category"},
            "is_new": {"kind": "boolean"},
            "amount": {"lower": 0, "upper": 10_000, "missing": "category"},
        },
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump(document, sort_keys=False))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    rows = [(" Bern", "02.01.1970", "yes", "1.234,5"), ("Basel", "n/a", "false", "n/a"), (7, None, "0", "12")]
    frame = pd.DataFrame([("k1", *rows[0]), ("k2", *rows[1]), ("k3", *rows[2])], columns=["id", *schema.names])
    frame.astype("string").to_parquet(tmp_path / "data.parquet")
    of_file = OwnRecords.read(tmp_path / "data.parquet", schema, (), "refuse")
    sent = [{"id": f"k{n}", "columns": dict(zip(schema.names, row, strict=True))} for n, row in enumerate(rows, 1)]
    _, own, _ = of_file.of(parsed(*sent))
    for name, values in of_file.values.items():
        np.testing.assert_array_equal(own[name], values)
    assert own["town"].tolist() == [0, 2, 2]
    # Numbers of JSON's are numbers, whatever the marks in texts.
    as_numbers = {"town": "Genf", "since": 366, "is_new": "no", "amount": 1.234}
    _, own, _ = of_file.of(parsed({"id": "k4", "columns": as_numbers}))
    assert {name: values.tolist() for name, values in own.items()} == {
        "town": [1],
        "since": [366],
        "is_new": [0],
        "amount": [1.234],
    }
    with pytest.raises(DataError, match=r"a date by the schema but 1 cell is not a date written as '%d\.%m\.%Y'"):
        of_file.of(parsed({"id": "k4", "columns": {**as_numbers, "since": "1970-01-02"}}))


@pytest.mark.parametrize("reader", [{}, {"strip": True}])
def test_a_category_that_is_a_number_may_be_written_as_a_fraction_in_json(
    reader: dict[str, Any], tmp_path: Path
) -> None:
    """3.0 was refused, or with `other: true` scored as `other`, though a Parquet file may hold it."""
    columns = {
        "region": {"kind": "unordered", "categories": [1, 3]},
        "branch": {"kind": "unordered", "categories": [1, 3], "other": True, "missing": "category"},
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"reader": reader, "columns": columns}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    pd.DataFrame({"id": ["k1", "k2"], "region": [1.0, 3.0], "branch": [3.0, None]}).to_parquet(
        tmp_path / "data.parquet"
    )
    of_file = OwnRecords.read(tmp_path / "data.parquet", schema, (), "refuse")
    document = '{"records": [{"id": 1, "columns": {"region": 1.0, "branch": 3.0}},'
    document += (
        ' {"id": 2, "columns": {"region": 3, "branch": null}}, {"id": 3, "columns": {"region": 1, "branch": 2.5}}]}'
    )
    _, own, _ = of_file.of(ScoresBody.model_validate_json(document).records)
    for name, values in of_file.values.items():
        np.testing.assert_array_equal(own[name][:2], values)
    assert own["branch"][2] == 2


@pytest.mark.parametrize("reader", [{}, {"strip": True}])
def test_texts_in_json_are_empty_or_whole_numbers_as_those_of_csv(reader: dict[str, Any], tmp_path: Path) -> None:
    """An empty text was scored as `other`, and so was "3.0"."""
    columns = {
        "branch": {"kind": "unordered", "categories": [1, 3], "other": True, "missing": "category"},
        "age": {"lower": 0, "upper": 100, "missing": "category"},
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"reader": reader, "columns": columns}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    cells = [("3.0", "31"), ("", ""), ("1", "4.5"), ("7.0", "")]
    lines = (f"k{n},{age},{branch}" for n, (branch, age) in enumerate(cells))
    (tmp_path / "data.csv").write_text("\n".join(["id,age,branch", *lines]))
    of_file = OwnRecords.read(tmp_path / "data.csv", schema, (), "refuse")
    sent = ({"id": f"k{n}", "columns": {"branch": branch, "age": age}} for n, (branch, age) in enumerate(cells))
    _, own, _ = of_file.of(parsed(*sent))
    for name, values in of_file.values.items():
        np.testing.assert_array_equal(own[name], values)
    np.testing.assert_array_equal(own["branch"], [1, np.nan, 0, 2])


def test_a_number_in_json_that_means_an_empty_cell_is_one(tmp_path: Path) -> None:
    """The number was scored as such, though the same number in the data file was a missing cell."""
    times = {"kind": "date", "lower": date(1900, 1, 1), "upper": date(2030, 1, 1), "missing": "category"}
    columns = {"amount": {"lower": 0, "upper": 10, "missing": "category"}, "since": times}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"reader": {"na_values": -999}, "columns": columns}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    (tmp_path / "data.csv").write_text("id,amount,since\nk1,-999,2024-01-01\n")
    of_file = OwnRecords.read(tmp_path / "data.csv", schema, (), "refuse")
    sent = [{"id": f"k{n}", "columns": {"amount": n, "since": n}} for n in (-999, -999.0, 10, None)]
    _, own, _ = of_file.of(parsed(*sent, {"id": "k9", "columns": {"amount": "-999", "since": None}}))
    np.testing.assert_array_equal(own["amount"], [np.nan, np.nan, 10, np.nan, np.nan])
    np.testing.assert_array_equal(own["since"], [-999, -999, 10, np.nan, np.nan])
    np.testing.assert_array_equal(of_file.values["amount"], [np.nan])


@pytest.mark.parametrize("cell", ["-1", "-999", "0000"])
def test_a_text_in_json_before_the_first_year_is_no_date(tmp_path: Path, cell: str) -> None:
    times = {"kind": "date", "lower": date(1900, 1, 1), "upper": date(2030, 1, 1), "missing": "category"}
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"columns": {"since": times}}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    (tmp_path / "data.csv").write_text("id,since\nk1,2024-01-01\n")
    of_file = OwnRecords.read(tmp_path / "data.csv", schema, (), "refuse")
    with pytest.raises(DataError, match="1 cell is not a date written as 2024-05-31"):
        of_file.of(parsed({"id": "k2", "columns": {"since": cell}}))


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ({"id": ["k1", "x"]}, "an id has 2 parts; the schema has 1: id"),
        ({"id": "k1", "columns": {"age": 3}}, "`columns` lacks region"),
        ({"id": "k1", "columns": {}}, "`columns` lacks age, region"),
        ({"id": "k1", "columns": {"age": 3, "region": "north", "y": 1}}, "`columns` has y, which the schema"),
        ({"id": "k1", "columns": {"age": "secret", "region": "north"}}, "1 cell is not a number"),
        ({"id": "k1", "columns": {"age": 3, "region": "secret"}}, "1 cell whose category is not among the 3"),
        ({"id": "k1", "columns": {"age": 3, "region": None}}, "1 missing cell"),
        ({"id": "k1", "columns": {"age": 10**400, "region": "north"}}, "not numbers"),
    ],
)
def test_a_record_that_does_not_fit_is_refused_without_its_cells(
    records: OwnRecords, record: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((PartyError, OpBoostError), match=sentence) as caught:
        records.of(parsed(record))
    assert "secret" not in str(caught.value)
    assert "k1" not in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"records": []},
        {"records": [{"id": ""}]},
        {"records": [{"id": "k" * 201}]},
        {"records": [{"id": "\ud800"}]},
        {"records": [{"id": True}]},
        {"records": [{"id": 1.5}]},
        {"records": [{"id": ["k1"]}]},
        {"records": [{"id": "k1", "column": {}}]},
        {"records": [{"id": "k1", "columns": {"age": float("nan")}}]},
        {"records": [{"id": "k1", "columns": {"age": True}}]},
        {"records": [{"id": "k1", "columns": {"age": [1]}}]},
        {"records": [{"id": "k1", "columns": {"age": 1, "region": "\ud800"}}]},
        {"records": [{"id": "k1", "columns": {"age": 1, "\ud800": "3"}}]},
        {"records": [{"id": "k1"}], "reasons": -1},
        {"records": [{"id": "k1"}], "mode": "routed"},
    ],
)
def test_a_malformed_request_is_refused(document: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        ScoresBody.model_validate(document)


MANY = range(20_000)


@pytest.mark.parametrize(
    "records",
    [
        [1 for _ in MANY],
        [{} for _ in MANY],
        [{"id": "k1", "columns": {str(i): [] for i in MANY}}],
        [{"id": "k1", **{str(i): 1 for i in MANY}}],
        [{"id": [[] for _ in MANY]}],
    ],
)
def test_a_malformed_request_makes_few_errors_however_large_it_is(records: list[Any]) -> None:
    """Others wait while errors are made: 4 MB of ones would take half a minute and 2.7 GB."""
    with pytest.raises(ValidationError) as caught:
        ScoresBody.model_validate({"records": records})
    assert caught.value.error_count() < 50


def test_ids_of_several_columns_come_in_parts(tmp_path: Path) -> None:
    schema = TableSchema(columns=SCHEMA.columns, id=("branch", "number"))
    path = tmp_path / "data.csv"
    pd.DataFrame({"branch": ["a", "ab"], "number": [1, 2], "age": [1, 2], "region": ["3", "3"]}).to_csv(
        path, index=False
    )
    own = OwnRecords.read(path, schema, (), "refuse")
    _, values, is_there = own.of(parsed({"id": ["ab", 2]}, {"id": ["ab", "1"]}))
    assert is_there.tolist() == [True, False]
    assert values["age"][0] == 2


def test_an_id_that_is_a_number_has_no_more_characters_than_a_text() -> None:
    assert parsed({"id": 10**199})[0].id == 10**199
    for one in (10**200, -(10**200)):
        with pytest.raises(ValidationError):
            parsed({"id": one})
