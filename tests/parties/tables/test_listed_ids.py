"""Lists of ids: their records are chosen in the order of the ids, and a list that does not fit is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from opboost.schema import ColumnSchema, TableSchema
from parties.errors import TableError
from parties.tables import listed_ids
from parties.tables.listed_ids import select
from parties.tables.party_table import PartyTable, read_table

SCHEMA = TableSchema(columns=(ColumnSchema(name="age", lower=18, upper=100),), id="key", label="y")
SECRET = "81726354"


def table_of(folder: Path) -> PartyTable:
    (folder / "data.csv").write_text("key,age,y\nr9,20,0\nr10,30,1\nr1,40.5,1\n")
    return read_table(folder / "data.csv", SCHEMA, needs_label=True)


def test_a_list_of_ids_selects_its_records_in_the_order_of_the_ids(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    (tmp_path / "ids.txt").write_text("r9\n\n  r1 \n")
    chosen = select(table, tmp_path / "ids.txt", tmp_path / "data.csv")
    assert list(chosen.ids) == ["r1", "r9"]
    assert chosen.features["age"].tolist() == [40.5, 20.0]
    assert chosen.features.index.tolist() == [0, 1]
    assert chosen.labels is not None
    assert chosen.labels.tolist() == [1.0, 0.0]


def test_an_absent_list_of_ids_is_named(tmp_path: Path) -> None:
    table = table_of(tmp_path)
    with pytest.raises(TableError, match=r"none\.txt cannot be read"):
        select(table, tmp_path / "none.txt", tmp_path / "data.csv")


@pytest.mark.parametrize(
    ("listed", "words"),
    [
        ("", r"ids\.txt is empty"),
        ("r1\nr1\n", "must list at least one id and none twice; found 2"),
        (f"r1\n{SECRET}\n", r"data\.csv lacks 1 of the 2 ids listed in .*ids\.txt\. Nothing was sent"),
    ],
)
def test_a_list_of_ids_that_does_not_fit_is_refused_without_naming_an_id(
    tmp_path: Path, listed: str, words: str
) -> None:
    table = table_of(tmp_path)
    (tmp_path / "ids.txt").write_text(listed)
    with pytest.raises(TableError, match=words) as refusal:
        select(table, tmp_path / "ids.txt", tmp_path / "data.csv")
    assert SECRET not in str(refusal.value)


def test_a_list_is_read_in_pieces_whose_lines_may_end_in_any_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listed_ids, "PIECE_IDS", 2)
    pieces = listed_ids._listed(["a\r\n", "\n", " b\n", "c\x0bd\n", "e"])
    assert [list(piece) for piece in pieces] == [["a", "b"], ["c", "d"], ["e"]]
