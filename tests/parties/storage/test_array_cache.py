"""Cache of arrays: what was written comes back; what is damaged, absent or cannot be written is made anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from parties.storage.array_cache import KEPT_FOLDERS, ArrayCache, Arrays

CODES = np.arange(-1, 39, dtype=np.int16)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "encoded" / "content"


def fail() -> Arrays:
    raise AssertionError


def kept(folder: Path) -> Path:
    """A cache that holds the codes."""
    cache = ArrayCache(folder)
    cache.get("column", lambda: {"codes": CODES, "n_clipped": np.array(2)})
    cache.settle()
    return folder / "column"


def test_what_was_written_comes_back_and_is_its_owners_alone(folder: Path) -> None:
    path = kept(folder)
    found = ArrayCache(folder).get("column", fail)
    assert (found["codes"].tolist(), found["codes"].dtype, int(found["n_clipped"])) == (CODES.tolist(), np.int16, 2)
    assert path.stat().st_mode & 0o777 == 0o600
    assert [place.stat().st_mode & 0o777 for place in (path.parent, path.parent.parent)] == [0o700] * 2
    assert list(folder.parent.rglob("*")) == [folder, path]


def test_what_is_not_settled_or_not_valid_counts_nothing(folder: Path) -> None:
    kept(folder)
    for cache in (ArrayCache(folder), ArrayCache(folder)):
        cache.get("other", lambda: {"codes": CODES})
        with pytest.raises(AssertionError):
            cache.get("other", fail)
        cache.settle(lambda: False)
    assert list(folder.parent.rglob("*")) == [folder, folder / "column"]


def test_whatever_byte_is_damaged_the_same_comes_back_or_it_is_made_anew(folder: Path) -> None:
    path = kept(folder)
    whole = path.read_bytes()
    damaged = [whole[:i] + bytes([whole[i] ^ 1 << i % 8]) + whole[i + 1 :] for i in range(len(whole))]
    for content in (*damaged, *(whole[:length] for length in range(len(whole)))):
        path.write_bytes(content)
        found = ArrayCache(folder).get("column", lambda: {"codes": CODES})
        assert np.array_equal(found["codes"], CODES)


def test_the_oldest_folders_make_room(folder: Path) -> None:
    for number in range(KEPT_FOLDERS + 3):
        kept(folder.with_name(str(number)))
    left = sorted(folder.name for folder in folder.parent.iterdir())
    assert len(left) == KEPT_FOLDERS
    assert str(KEPT_FOLDERS + 2) in left


def test_where_nothing_can_be_written_nothing_is_kept(folder: Path) -> None:
    folder.parent.write_text("no folder")
    with pytest.raises(AssertionError):
        ArrayCache(kept(folder).parent).get("column", fail)
