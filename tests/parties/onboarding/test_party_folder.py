"""Files of a party's folder: written together, for their owner alone, and found by relative paths."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from parties.config.chain import OwnerRun
from parties.config.reading import read_run
from parties.errors import ConfigError, RunFolderError
from parties.onboarding.party_folder import check_free, common_keys, named_key, seen_from, write_folder
from parties.storage import atomic_files
from protocols.errors import KeyFileError
from tests.support.modes import exposed, open_umask

RUN = {
    **common_keys("owner", "north", "first"),
    "data": "rows.csv",
    "owners": [{**named_key("south"), "connect": "tcp://127.0.0.1:1"}],
    "training": {"epsilon": 1, "order": ["south", "north"]},
}


def test_keys_schema_and_run_file_are_written_and_can_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "made"
    with open_umask():
        files, public = write_folder(folder, OwnerRun, RUN, "id: id\n")
    assert set(files) == {path for path in folder.rglob("*") if path.is_file()}
    assert public == folder / "keys" / "north.public"
    assert exposed(folder) == set()
    run = read_run(folder / "run.yaml", OwnerRun)
    assert run.table_schema.read_text() == "id: id\n"
    assert run.secret_key == folder / "keys" / "north.secret"


def test_a_schema_that_lies_in_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "schema.yaml").write_text("kept")
    files, _ = write_folder(tmp_path, OwnerRun, RUN, None)
    assert [path.name for path in files] == ["run.yaml", "north.secret", "north.public"]
    assert (tmp_path / "schema.yaml").read_text() == "kept"


def test_where_a_key_is_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys" / "north.public").write_text("kept")
    with pytest.raises(KeyFileError, match="never replaced"):
        write_folder(tmp_path, OwnerRun, RUN, "id: id\n")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == ["north.public"]


@pytest.mark.parametrize("name", ["schema.yaml", "run.yaml"])
@pytest.mark.parametrize("is_there", [True, False])
def test_a_folder_that_cannot_be_written_whole_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, is_there: bool
) -> None:
    folder = tmp_path / "new" / "made"
    if is_there:
        folder.mkdir(parents=True)
        (folder / "rows.csv").write_text("kept")
    before = set(tmp_path.rglob("*"))

    def full(path: Path, *_: object, **__: object) -> int:
        if path.name == f".{name}.partial":
            raise OSError(errno.ENOSPC, "No space left on device")
        return 0

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_text", full)
        with pytest.raises(RunFolderError, match=f"{name} cannot be written: No space left on device"):
            write_folder(folder, OwnerRun, RUN, "id: id\n")
    assert set(tmp_path.rglob("*")) == before
    assert len(write_folder(folder, OwnerRun, RUN, "id: id\n")[0]) == 4


@pytest.mark.parametrize("name", ["schema.yaml", "run.yaml"])
def test_a_signal_just_after_a_file_has_its_name_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = tmp_path / "made"

    def stop(*_: object) -> None:
        if (folder / name).exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "sync_folder", stop)
        with pytest.raises(KeyboardInterrupt):
            write_folder(folder, OwnerRun, RUN, "id: id\n")
    assert not list(tmp_path.iterdir())


def test_what_came_meanwhile_is_neither_replaced_nor_removed(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("kept")
    with pytest.raises(ConfigError, match="exists and is not replaced"):
        write_folder(tmp_path, OwnerRun, RUN, "id: id\n")
    assert [path.name for path in tmp_path.iterdir()] == ["run.yaml"]
    assert (tmp_path / "run.yaml").read_text() == "kept"


def test_a_place_that_is_taken_is_refused(tmp_path: Path) -> None:
    check_free(tmp_path / "new")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in (tmp_path, tmp_path / "link"):
        with pytest.raises(ConfigError, match="exists and is not replaced"):
            check_free(place)


def test_a_file_is_named_from_the_folder_through_links_to_folders(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "deep" / "er")
    assert seen_from(tmp_path / "link", tmp_path / "rows.csv") == "../../rows.csv"
