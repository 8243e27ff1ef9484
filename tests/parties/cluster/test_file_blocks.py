"""Blocks in files: what was put comes back, a new array takes its place as a whole, and changed files are refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from parties.cluster.file_blocks import FileBlock, encode_partitions, on_cluster
from parties.errors import RunFolderError, TableError
from parties.tables.blocks import encoded_column, record_names
from parties.tables.data_files import Stamp, stamp_of
from tests.support.bounded_files import bounded_files
from tests.support.inline_client import InlineClient
from tests.support.modes import exposed
from tests.support.released_cells import encoded, mechanisms, table

CLIENT: Any = InlineClient()


def test_a_block_is_a_mapping_of_files(tmp_path: Path) -> None:
    block = FileBlock(tmp_path / "block")
    assert (len(block), list(block), block.get("a")) == (0, [], None)
    block["a"], block["b.exact"] = np.arange(3), np.ones(2, np.int8)
    before = block["a"]
    block["a"] = np.arange(4)
    assert (before.tolist(), block["a"].tolist()) == ([0, 1, 2], [0, 1, 2, 3])
    assert sorted(block) == ["a", "b.exact"]
    assert FileBlock(tmp_path / "block")["b.exact"].dtype == np.int8
    del block["a"]
    assert "a" not in block
    assert exposed(tmp_path / "block") == set()


def test_an_array_that_finds_no_room_for_its_last_bytes_is_no_part_of_a_block(tmp_path: Path) -> None:
    block = FileBlock(tmp_path / "block")
    with bounded_files(3000), pytest.raises(RunFolderError, match=r"names\.npy cannot be written: File too large"):
        block["names"] = np.zeros(3200, np.int8)
    assert list(tmp_path.glob("block/*")) == []


def parts(folder: Path) -> list[Path]:
    data = table().assign(id=[f"k{i:03}" for i in range(len(table()))])
    paths = [folder / f"{i}.parquet" for i in range(3)]
    for path, start, end in zip(paths, (0, 70, 140), (70, 140, 200), strict=True):
        data.iloc[start:end].to_parquet(path, index=False)
    return paths


def encode(paths: list[Path], folder: Path, stamps: list[Stamp]) -> Any:
    return encode_partitions(paths, mechanisms(), folder, id_columns=["id"], stamps=stamps, client=CLIENT)


def test_partitions_are_encoded_as_the_whole_table(tmp_path: Path) -> None:
    paths = parts(tmp_path)
    stamps = [stamp_of(path) for path in paths]
    found, digest = encode(paths, tmp_path / "blocks", stamps)
    assert found.rows == (70, 70, 60)
    for c, column in enumerate(encoded(mechanisms())):
        blocks = [encoded_column(np.array(block[f"{c}.exact"])) for block in found.blocks]
        np.testing.assert_array_equal(np.concatenate([one.is_missing for one in blocks]), column.is_missing)
        codes = np.concatenate([one.codes for one in blocks])
        np.testing.assert_array_equal(codes[~column.is_missing], column.codes[~column.is_missing])
    names = record_names(pd.Index([f"k{i:03}" for i in range(70)], dtype=object))
    np.testing.assert_array_equal(found.blocks[0]["names"], np.sort(names))
    assert encode(paths, tmp_path / "again", stamps)[1] == digest


def put_back(path: Path, frame: pd.DataFrame) -> None:
    """Other content under the time of the old one."""
    changed_ns = path.stat().st_mtime_ns
    frame.to_parquet(path, index=False)
    os.utime(path, ns=(changed_ns, changed_ns))


@pytest.mark.parametrize(
    "change",
    [
        lambda path: os.utime(path, ns=(0, path.stat().st_mtime_ns + 1)),
        lambda path: put_back(path, pd.read_parquet(path).iloc[:-1]),
    ],
    ids=["time", "size"],
)
def test_a_part_that_was_changed_since_its_ids_were_agreed_on_is_refused(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    paths = parts(tmp_path)
    stamps = [stamp_of(path) for path in paths]
    change(paths[1])
    with pytest.raises(TableError, match=r"1\.parquet was changed while it was in use\. Nothing of it was released"):
        encode(paths, tmp_path / "blocks", stamps)


def test_drawing_happens_once_per_block() -> None:
    seen: list[Any] = []
    on_cluster(CLIENT)(seen.append, [{"a": 1}, {"b": 2}])  # type: ignore[list-item, dict-item]
    assert seen == [{"a": 1}, {"b": 2}]
