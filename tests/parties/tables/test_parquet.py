"""A Parquet file that is read one column at a time gives what reading it as a whole gives."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import encode
from opboost.schema import ColumnSchema, Kind, Missing, TableSchema
from parties.errors import TableError
from parties.tables import parquet_files
from parties.tables.blocks import exact_codes, exact_columns
from parties.tables.column_variety import check_varied
from parties.tables.data_files import stamp_of
from parties.tables.listed_ids import select
from parties.tables.parquet import StoredColumns, encode_column
from parties.tables.party_table import PartyTable, own_columns, read_table
from tests.support.parquet_folders import in_a_folder

SCHEMA = TableSchema(
    columns=(
        ColumnSchema(name="age", lower=0, upper=100),
        ColumnSchema(name="visits", lower=0, upper=9, missing=Missing.CATEGORY),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y"), missing=Missing.CATEGORY),
    ),
    id="key",
    label="y",
)


def frame() -> pd.DataFrame:
    draw = np.random.default_rng(1)
    visits = pd.Series(draw.integers(0, 10, 50), dtype="Int64").where(draw.random(50) > 0.2)
    town = pd.Series(draw.choice(["x", "y"], 50)).where(draw.random(50) > 0.2)
    columns: dict[str, Any] = {"age": draw.uniform(0, 100, 50), "visits": visits, "town": town}
    return pd.DataFrame({"key": draw.permutation(50), "y": draw.integers(0, 2, 50), "note": "n", **columns})


def last_part(path: Path) -> Path:
    return path / "3.parquet" if path.is_dir() else path


@pytest.fixture(params=["plain", "with an index", "in groups of 7", "in a folder"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    table, target = frame(), tmp_path / "data.parquet"
    if request.param == "with an index":
        table.index = pd.Index(range(100, 150), name="line")
    if request.param == "in a folder":
        return in_a_folder(table, tmp_path / "data")
    table.to_parquet(target, row_group_size=7 if request.param == "in groups of 7" else None)
    return target


def read(path: Path, *, by_column: bool, **options: Any) -> PartyTable:
    return read_table(path, SCHEMA, ignore=("note",), needs_label=True, by_column=by_column, **options)


def test_ids_labels_and_every_column_are_the_same_in_either_way(path: Path) -> None:
    whole, stored = (read(path, by_column=by_column) for by_column in (False, True))
    assert isinstance(stored.features, StoredColumns)
    assert list(stored.ids) == list(whole.ids)
    assert stored.id_digest == whole.id_digest
    np.testing.assert_array_equal(stored.labels, whole.labels)
    some = np.array([3, 8, 40])
    for left, right in ((whole, stored), (whole.take(some), stored.take(some))):
        assert len(left.features) == len(right.features)
        for name in SCHEMA.names:
            pd.testing.assert_series_equal(left.features[name], right.features[name])
        for mine, theirs in zip(own_columns(left, SCHEMA), own_columns(right, SCHEMA), strict=True):
            np.testing.assert_array_equal(mine.values, theirs.values)
    check_varied(stored, SCHEMA, path)


def test_a_file_that_changes_between_two_columns_is_refused(path: Path) -> None:
    table = read(path, by_column=True)
    assert len(table.features["age"]) == 50
    frame().iloc[::-1].to_parquet(last_part(path))
    with pytest.raises(TableError, match="was changed while it was in use"):
        table.features["visits"]


def test_columns_that_are_not_in_memory_are_no_frame(path: Path) -> None:
    with pytest.raises(TypeError, match="one at a time"):
        assert read(path, by_column=True).frame is None
    assert list(read(path, by_column=False).frame.columns) == list(SCHEMA.names)


@pytest.mark.parametrize("by_column", [False, True], ids=["whole", "by column"])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"more": 1}, "has columns that the schema does not know: more"),
        ({"key": 3}, "column 'key' repeats an id in 49 of 50 rows"),
        ({"y": None}, "label column 'y' is missing"),
    ],
    ids=["unknown column", "repeated id", "no label"],
)
def test_the_same_files_are_refused(tmp_path: Path, by_column: bool, change: dict[str, Any], message: str) -> None:
    frame().assign(**change).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(TableError, match=message):
        read(tmp_path / "data.parquet", by_column=by_column)


@pytest.mark.parametrize("value", [4.0, np.nan], ids=["one number", "all missing"])
def test_a_stored_column_with_one_value_is_refused(tmp_path: Path, value: float) -> None:
    frame().assign(visits=value).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(TableError, match="constant columns visits"):
        check_varied(read(tmp_path / "data.parquet", by_column=True), SCHEMA, tmp_path / "data.parquet")


def test_a_file_more_in_a_folder_is_a_change(tmp_path: Path) -> None:
    path = in_a_folder(frame(), tmp_path / "data")
    table = read(path, by_column=True)
    frame().iloc[:0].to_parquet(path / "9.parquet")
    with pytest.raises(TableError, match="was changed while it was in use"):
        table.features["age"]


def mechanism(schema: ColumnSchema, **settings: Any) -> ColumnMechanism:
    return ColumnMechanism(schema, MechanismSettings(**settings))


@pytest.mark.parametrize("domain_size", [100, 1000, 70_000])
def test_columns_are_encoded_in_pieces_as_they_are_as_a_whole(
    path: Path, monkeypatch: pytest.MonkeyPatch, domain_size: int
) -> None:
    monkeypatch.setattr(parquet_files, "STORED_ROWS", 4)
    narrow = ColumnSchema(name="age", lower=20, upper=60)
    stored = read(path, by_column=True)
    for table in (stored, stored.take(np.array([1, 2, 30, 49]))):
        for schema in (*SCHEMA.columns, narrow):
            one = mechanism(schema, domain_size=domain_size)
            found = encode_column(table.features, one)
            whole = encode(table.features[schema.name], schema, domain=one.settings.domain)
            np.testing.assert_array_equal(found.codes, whole.codes)
            np.testing.assert_array_equal(found.is_missing, whole.is_missing)
            assert found.n_clipped == whole.n_clipped


def test_kept_columns_are_those_of_these_rows_and_this_schema(path: Path, tmp_path: Path) -> None:
    age, visits, town = SCHEMA.columns
    table = read(path, by_column=True, cache=tmp_path / "encoded")
    narrow = ColumnSchema(name="age", lower=20, upper=60)
    for part in (table, table.take(np.array([1, 2, 30, 49])), table.take(np.array([49, 1]))):
        for schema, size in ((age, 100), (age, 1000), (narrow, 100), (visits, 100), (town, 100)):
            one = mechanism(schema, domain_size=size)
            whole = encode(part.features[schema.name], schema, domain=one.settings.domain)
            for _ in range(2):
                ((exact, n_clipped),) = exact_columns(part.features, [one])
                np.testing.assert_array_equal(exact, exact_codes(whole))
                assert n_clipped == whole.n_clipped


def test_faults_are_counted_over_all_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "STORED_ROWS", 4)
    age = np.where(np.arange(50) % 5 == 0, np.nan, np.arange(50.0))
    frame().assign(age=age, key=np.where(np.arange(50) % 10 == 0, "", "r")).to_parquet(tmp_path / "bad.parquet")
    frame().assign(age=age).to_parquet(tmp_path / "data.parquet")
    with pytest.raises(DataError, match="has 10 missing cells"):
        encode_column(read(tmp_path / "data.parquet", by_column=True).features, mechanism(SCHEMA.columns[0]))
    with pytest.raises(TableError, match="5 rows have no 'key'"):
        read(tmp_path / "bad.parquet", by_column=True)


def test_a_file_that_changes_between_two_pieces_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_files, "STORED_ROWS", 4)
    features = read(path, by_column=True).features
    assert isinstance(features, StoredColumns)
    frame().iloc[::-1].to_parquet(last_part(path))
    with pytest.raises(TableError, match="was changed while it was in use"):
        encode_column(features, mechanism(SCHEMA.columns[0]))
    pd.concat([frame(), frame()]).to_parquet(last_part(path))
    with pytest.raises(TableError, match="was changed while it was in use"):
        encode_column(features, mechanism(SCHEMA.columns[0]))


def peak_per_row(call: Callable[[], object], n_rows: int) -> float:
    """Bytes that Python and numpy held at once during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1] / n_rows
    finally:
        tracemalloc.stop()


def test_a_stored_column_takes_few_bytes_per_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n_rows, target, schema = 300_000, tmp_path / "data.parquet", ColumnSchema(name="age", lower=0, upper=100)
    monkeypatch.setattr(parquet_files, "STORED_ROWS", 1 << 12)
    pd.DataFrame({"age": np.arange(n_rows) % 100.0}).to_parquet(target, row_group_size=1 << 16)
    features, one = StoredColumns(target, np.arange(n_rows), stamp_of(target)), mechanism(schema)
    # Measured: 4, for codes, the mask and places of the file's rows; 25 as a whole, whose doubles are changed in place.
    assert peak_per_row(lambda: encode_column(features, one), n_rows) < 6
    assert peak_per_row(lambda: encode(features["age"], schema, domain=one.settings.domain), n_rows) > 20


def test_listed_records_of_a_stored_table_are_those_of_the_whole(path: Path, tmp_path: Path) -> None:
    listed = tmp_path / "ids.txt"
    listed.write_text("7\n31\n12\n")
    whole, stored = (select(read(path, by_column=by_column), listed, path) for by_column in (False, True))
    assert list(stored.ids) == list(whole.ids) == ["12", "31", "7"]
    assert stored.id_digest == whole.id_digest
    pd.testing.assert_series_equal(stored.features["age"], whole.features["age"])
    listed.write_text("7\n50\n")
    with pytest.raises(TableError, match="lacks 1 of the 2 ids"):
        select(read(path, by_column=True), listed, path)
