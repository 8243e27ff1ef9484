"""What waits on disk comes back as it was put there, whole or in part, from memory or from the file."""

from __future__ import annotations

import io
import tempfile
from contextlib import closing, nullcontext

import numpy as np
import pytest

from parties.errors import RunFolderError
from parties.storage.spool import MAPPED_BYTES, ArraySpool, mapped, scattered
from protocols import private_files


@pytest.fixture(params=[1 << 20, 8], ids=["in memory", "in a file"])
def spool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> object:
    monkeypatch.setattr(private_files, "MEMORY_BYTES", request.param)
    with closing(ArraySpool()) as opened:
        yield opened


def test_arrays_come_back_whole_and_in_part(spool: ArraySpool) -> None:
    arrays = [np.arange(9, dtype="<u2"), np.empty(0, "<u1"), np.arange(5) * 1000, np.array([True, False])]
    numbers = [spool.put(array) for array in arrays]
    assert len(spool) == len(arrays)
    for number, array in reversed(list(zip(numbers, arrays, strict=True))):
        for part in (slice(None), slice(2, 4), slice(4, 400), slice(1, 1)):
            found = spool.get(number, part.start or 0, part.stop)
            assert found.dtype == array.dtype
            np.testing.assert_array_equal(found, array[part])


@pytest.mark.parametrize("block", [1, 3, 100])
def test_scattered_values_come_where_they_belong(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("parties.storage.spool.BLOCK_ROWS", block)
    rng = np.random.default_rng(5)
    for length in (0, 1, 20):
        places = rng.permutation(length)[: max(0, length - 2)]
        values = rng.integers(0, 100, len(places)).astype(np.int16)
        expected = np.full(length, -1, np.int16)
        expected[places] = values
        pieces = ((places[i : i + 6], values[i : i + 6]) for i in range(0, len(places), 6))
        found = scattered(pieces, length, np.dtype(np.int16), fill=-1)
        assert found.dtype == np.int16
        np.testing.assert_array_equal(found[:], expected)


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(data: object) -> int:
        raise OSError(28, "No space left on device")

    with closing(ArraySpool()) as spool:
        monkeypatch.setattr(spool._file, "write", full)
        with pytest.raises(RunFolderError, match="No space left on device"):
            spool.put(np.arange(3))

    class Full:
        def write(self, data: object) -> int:
            return full(data)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda: nullcontext(Full()))
    with pytest.raises(RunFolderError, match=r"No space left on device\. No ranks were sent"):
        mapped([np.arange(3.0)], n_bytes=MAPPED_BYTES + 1)


def test_a_full_disk_is_noticed_when_something_is_put(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a buffer still held was written when something else was read, whose error was taken for a defect."""

    class Full(io.BytesIO):
        def flush(self) -> None:
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "SpooledTemporaryFile", lambda max_size: Full())
    with pytest.raises(RunFolderError, match="No space left on device"):
        ArraySpool().put(np.arange(3))


def test_no_folder_for_temporary_files_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    monkeypatch.setattr(private_files, "MEMORY_BYTES", 8)
    with pytest.raises(RunFolderError, match=r"written to a temporary folder: No usable temporary directory"):
        ArraySpool().put(np.arange(3))


def test_columns_beyond_a_size_are_read_from_a_file_and_are_the_same() -> None:
    columns = [np.arange(5.0), np.array([np.nan]), np.arange(3.0)]
    assert mapped(columns, n_bytes=MAPPED_BYTES) is columns
    found = list(mapped(columns, n_bytes=MAPPED_BYTES + 1))
    assert not any(one.flags.owndata for one in found)
    for one, expected in zip(found, columns, strict=True):
        np.testing.assert_array_equal(one, expected)
        one += 1
