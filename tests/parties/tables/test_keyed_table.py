"""Keys beside a table: of the right rows, whatever became of repeated ids, in CSV and in Parquet."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from opboost.schema import ColumnSchema, Kind, TableSchema
from opboost.table_format import TableFormat
from parties.errors import TableError
from parties.tables.keyed_table import named_rows, names_to_ask, with_keys
from parties.tables.party_table import PartyTable, read_table

SCHEMA = TableSchema(columns=(ColumnSchema(name="age", kind=Kind.NUMERIC, lower=0, upper=99),))
KEYS = [{"number": ()}, {"phone": ("phone 49",)}]
FRAME = pd.DataFrame(
    {
        "id": ["c", "a", "b", "a"],
        "age": [3, 1, 2, 9],
        "number": ["007", "8", None, "9"],
        "phone": ["030 1", None, "0049 30 2", "030 3"],
    }
)


def read(path: Path, frame: pd.DataFrame = FRAME, keys: Any = KEYS) -> PartyTable:
    frame.to_parquet(path) if path.suffix == ".parquet" else frame.to_csv(path, index=False)
    given = {"duplicates": "last", "needs_label": False}
    table = read_table(path, SCHEMA, ignore=("number", "phone"), by_column=True, **given)
    return with_keys(table, keys, path, SCHEMA, duplicates="last")


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_keys_are_those_of_the_rows_that_count_and_go_along_with_them(tmp_path: Path, name: str) -> None:
    table = read(tmp_path / name)
    assert [key.tolist() for key in table.keys] == [["9", "", "007"], ["49303", "49302", "49301"]]
    assert names_to_ask(table).tolist() == ["1 9", "2 49302", "1 007"]
    found = named_rows(table, pd.Index(["2 49302", "1 9", "1 nobody"]))
    assert found.index.tolist() == ["b", "a"]
    assert (found.names.tolist(), found.features["age"].tolist()) == (["2 49302", "1 9"], [2, 9])
    assert found.id_digest != table.id_digest
    # Taken up again, records are found by what all parties called them by, not by what one of them knows besides.
    assert [key.tolist() for key in found.keys] == [["", "9"], ["49302", ""]]


@pytest.mark.parametrize("name", ["data.csv", "data.parquet"])
def test_a_word_for_an_empty_cell_is_no_key(tmp_path: Path, name: str) -> None:
    """Each side's one record with such a word was taken for the other's."""
    schema = replace(SCHEMA, format=TableFormat(na_values=("n/a", "8")))
    path = tmp_path / name
    frame = FRAME.assign(phone=["030 1", "n/a", "0049 30 2", "030 3"], number=[7, 8, 9, 10])
    frame.to_parquet(path) if name.endswith("parquet") else frame.to_csv(path, index=False)
    table = read_table(path, schema, ignore=("number", "phone"), needs_label=False, duplicates="first")
    keys = with_keys(table, KEYS[::-1], path, schema, duplicates="first").keys
    assert [key.tolist() for key in keys] == [["", "49302", "49301"], ["", "9", "7"]]


def test_without_keys_a_record_is_called_by_its_id(tmp_path: Path) -> None:
    table = read(tmp_path / "data.csv", keys=())
    assert names_to_ask(table).tolist() == ["a", "b", "c"]
    assert named_rows(table, pd.Index(["c", "x"])).index.tolist() == ["c"]


def test_a_file_without_a_column_of_a_key_and_one_that_changes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="has no id column 'mail'"):
        read(tmp_path / "data.csv", keys=[{"mail": ()}])
    path = tmp_path / "data.csv"
    table = read(path, keys=())
    FRAME.iloc[:1].to_csv(path, index=False)
    with pytest.raises(TableError, match="was changed while it was in use"):
        with_keys(table, KEYS, path, SCHEMA, duplicates="last")
