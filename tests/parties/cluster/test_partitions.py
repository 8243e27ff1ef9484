"""Partitions: the same ids and labels are the same digest however they are divided, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from opboost.schema import ColumnSchema, TableSchema
from opboost.trees.losses import Logistic
from parties.cluster import partitions
from parties.cluster.partitions import all_ids, digest_own, ids_of, partitions_of, validate_partitions
from parties.config.reading import read_run, read_schema
from parties.config.vertical import ActiveRun
from parties.errors import TableError
from parties.tables.record_ids import digest_of_ids
from tests.support.inline_client import InlineClient
from tests.support.parquet_folders import in_a_folder
from tests.support.sites import Sites

CLIENT: Any = InlineClient()
SCHEMA = TableSchema(columns=(ColumnSchema(name="age", lower=0, upper=9),), id="id", label="y")
DATA = pd.DataFrame({"id": [f"r{i}" for i in range(6)], "age": [1.0, 2, 3, 4, 5, 6], "y": [0, 1, 0, 1, 1, 0]})


def write(folder: Path, data: pd.DataFrame, *cuts: int) -> list[Path]:
    paths = []
    for number, (start, end) in enumerate(zip((0, *cuts), (*cuts, len(data)), strict=True)):
        paths.append(folder / f"{number}.parquet")
        data.iloc[start:end].to_parquet(paths[-1], index=False)
    return paths


def validated(paths: list[Path], names: tuple[str, ...] = ("age", "y")) -> Any:
    return validate_partitions(paths, SCHEMA, names, Path("data"), client=CLIENT)


@pytest.mark.parametrize("cuts", [(), (3,), (1, 2, 5)])
def test_the_digest_of_ids_does_not_depend_on_the_division(tmp_path: Path, cuts: tuple[int, ...]) -> None:
    found = validated(write(tmp_path, DATA, *cuts))
    assert found.n_rows == 6
    assert found.id_digest == digest_of_ids(pd.Index(DATA["id"], dtype=object))
    assert [one for path in found.paths for one in ids_of(path, ("id",))] == DATA["id"].tolist()


@pytest.mark.parametrize(
    ("data", "words"), [(DATA.assign(age=3.0), "constant columns age"), (DATA.iloc[:3], "has no rows; leave it out")]
)
def test_partitions_that_do_not_fit_are_refused(tmp_path: Path, data: pd.DataFrame, words: str) -> None:
    with pytest.raises(TableError, match=words):
        validated(write(tmp_path, data, 3))


def test_records_in_another_order_are_no_partitions_yet(tmp_path: Path) -> None:
    for data in (DATA.iloc[::-1], DATA.iloc[[0, 1, 2, 2, 3]]):
        assert validated(write(tmp_path, data, 3)) is None


def test_the_digest_of_own_columns_changes_with_any_label_or_cell(tmp_path: Path) -> None:
    def digest(data: pd.DataFrame) -> str:
        found = validated(write(tmp_path, data, 3))
        return digest_own(found, SCHEMA.columns, "y", Logistic(), client=CLIENT)

    others = [DATA.assign(y=1 - DATA["y"]), DATA.assign(age=DATA["age"] + 0.5), DATA.assign(id="s" + DATA["id"])]
    assert len({digest(DATA), *map(digest, others)}) == 4


def test_a_folder_is_taken_as_it_is_and_a_file_is_divided_for_the_time_of_the_run(sites: Sites) -> None:
    def files(**changes: Any) -> list[int]:
        sites.bank.run |= {"engine": "dask", **changes}
        run = read_run(sites.bank.write(), ActiveRun)
        with partitions_of(run, *read_schema(run.table_schema), needs_label=True, client=CLIENT) as found:
            return [len(pd.read_parquet(path)) for path in found.paths]

    assert files(dask={"partition_rows": 300}) == [300, 100]
    assert not (sites.bank.path / "partitions").exists()
    folder = sites.bank.path / "parts"
    folder.mkdir()
    with pytest.raises(TableError, match="holds no Parquet files"):
        files(data="parts")
    sites.bank.table.sort_values("id").to_parquet(folder / "a.parquet", index=False)
    assert files() == [400]
    sites.bank.table.to_parquet(folder / "a.parquet", index=False)
    assert files() == [300, 100]


def test_ids_of_partitions_that_changed_since_they_were_looked_through_are_not_compared(tmp_path: Path) -> None:
    paths = write(tmp_path, DATA, 3)
    found = validated(paths)
    assert all_ids(found, ("id",), client=CLIENT).index.tolist() == DATA["id"].tolist()
    DATA.iloc[3:].assign(id=["r6", "r7", "r8"]).to_parquet(paths[1], index=False)
    with pytest.raises(TableError, match=r"1\.parquet was changed while it was in use\. Nothing more was sent"):
        all_ids(found, ("id",), client=CLIENT)


def test_partitions_of_a_run_that_somebody_rewrites_are_refused(sites: Sites, monkeypatch: pytest.MonkeyPatch) -> None:
    arranged = partitions.arranged

    def arranged_and_rewritten(*given: Any, **options: Any) -> Any:
        paths = arranged(*given, **options)
        pd.read_parquet(paths[0]).iloc[::-1].to_parquet(paths[0], index=False)
        return paths

    monkeypatch.setattr(partitions, "arranged", arranged_and_rewritten)
    sites.bank.run |= {"engine": "dask", "dask": {}, "data": "parts"}
    in_a_folder(sites.bank.table, sites.bank.path / "parts")
    run = read_run(sites.bank.write(), ActiveRun)
    with (
        pytest.raises(TableError, match=r"parts: .* were changed while they were in use\. Nothing was sent"),
        partitions_of(run, *read_schema(run.table_schema), needs_label=True, client=CLIENT),
    ):
        pass
