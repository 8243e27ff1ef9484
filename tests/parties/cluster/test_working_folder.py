"""The folder of a run's partitions is there for the time of the run, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from parties.cluster.working_folder import working_folder
from parties.errors import RunFolderError
from parties.runs.run_folder import RunFolder


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
