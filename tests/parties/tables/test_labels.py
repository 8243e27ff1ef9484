"""Labels, weights and base margins of a data file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opboost.errors import SchemaError
from opboost.schema import ColumnSchema, TableSchema
from parties.errors import TableError
from parties.tables.party_table import model_inputs, read_table

AGE = ColumnSchema(name="age", lower=0, upper=100)
SCHEMA = TableSchema(columns=(AGE,), label="y", more_labels=("z",), weight="w", base_margin=("m",))


@pytest.fixture
def frame() -> pd.DataFrame:
    of_training = {"y": [1, 0, 1], "z": [5, 4, 6], "w": [2, 1, 3], "m": [0.2, 0.1, 0.3]}
    return pd.DataFrame({"id": ["b", "a", "c"], "age": [2, 1, 3], **of_training})


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_labels_weights_and_margins_are_in_the_order_of_the_ids(
    frame: pd.DataFrame, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"data{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    table = read_table(path, SCHEMA, needs_label=True, by_column=True).take(np.array([0, 2]))
    assert table.labels is not None
    assert table.weights is not None
    np.testing.assert_array_equal(table.labels, [[0, 4], [1, 6]])
    np.testing.assert_array_equal(table.weights, [1, 3])
    inputs = model_inputs(table, SCHEMA)
    np.testing.assert_array_equal(inputs["m"], [0.1, 0.3])
    np.testing.assert_array_equal(inputs["age"], [1, 3])


def test_to_predict_there_must_be_margins_but_neither_labels_nor_weights(frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    frame.drop(columns=["y", "z", "w"]).to_csv(path, index=False)
    assert read_table(path, SCHEMA, needs_label=False).labels is None
    frame.drop(columns=["m"]).to_csv(path, index=False)
    with pytest.raises(TableError, match="no base margin column 'm'"):
        read_table(path, SCHEMA, needs_label=False)


@pytest.mark.parametrize("weight", [0.0, -1.0, 1e200, np.nan], ids=str)
def test_a_weight_is_a_number_greater_than_0(frame: pd.DataFrame, tmp_path: Path, weight: float) -> None:
    path = tmp_path / "data.csv"
    frame.assign(w=[weight, 1.0, 1.0]).to_csv(path, index=False)
    with pytest.raises(TableError, match=r"weights must be from 1e-100 to 1e\+100|weight column 'w' is missing"):
        read_table(path, SCHEMA, needs_label=True)


@pytest.mark.parametrize(
    "roles",
    [{"weight": "age"}, {"weight": "y"}, {"base_margin": ("y",)}, {"more_labels": ("y",)}, {"weight": "id"}],
    ids=str,
)
def test_a_column_has_one_role(roles: dict[str, object]) -> None:
    with pytest.raises(SchemaError, match="cannot be both"):
        TableSchema(columns=(AGE,), label="y", **roles)  # type: ignore[arg-type]


def test_weights_go_with_a_label() -> None:
    with pytest.raises(SchemaError, match="names no `label`"):
        TableSchema(columns=(AGE,), weight="w")


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_groups_are_numbers_beside_the_label(frame: pd.DataFrame, tmp_path: Path, suffix: str) -> None:
    path, schema = tmp_path / f"data{suffix}", TableSchema(columns=(AGE,), label="y", group="q")
    frame = frame[["id", "age", "y"]].assign(q=["01", "1", "01"])
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path)
    table = read_table(path, schema, needs_label=True)
    assert table.labels is not None
    np.testing.assert_array_equal(table.labels, [[0, 1], [1, 0], [1, 0]])
    frame.assign(q=["01", None, "01"]).to_csv(path.with_suffix(".csv"), index=False)
    with pytest.raises(TableError, match="group column 'q' is missing in 1 rows"):
        read_table(path.with_suffix(".csv"), schema, needs_label=True)
    frame.drop(columns="q").to_csv(path.with_suffix(".csv"), index=False)
    assert read_table(path.with_suffix(".csv"), schema, needs_label=False).labels is None


def test_groups_rank_by_one_label() -> None:
    with pytest.raises(SchemaError, match="ranked in groups"):
        TableSchema(columns=(AGE,), label="y", more_labels=("z",), group="q")
