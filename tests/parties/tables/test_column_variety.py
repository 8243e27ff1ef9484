"""Variety of columns: a single value is refused, and cells that are read as `other` are counted for their owner."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from opboost.schema import ColumnSchema, Kind, Missing, TableSchema
from opboost.table_format import ColumnFormat, TableFormat
from parties.errors import TableError
from parties.tables.column_variety import check_varied, is_constant, other_sentences, read_as_other
from parties.tables.party_table import PartyTable, read_table

TOWN = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("Bern", "Genf", "other"), missing=Missing.CATEGORY)
SCHEMA = TableSchema(
    columns=(ColumnSchema(name="age", lower=0, upper=100), TOWN),
    format=TableFormat(columns={"town": ColumnFormat(has_other=True)}),
)
FRAME = pd.DataFrame({"id": ["a", "b", "c", "d"], "age": [20, 30, 40, 50], "town": ["Bern", "Chur", None, "Thun"]})


def read(folder: Path, frame: pd.DataFrame, *, stored: bool) -> tuple[PartyTable, Path]:
    path = folder / ("data.parquet" if stored else "data.csv")
    if stored:
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return read_table(path, SCHEMA, needs_label=False, by_column=stored), path


@pytest.mark.parametrize("stored", [False, True])
def test_cells_that_are_read_as_other_are_counted_by_column(tmp_path: Path, stored: bool) -> None:
    table, path = read(tmp_path, FRAME, stored=stored)
    found = read_as_other(table.features, SCHEMA)
    assert found == {"town": 2}
    assert other_sentences(found, table.n_rows) == (
        "column town: 2 of 4 cells are read as `other`, for the schema lists no other category for them",
    )
    check_varied(table, SCHEMA, path)
    listed, _ = read(tmp_path, FRAME.assign(town=["Bern", "Genf", None, "Bern"]), stored=stored)
    assert read_as_other(listed.features, SCHEMA) == {}


@pytest.mark.parametrize("stored", [False, True])
def test_a_column_of_which_no_category_is_listed_is_not_called_constant(tmp_path: Path, stored: bool) -> None:
    table, path = read(tmp_path, FRAME.assign(town=["Chur", "Thun", "Chur", "Biel"]), stored=stored)
    with pytest.raises(TableError, match="all cells of column 'town' are read as `other`: none has a category that"):
        check_varied(table, SCHEMA, path)
    table, path = read(tmp_path, FRAME.assign(town="Bern"), stored=stored)
    with pytest.raises(TableError, match="constant columns town; leave them out of the schema"):
        check_varied(table, SCHEMA, path)


def test_columns_that_hold_a_single_value_are_refused_by_name(tmp_path: Path) -> None:
    table, path = read(tmp_path, FRAME.assign(age=30), stored=False)
    with pytest.raises(TableError, match="constant columns age; leave them out of the schema"):
        check_varied(table, SCHEMA, path)


def test_a_value_beside_empty_cells_is_not_constant(tmp_path: Path) -> None:
    table, path = read(tmp_path, FRAME.assign(town=["Bern", "Bern", None, None]), stored=False)
    check_varied(table, SCHEMA, path)


def test_a_column_in_pieces_is_constant_if_all_of_them_are() -> None:
    ones, two, empty = pd.Series([1.0, 1.0]), pd.Series([2.0]), pd.Series([None, None])
    assert is_constant(iter([ones, ones]))
    assert is_constant(iter([empty, empty]))
    assert not is_constant(iter([ones, two]))
    assert not is_constant(iter([ones, empty]))
