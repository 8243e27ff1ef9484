"""Passive parties' columns in a file of the active party's: each is read as its owner's files are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.errors import DataError
from opboost.mechanism_settings import MechanismSettings
from opboost.routing import Router, SplitTests
from opboost.schema import ColumnSchema, Missing, TableSchema
from opboost.table_format import ColumnFormat, TableFormat
from parties.errors import TableError
from parties.tables.party_table import PartyTable, read_table
from parties.tables.passive_columns import names_of_passive, with_passive

OWN = TableSchema(
    columns=(ColumnSchema(name="age", lower=0, upper=99),), label="y", format=TableFormat(sep=";", na_values=("999",))
)
SPEND = ColumnSchema(name="spend", lower=0, upper=2000, missing=Missing.CATEGORY)
SINCE = ColumnSchema(name="since", lower=0, upper=30_000, step=1)
OF_DATES = {"since": ColumnFormat(unit_s=86400, patterns=("%d.%m.%Y",))}


def router(*columns: ColumnSchema, form: TableFormat | None = None) -> Router:
    tests = SplitTests((), np.empty(0), np.empty(0, np.bool_))
    mechanisms = tuple(ColumnMechanism(column, MechanismSettings(epsilon=1.0)) for column in columns)
    return Router(mechanisms, tests, form or TableFormat())


SHOP = router(SPEND, SINCE, form=TableFormat(decimal=",", thousands=".", na_values=("-9",), columns=OF_DATES))
TEXT = "id;age;spend;since;seats\nb;30;1.234,5;02.01.1970;1\na;999;-9;01.01.1970;2\nc;50;999;11.01.1970;999\n"


def read(
    tmp_path: Path, text: str, routers: dict[str, Router], ignore: Sequence[str] = ()
) -> tuple[PartyTable, list[str]]:
    path = tmp_path / "both.csv"
    path.write_text(text)
    ignored = [*ignore, *names_of_passive(routers, OWN)]
    table = read_table(path, OWN, ignore=ignored, needs_label=False)
    return with_passive(table, path, routers, OWN, ignore=ignored, duplicates="refuse")


def test_each_column_is_read_as_its_owner_writes_it_in_the_order_of_the_records(tmp_path: Path) -> None:
    """All were read as the active party's: 1.234 was 1.2, -9 a number, and 999 of the shop's no cell at all."""
    mill = router(ColumnSchema(name="seats", lower=0, upper=1000))
    table, told = read(tmp_path, TEXT, {"shop": SHOP, "mill": mill})
    assert told == []
    assert list(table.index) == ["a", "b", "c"]
    expected = {"age": [np.nan, 30, 50], "spend": [np.nan, 1234.5, 999], "since": [0, 1, 10], "seats": [2, 1, 999]}
    pd.testing.assert_frame_equal(table.frame.astype(float), pd.DataFrame(expected), check_dtype=False)


def test_numbers_outside_their_owners_bounds_are_counted(tmp_path: Path) -> None:
    """A name comes from its owner: a line break in it would have begun another line of the log."""
    routers = {"mill": router(ColumnSchema(name="se\nats", lower=1.5, upper=998))}
    text = TEXT.replace("seats", '"se\nats"')
    _, told = read(tmp_path, text, routers, ["spend", "since"])
    assert len(told) == 1
    assert told[0].startswith("2 values of mill's se")
    assert "\n" not in told[0]


def test_where_an_earlier_version_did_not_say_how_cells_are_written_they_are_the_banks(tmp_path: Path) -> None:
    routers = {"mill": replace(router(ColumnSchema(name="seats", lower=0, upper=1000)), format=None)}
    with pytest.raises(DataError, match="seats"):
        read(tmp_path, TEXT, routers, ["spend", "since"])
    table, _ = read(tmp_path, TEXT.replace("999\n", "998\n"), routers, ["spend", "since"])
    assert table.frame["seats"].tolist() == [2, 1, 998]


@pytest.mark.parametrize("name", ["age", "y", "id", "spend"])
def test_columns_of_one_name_cannot_stand_in_a_file(name: str) -> None:
    routers = {"shop": router(SPEND), "mill": router(ColumnSchema(name=name, lower=0, upper=9))}
    with pytest.raises(TableError, match=f"columns '{name}': several parties have one of this name.*mode `routed`"):
        names_of_passive(routers, OWN)


def test_a_file_without_a_column_of_a_passive_party_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TableError, match=r"lacks columns of the schema: since"):
        read(tmp_path, "id;age;spend\na;1;2\n", {"shop": SHOP})
