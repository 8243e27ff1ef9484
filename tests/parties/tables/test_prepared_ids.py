"""Prepared ids: kept for the very ids they are of, made again for others or when damaged, and private."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from parties.errors import ConfigError, RunFolderError
from parties.tables.party_table import PartyTable
from parties.tables.prepared_ids import check_prepared, prepared_ids


def table(*ids: str) -> PartyTable:
    return PartyTable(pd.Index(ids, dtype=object), pd.DataFrame(index=range(len(ids))))


def test_the_same_ids_are_prepared_once_and_others_under_another_key(tmp_path: Path) -> None:
    path = tmp_path / "ids.prepared"
    first, again = (prepared_ids(path, table("1", "2")) for _ in range(2))
    assert first.key == again.key
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.order, again.order)
    assert path.stat().st_mode & 0o777 == 0o600
    assert prepared_ids(path, table("1", "3")).key != first.key
    assert prepared_ids(path, table("1", "2")).key != first.key


@pytest.mark.parametrize("content", [b"", b"PK\x03", b"PK\x03\x04", b"PK\x03\x04" + bytes(26) + b"digest.npy nonsense"])
def test_a_damaged_file_is_made_again(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "ids.prepared"
    path.write_bytes(content)
    made = prepared_ids(path, table("1"))
    assert prepared_ids(path, table("1")).key == made.key


@pytest.mark.parametrize("content", [b"nonsense", b"id,spend\nk1,3\n", b"PK\x03\x04" + bytes(26) + b"data.csv,,"])
def test_a_file_of_anything_else_is_refused_and_stays(tmp_path: Path, content: bytes) -> None:
    """A list of ids, the data file and the secret key were replaced."""
    path = tmp_path / "ids.txt"
    path.write_bytes(content)
    for call in (lambda: check_prepared(path), lambda: prepared_ids(path, table("1"))):
        with pytest.raises(ConfigError, match=r"ids.txt holds something else than prepared ids.* Nothing was sent"):
            call()
    assert path.read_bytes() == content
    with pytest.raises(ConfigError, match="is a folder, where a file is needed"):
        check_prepared(tmp_path)
    with pytest.raises(ConfigError, match="absent, where it is to lie, is no folder"):
        check_prepared(tmp_path / "absent" / "ids")
    check_prepared(tmp_path / "ids.prepared")


def test_a_file_of_another_byte_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "ids.prepared"
    first = prepared_ids(path, table("1", "2"))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(first.values.tobytes(), bytes(32)))
    assert prepared_ids(path, table("1", "2")).key != first.key


def test_a_file_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    with pytest.raises((ConfigError, RunFolderError), match="absent, where it is to lie, is no folder"):
        prepared_ids(tmp_path / "absent" / "ids.prepared", table("1"))
