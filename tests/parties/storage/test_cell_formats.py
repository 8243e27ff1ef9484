"""Serialization of cells' formats: what is written reads back, and nothing that a schema file could not say is read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from opboost.table_format import ColumnFormat, TableFormat
from parties.errors import ConfigError
from parties.storage.cell_formats import format_from_dict, format_to_dict

OF_SHOP = TableFormat(
    sep=";",
    encoding="latin-1",
    decimal=",",
    thousands=".",
    currency=("€",),
    na_values=("-999", "n/a"),
    strip=True,
    columns={
        "since": ColumnFormat(unit_s=86400, patterns=("%d.%m.%Y",)),
        "town": ColumnFormat(has_other=True),
        "id": ColumnFormat(is_boolean=True),
    },
    positive=("ja",),
    drops_unlabelled=True,
)


def test_what_is_said_of_cells_reads_back_without_what_is_said_of_files_and_labels() -> None:
    cells = OF_SHOP.of_cells(["since", "town"])
    document = json.loads(json.dumps(format_to_dict(cells)))
    assert format_from_dict(document, columns=["town", "since", "id"]) == cells
    assert document.keys() == {"decimal", "thousands", "currency", "na_values", "strip", "columns"}
    assert document["columns"].keys() == {"since", "town"}


def test_nothing_is_written_of_files_that_programs_write() -> None:
    assert format_to_dict(TableFormat(sep="|").of_cells([])) == {}
    assert format_from_dict({}, columns=[]) == TableFormat()


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"unknown": 1},
        {"decimal": 1},
        {"decimal": "x"},
        {"decimal": ","} | {"thousands": ","},
        {"thousands": "(.*)"},
        {"na_values": "n/a"},
        {"columns": {"since": {"unit_s": 7}}},
        {"columns": {"since": {"unit_s": 86400, "patterns": ["%"]}}},
        {"columns": {"since": {"unit_s": 86400, "patterns": ["%d%d"]}}},
        {"columns": {"since": {"unit_s": 86400, "patterns": ["mixed"]}}},
        {"columns": {"since": {"unit_s": None, "patterns": [None]}}},
        {"columns": ["since"]},
        # Times of a column that is not there: each is compiled whenever the model is read.
        {"columns": {"other": {"unit_s": 86400, "patterns": ["%d.%m.%Y"]}}},
        {"columns": {"since": {"unit_s": 86400, "patterns": ["%d.%m.%Y"] * 21}}},
        {"columns": {"since": {"unit_s": 86400, "patterns": ["%d" + "x" * 200]}}},
        {"sep": ";"},
        {"positive": ["yes"]},
        {"currency": ["-"]},
        {"true_values": ["x"], "false_values": ["X"]},
        {"strip": "yes"},
    ],
    ids=str,
)
def test_a_format_that_no_schema_file_can_say_is_refused(document: Any) -> None:
    with pytest.raises(ConfigError, match="the format of cells"):
        format_from_dict(document, columns=["since"])


def test_many_columns_may_have_few_patterns() -> None:
    """Each different one was compiled for every column: thousands of columns took half a minute at each reading."""
    few, many = (
        {"columns": {f"c{i}": {"unit_s": 86400, "patterns": [f"%Y{i % n}-%m-%d"]} for i in range(500)}}
        for n in (10, 500)
    )
    names = [f"c{i}" for i in range(500)]
    assert len(format_from_dict(few, columns=names).columns) == 500
    with pytest.raises(ConfigError, match="patterns that are not known"):
        format_from_dict(many, columns=names)
