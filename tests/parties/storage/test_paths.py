"""Paths that cannot be read or written are told in one sentence, and before there is anything to write."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from parties.errors import RunFolderError
from parties.runs.run_folder import RunFolder
from parties.storage.folder_lock import is_locked
from parties.storage.paths import check_writable, is_there


def test_a_place_at_which_nothing_can_be_written_is_known_before(tmp_path: Path) -> None:
    (file := tmp_path / "file").touch()
    (loop := tmp_path / "loop").symlink_to(loop)
    for makes_folders in (False, True):
        check_writable(tmp_path / "new", makes_folders=makes_folders)
        check_writable(file, makes_folders=makes_folders)
        for folder in (file, loop):
            with pytest.raises(RunFolderError, match="is no folder, or may not be written to"):
                check_writable(folder / "new", makes_folders=makes_folders)
    check_writable(tmp_path / "none" / "new", makes_folders=True)
    with pytest.raises(RunFolderError, match="is no folder"):
        check_writable(tmp_path / "none" / "new")


def test_what_may_not_be_looked_at_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run folders are their owner's alone: somebody else who asked for a status met a defect."""

    def denied(*arguments: object, **options: object) -> None:
        raise PermissionError(13, "Permission denied")

    assert is_there(tmp_path)
    assert not is_there(tmp_path / "absent")
    folder = RunFolder(tmp_path)
    (tmp_path / "meta.json").write_text("{}")
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", denied)
        for look in (lambda: is_locked(tmp_path), lambda: folder.locked().__enter__()):
            with pytest.raises(RunFolderError, match=f"{tmp_path} cannot be .*: Permission denied"):
                look()
    monkeypatch.setattr(Path, "stat", denied)
    for ask in (lambda: folder.has_model, lambda: folder.has_released, lambda: folder.is_finished):
        with pytest.raises(RunFolderError, match=r"/\w+.json cannot be read: Permission denied"):
            ask()
