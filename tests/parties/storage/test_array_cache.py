"""Cache of arrays: what was kept comes back; what is damaged, absent or cannot be written is made anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parties.storage.array_cache import KEPT_FOLDERS, keep_arrays, kept_arrays


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "encoded" / "content" / "column.npz"


def test_what_was_kept_comes_back_and_is_its_owners_alone(path: Path) -> None:
    assert kept_arrays(path) is None
    keep_arrays(path, codes=np.array([3, -1], np.int16), n_clipped=2)
    found = kept_arrays(path)
    assert found is not None
    assert (found["codes"].tolist(), found["codes"].dtype, int(found["n_clipped"])) == ([3, -1], np.int16, 2)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [folder.stat().st_mode & 0o777 for folder in (path.parent, path.parent.parent)] == [0o700] * 2
    assert [file.name for file in path.parent.iterdir()] == ["column.npz"]


def test_whatever_byte_is_damaged_nothing_or_the_same_comes_back(path: Path) -> None:
    codes = np.arange(40, dtype=np.int16)
    keep_arrays(path, codes=codes)
    whole = path.read_bytes()
    for damaged in (whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))):
        path.write_bytes(damaged)
        found = kept_arrays(path)
        # Names and dates of a file in an archive may be damaged without its arrays.
        assert found is None or "codes" not in found or np.array_equal(found["codes"], codes)
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert kept_arrays(path) is None


def test_the_oldest_folders_make_room(path: Path) -> None:
    for number in range(KEPT_FOLDERS + 3):
        keep_arrays(path.parent.with_name(str(number)) / "column.npz", codes=np.zeros(1))
    left = sorted(folder.name for folder in path.parent.parent.iterdir())
    assert len(left) == KEPT_FOLDERS
    assert str(KEPT_FOLDERS + 2) in left


def test_where_nothing_can_be_written_nothing_is_kept(path: Path) -> None:
    path.parent.parent.write_text("no folder")
    keep_arrays(path, codes=np.zeros(1))
    assert kept_arrays(path) is None
