"""Held-out records of partitions: every row is in what is left or in what is held out, and in its order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opboost.schema import ColumnSchema, TableSchema
from parties.cluster import held_out_rows
from parties.cluster.held_out_rows import by_partition, digest_without, own_records, partitions_without
from parties.cluster.partitions import validate_partitions
from parties.tables.record_ids import digest_of_ids
from tests.support.inline_client import InlineClient
from tests.support.running_twice import run_twice_at_once

CLIENT: Any = InlineClient()
SCHEMA = TableSchema(columns=(ColumnSchema(name="age", lower=0, upper=9),), id="id", label="y")
DATA = pd.DataFrame({"id": [f"r{i}" for i in range(7)], "age": np.arange(7.0), "y": [0, 1, 0, 1, 1, 0, 1]})


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_rows_of_a_table_are_those_of_its_partitions(lengths: list[int], data: st.DataObject) -> None:
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, sum(lengths) - 1)))), np.int64)
    starts = np.cumsum([0, *lengths[:-1]])
    found = by_partition(rows, lengths)
    assert len(found) == len(lengths)
    assert all((piece >= 0).all() and (piece < n).all() for piece, n in zip(found, lengths, strict=True))
    assert [row for piece, start in zip(found, starts, strict=True) for row in piece + start] == rows.tolist()


@pytest.mark.parametrize("rows", [[], [0, 4], [0, 1, 2], [6]])
@pytest.mark.parametrize("keeps_index", [False, True])
def test_what_is_held_out_and_what_is_left_are_the_whole(tmp_path: Path, rows: list[int], keeps_index: bool) -> None:
    paths = [tmp_path / "0.parquet", tmp_path / "1.parquet"]
    for path, part in zip(paths, (DATA.iloc[:3], DATA.iloc[3:]), strict=True):
        # An index as of tables that were put together, whose entries repeat.
        notes = [["nested"]] * len(part)  # which a schema may ignore
        part.assign(notes=notes).set_axis([0, 1, *[0] * (len(part) - 2)]).to_parquet(path, index=keeps_index)
    found = validate_partitions(paths, SCHEMA, (), tmp_path, client=CLIENT)
    out = by_partition(np.array(rows, np.int64), found.rows)
    left, n_left = partitions_without(paths, out, tmp_path / "left", names=("id", "age", "y"), client=CLIENT)
    kept = DATA.drop(index=rows)
    assert [one for path in left for one in pd.read_parquet(path)["id"]] == kept["id"].tolist()
    assert sum(n_left) == len(kept)
    assert 0 not in n_left
    assert digest_without(found, out, ("id",), client=CLIENT) == digest_of_ids(pd.Index(kept["id"], dtype=object))
    held = own_records(found, out, SCHEMA, client=CLIENT)
    assert list(held.ids) == DATA["id"].iloc[rows].tolist()
    assert held.own["age"].tolist() == DATA["age"].iloc[rows].tolist()
    assert held.labels.tolist() == DATA["y"].iloc[rows].tolist()


def test_a_task_that_runs_twice_at_once_writes_one_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, out = tmp_path / "0.parquet", [np.array([1], np.int64)]
    DATA.to_parquet(path, index=False)

    def write() -> Any:
        return partitions_without([path], out, tmp_path / "left", names=("id", "age", "y"), client=CLIENT)

    (left, n_left), again = run_twice_at_once(monkeypatch, held_out_rows, write)
    assert (left, n_left) == again
    assert pd.read_parquet(left[0])["id"].tolist() == DATA["id"].drop(1).tolist()
    assert [file.name for file in (tmp_path / "left").iterdir()] == [left[0].name]
