"""Partitions: the same ids and labels are the same digest however they are divided, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from opboost.schema import ColumnSchema, TableSchema
from opboost.trees.losses import Logistic
from parties.cluster.partitions import digest_own, ids_of, partitions_of, validate_partitions, working_folder
from parties.config.reading import read_run, read_schema
from parties.config.vertical import ActiveRun
from parties.errors import RunFolderError, TableError
from parties.runs.run_folder import RunFolder
from parties.tables.record_ids import digest_of_ids
from tests.support.inline_client import InlineClient
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
    assert found.firsts == tuple(DATA["id"].iloc[[0, *cuts]])
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


def test_a_working_folder_is_removed_with_what_a_killed_process_left_and_one_in_use_is_not(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    with working_folder(home) as first:
        (home / "work.old").mkdir()
        (home / "work.old" / "left").touch()
        with working_folder(home) as second:
            assert {path.name for path in home.iterdir()} == {first.name, second.name}
    assert not (tmp_path / "new").exists()
    assert RunFolder(first).path == first


def test_a_folder_that_cannot_be_made_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with (
        pytest.raises(RunFolderError, match=r"cannot be written: .* Nothing was sent"),
        working_folder(tmp_path / "file"),
    ):
        pass
