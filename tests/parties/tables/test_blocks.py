"""Blocks: exact codes come back exactly, from wherever a block keeps them, and records are named in one order."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from opboost.desensitize import ColumnMechanism
from opboost.mechanism_settings import MechanismSettings
from opboost.preprocess import EncodedColumn, encode
from opboost.schema import ColumnSchema, Kind, Missing
from parties.cluster.file_blocks import FileBlock
from parties.storage.spool import ArraySpool
from parties.tables import blocks as module
from parties.tables.blocks import Block, SpoolBlock, encode_table, encoded_column, exact_codes, named_records


@pytest.mark.parametrize("codes", [[1, 1, 1000], [0, 200, 70_000], [7, 2**40, 3]])
@pytest.mark.parametrize("missing", [[False, True, False], [True] * 3, [False] * 3])
def test_encoded_columns_come_back_exactly(codes: list[int], missing: list[bool]) -> None:
    column = EncodedColumn(np.array(codes), np.array(missing), 0)
    found = encoded_column(exact_codes(column))
    np.testing.assert_array_equal(found.codes, column.codes)
    np.testing.assert_array_equal(found.is_missing, column.is_missing)
    assert exact_codes(column).dtype == np.min_scalar_type(-1 - max(codes))


@pytest.mark.parametrize("kind", ["memory", "spool", "files"])
def test_a_block_gives_what_it_took(tmp_path: Path, kind: str) -> None:
    with closing(ArraySpool()) as spool:
        blocks: dict[str, Block] = {"memory": {}, "spool": SpoolBlock(spool), "files": FileBlock(tmp_path / "block")}
        block = blocks[kind]
        arrays = {
            "names": np.array([b"a", b"b\0c", b"d"], "S16"),
            "0.codes": np.array([-1, 300, 2], np.int16),
            "0.orders": np.array([(1, b"k" * 32)], [("due", "<i8"), ("key", "V32")]),
        }
        for name, array in arrays.items():
            block[name] = np.zeros(2)
            block[name] = array
        assert sorted(block) == sorted(arrays)
        for name, array in arrays.items():
            assert block[name].dtype == array.dtype
            assert block[name].tobytes() == array.tobytes()
        assert block.get("1.codes") is None
        assert block.pop("1.codes", None) is None
        assert block.pop("0.codes").tolist() == [-1, 300, 2]
        assert len(block) == 2


def test_a_file_of_a_block_is_its_owners_alone(tmp_path: Path) -> None:
    block = FileBlock(tmp_path / "block")
    block["names"] = np.zeros(2)
    assert block.folder.stat().st_mode & 0o777 == 0o700
    assert [path.stat().st_mode & 0o777 for path in block.folder.iterdir()] == [0o600]


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_a_table_is_encoded_alike_in_blocks_of_any_size(monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    monkeypatch.setattr(module, "PIECE_ROWS", rows)
    table = pd.DataFrame({"x": [1.0, np.nan, 12.0, 7.0], "town": ["b", "a", "a", "b"]})
    schemas = (
        ColumnSchema(name="x", lower=0, upper=10, missing=Missing.CATEGORY),
        ColumnSchema(name="town", kind=Kind.UNORDERED, categories=("a", "b")),
    )
    which = [ColumnMechanism(schema, MechanismSettings()) for schema in schemas]
    ids = pd.Index(["d", "c", "b", "a"], dtype=object)
    with closing(ArraySpool()) as spool:
        found = encode_table(table, which, spool)
        found.named(ids)
        assert (len(found), found.n_clipped) == (4, {"x": 1})
        for c, one in enumerate(which):
            codes = np.concatenate([block[f"{c}.exact"] for block in found.blocks])
            whole = encode(table[one.schema.name], one.schema, domain=one.settings.domain)
            np.testing.assert_array_equal(codes, exact_codes(whole))
        whole_block = named_records(ids)
        of_blocks = {name for block in found.blocks for name in block["names"].tolist()}
        assert of_blocks == set(whole_block["names"].tolist())
        assert sorted(whole_block["names"].tolist()) == whole_block["names"].tolist()
        assert len(found.keys()) == 4
