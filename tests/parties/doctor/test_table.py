"""Check of a data file: every column is looked at, what a run refuses is a problem, what looks odd a warning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from opboost.schema import ColumnSchema, Kind, TableSchema
from opboost.table_format import ColumnFormat, TableFormat
from parties.config.reading import read_schema
from parties.doctor.check_result import Checklist, Finding, Status
from parties.doctor.table import MIN_ROWS_OF_IDS, TableUse, check_table

SCHEMA = TableSchema(
    columns=(
        ColumnSchema(name="age", lower=18, upper=90),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y", "z")),
    ),
    id="id",
    label="y",
)
N = MIN_ROWS_OF_IDS
DRAW = np.random.default_rng(3)
DATA = pd.DataFrame(
    {
        "id": [f"r{i}" for i in range(N)],
        "age": DRAW.uniform(20, 80, N).round(2),
        "town": DRAW.choice(["x", "y", "z"], N),
        "y": DRAW.integers(0, 2, N),
    }
)


def checked(folder: Path, data: pd.DataFrame, *, schema: TableSchema = SCHEMA, **use: Any) -> dict[str, Finding]:
    path = folder / "data.csv"
    data.to_csv(path, index=False)
    given = {"needs_label": True, "is_released": False, "outside": "they stay", **use}
    checks = Checklist()
    is_usable = check_table(TableUse(path=path, **given), schema, (), checks)
    assert is_usable is checks.is_sound
    return {one.check: one for one in checks.findings}


def test_a_sound_table_has_a_line_per_column(tmp_path: Path) -> None:
    found = checked(tmp_path, DATA)
    assert {one.status for one in found.values()} == {Status.OK}
    assert set(found) == {"data", "header", "ids", "label", "column age", "column town"}


@pytest.mark.parametrize(
    ("data", "check", "status", "words"),
    [
        (DATA.assign(age=30), "column age", Status.PROBLEM, "is constant"),
        (DATA.assign(age=["old"] * N), "column age", Status.PROBLEM, "age"),
        (DATA.assign(age=DATA["age"] + 50), "column age", Status.WARNING, "lie outside the public bounds; they stay"),
        (DATA.assign(age=range(20, 20 + N)), "column age", Status.WARNING, "is it an id?"),
        (DATA.assign(town=["x", "y"] * (N // 2)), "column town", Status.WARNING, "1 of its 3 categories do not occur"),
        (DATA.assign(y=1), "label", Status.PROBLEM, "holds a single value"),
        (DATA.assign(y=range(N)), "label", Status.WARNING, "is it an id?"),
        (DATA.assign(id=["a", "b"] * (N // 2)), "ids", Status.PROBLEM, "is it a label or a category?"),
        (DATA.drop(columns="age"), "header", Status.PROBLEM, "lacks columns of the schema: age"),
    ],
)
def test_each_fault_is_found_under_its_check_and_the_others_are_still_looked_at(
    tmp_path: Path, data: pd.DataFrame, check: str, status: Status, words: str
) -> None:
    found = checked(tmp_path, data)
    assert found[check].status is status
    assert words in found[check].sentence
    assert found["column town"].check == "column town"


def test_columns_are_called_by_their_kinds_in_the_schema(tmp_path: Path) -> None:
    columns = {
        "since": {"kind": "date", "lower": "2000-01-01", "upper": "2030-01-01", "missing": "category"},
        "seen": {"kind": "datetime", "lower": "2000-01-01", "upper": "2030-01-01", "missing": "category"},
        "is_new": {"kind": "boolean"},
        "age": {"lower": 0, "upper": 100},
    }
    (tmp_path / "schema.yaml").write_text(yaml.safe_dump({"label": "y", "columns": columns}))
    schema, _ = read_schema(tmp_path / "schema.yaml")
    days = [f"2020-01-{1 + row % 9:02}" for row in range(N)]
    data = DATA[["id", "age", "y"]].assign(
        since=["", *days[1:]], seen=["", "", *(f"{day}T10:00:00" for day in days[2:])], is_new=["yes", "no"] * (N // 2)
    )
    found = checked(tmp_path, data, schema=schema)
    assert {name: found[f"column {name}"].sentence for name in columns} == {
        "since": "date, 1 cell is missing",
        "seen": "datetime, 2 cells are missing",
        "is_new": "boolean",
        "age": "numeric",
    }


def test_where_rows_are_divided_a_single_value_is_no_problem(tmp_path: Path) -> None:
    found = checked(tmp_path, DATA.assign(age=30, y=1), needs_variety=False)
    assert [found[check].status for check in ("column age", "label")] == [Status.WARNING] * 2


def test_a_first_line_of_numbers_is_told(tmp_path: Path) -> None:
    numbers = DATA[["age", "y"]].rename(columns={"age": "1.5", "y": "2"})
    assert "the first line holds numbers, not the names of columns" in checked(tmp_path, numbers)["header"].sentence


@pytest.mark.parametrize("use", [{}, {"is_released": True, "needs_label": False}, {"needs_variety": False}], ids=str)
def test_how_many_cells_are_read_as_other_is_told_and_too_many_are_a_warning(
    tmp_path: Path, use: dict[str, Any]
) -> None:
    """Up to a fifth may be the rare categories that nobody lists; all of them are misspelt, not constant."""
    town = ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("x", "y", "z", "other"))
    form = TableFormat(columns={"town": ColumnFormat(has_other=True)})
    label = None if use.get("needs_label") is False else "y"
    schema = TableSchema(columns=(SCHEMA.columns[0], town), label=label, format=form)
    data = DATA if label else DATA.drop(columns="y")
    for n_other, status in ((20, Status.OK), (21, Status.WARNING)):
        found = checked(tmp_path, data.assign(town=(["v"] * n_other + ["x", "y", "z"] * N)[:N]), schema=schema, **use)
        assert found["column town"].status is status
        assert f"{n_other} of {N} cells are read as `other`" in found["column town"].sentence
    found = checked(tmp_path, data.assign(town=["v", "w"] * (N // 2)), schema=schema, **use)
    assert found["column town"].status is (Status.WARNING if "needs_variety" in use else Status.PROBLEM)
    assert "all cells of column 'town' are read as `other`" in found["column town"].sentence
    assert "constant" not in found["column town"].sentence
