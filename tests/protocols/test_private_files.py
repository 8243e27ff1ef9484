"""Files and folders that are created for their owner alone, whatever the umask is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from protocols.private_files import private_folder, private_opener
from tests.support.modes import exposed, open_umask


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    with open_umask():
        yield


def test_a_folder_and_those_above_it_are_private_and_one_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir(0o755)
    private_folder(tmp_path / "shared" / "runs" / "spring")
    private_folder(tmp_path / "shared" / "runs" / "spring")
    assert exposed(tmp_path) == {f"0755 {tmp_path / 'shared'}"}
    assert (tmp_path / "shared" / "runs" / "spring").is_dir()


def test_an_opened_file_is_private_if_it_is_new(tmp_path: Path) -> None:
    (tmp_path / "old").touch(0o644)
    for name in ("new", "old"):
        with open(tmp_path / name, "a", opener=private_opener) as file:
            file.write("x")
    assert exposed(tmp_path) == {f"0644 {tmp_path / 'old'}"}
