"""Copies of a ledger are one consistent set, whoever uses it; they are put back where it is lost or damaged."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import threading
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from parties.errors import LedgerError, RunFolderError
from parties.ledger import due_cells
from parties.ledger.backup import back_up, restore
from parties.ledger.release_ledger import Ledger
from parties.storage import atomic_files, sqlite
from parties.storage.atomic_files import write_json
from tests.support.released_cells import SPRING, kinds, lines, n_keys, on_account, order_of, predict, same, train


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "ledger.sqlite"


def lose(path: Path) -> None:
    path.unlink()


def damage(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:9000])


def lose_all(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


@pytest.mark.parametrize("accident", [lose, damage, lose_all])
def test_a_copy_brings_back_lines_and_draws(path: Path, tmp_path: Path, accident: Any) -> None:
    first = on_account(path, train())
    before = lines(path)
    assert back_up(path, tmp_path / "copy") == len(before)
    accident(path)
    if accident is not lose_all:
        with pytest.raises(LedgerError, match=r"cannot be used|Restore it from a backup"):
            Ledger(path)
    if accident is lose_all:
        with pytest.raises(LedgerError, match=r"nothing tells how many lines .*--older.*\. Nothing was restored"):
            restore(tmp_path / "copy", path)
    assert restore(tmp_path / "copy", path, older=accident is lose_all) == len(before)
    assert lines(path) == before
    assert same(on_account(path, train()), first) == [True] * 3
    assert kinds(path)["charge"] == 3
    assert {file.stat().st_mode & 0o777 for file in (*path.parent.iterdir(), *(tmp_path / "copy").iterdir())} == {0o600}


def test_a_copy_that_is_taken_after_a_crash_has_the_keys(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        pass

    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(due_cells, "desensitize", crash)
        with pytest.raises(Crash):
            on_account(path, train())
    back_up(path, tmp_path / "copy")
    first = on_account(path, train())
    lose(path)
    restore(tmp_path / "copy", path, older=True)
    assert n_keys(path) == 3
    assert same(on_account(path, train()), first) == [True] * 3
    assert kinds(path)["charge"] == 3


def test_copies_that_are_taken_while_it_is_written_can_each_be_trusted(path: Path, tmp_path: Path) -> None:
    on_account(path, order_of(range(10)))
    done = threading.Event()

    def go_on() -> None:
        for row in range(10, 40):
            on_account(path, predict([row]), occasion=replace(SPRING, task="predict"))
        done.set()

    thread = threading.Thread(target=go_on)
    thread.start()
    n_lines = []
    while not done.is_set():
        n_lines.append(back_up(path, tmp_path / f"copy{len(n_lines)}"))
    thread.join()
    assert n_lines == sorted(n_lines)
    for number, count in enumerate(n_lines):
        with Ledger(tmp_path / f"copy{number}" / "ledger.sqlite", create=False) as ledger:
            assert ledger.n_lines == count
            assert ledger.n_stored % 3 == 0
            ledger.verify()


def test_an_older_copy_is_not_put_back_unasked_nor_over_a_sound_ledger(path: Path, tmp_path: Path) -> None:
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    on_account(path, train(epsilon=0.2))
    with pytest.raises(LedgerError, match=r"is sound: a copy would forget.*Nothing was restored"):
        restore(tmp_path / "copy", path)
    lose(path)
    with pytest.raises(LedgerError, match=r"had 12 lines, and the copy has 7: .*--older.*\. Nothing was restored"):
        restore(tmp_path / "copy", path)
    assert not path.exists()
    assert restore(tmp_path / "copy", path, older=True) == 7


def test_a_ledger_that_another_program_holds_is_not_taken_for_a_damaged_one(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    monkeypatch.setattr(sqlite, "WAIT_S", 0.1)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(LedgerError, match=r"is in use, and not known to be damaged.*\. Nothing was restored"):
            restore(tmp_path / "copy", path)
    assert sorted(file.name for file in path.parent.iterdir()) == ["ledger.head.json", "ledger.sqlite"]


@pytest.mark.parametrize(
    "known",
    [{"lines": 1e999}, {"lines": True}, {"lines": "5"}, {"lines": 5}, {"lines": -1}, {"verified": {"lines": 1}}],
)
def test_a_head_that_is_damaged_does_not_tell_how_many_lines_there_were(
    path: Path, tmp_path: Path, known: dict[str, Any]
) -> None:
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    on_account(path, train(epsilon=0.2))
    head = path.with_suffix(".head.json")
    head.write_text(json.dumps(json.loads(head.read_text()) | known))
    with pytest.raises(LedgerError, match=r"head\.json"):
        Ledger(path)
    lose(path)
    with pytest.raises(LedgerError, match=r"nothing tells how many lines .*--older.*\. Nothing was restored"):
        restore(tmp_path / "copy", path)
    assert restore(tmp_path / "copy", path, older=True) == 7


def test_what_was_damaged_stays_under_a_name_of_its_own_each_time(path: Path, tmp_path: Path) -> None:
    """It may hold lines that no copy has."""
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    found = []
    for number in range(3):
        damage(path)
        with path.open("ab") as file:
            file.write(bytes([number]))
        found.append(path.read_bytes())
        restore(tmp_path / "copy", path)
    names = ["ledger.sqlite.damaged", "ledger.sqlite.damaged.2", "ledger.sqlite.damaged.3"]
    assert [path.with_name(name).read_bytes() for name in names] == found


def test_a_copy_is_not_overwritten_and_a_damaged_one_not_used(path: Path, tmp_path: Path) -> None:
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    with pytest.raises(LedgerError, match="choose another folder"):
        back_up(path, tmp_path / "copy")
    damage(tmp_path / "copy" / "ledger.sqlite")
    lose(path)
    with pytest.raises(LedgerError):
        restore(tmp_path / "copy", path)
    assert not path.exists()


def test_places_that_cannot_be_looked_at_are_told(path: Path, tmp_path: Path) -> None:
    """As those are that belong to somebody else, or have too long a name."""
    on_account(path, train())
    beyond = "n" * 300
    with pytest.raises(RunFolderError, match="cannot be written"):
        back_up(path.with_name(beyond), tmp_path / "copy")
    back_up(path, tmp_path / "copy")
    with pytest.raises(RunFolderError, match="cannot be read"):
        restore(tmp_path / "copy", tmp_path / beyond / path.name, older=True)


def test_the_key_of_held_out_records_is_copied_with_the_ledger_and_put_back_where_it_is_lost(
    path: Path, tmp_path: Path
) -> None:
    on_account(path, train())
    key = path.with_name("held_out.0123456789abcdef.json")
    write_json(key, {"own": "00" * 32})
    counts = path.with_suffix(".served.sqlite")
    counts.touch()
    back_up(path, tmp_path / "copy")
    lose_all(path)
    restore(tmp_path / "copy", path, older=True)
    assert key.read_text() == (tmp_path / "copy" / key.name).read_text()
    assert {one.stat().st_mode & 0o777 for one in (key, tmp_path / "copy" / key.name)} == {0o600}
    # An older copy of these would allow what was answered since once more.
    assert not counts.exists()
    write_json(key, {"own": "11" * 32})
    lose(path)
    restore(tmp_path / "copy", path, older=True)
    assert "11" in key.read_text()


@pytest.mark.parametrize("n_flushed", range(3))
def test_a_backup_that_was_killed_is_no_copy_and_is_made_anew(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_flushed: int
) -> None:
    """It counted as a copy, which lacked the key of held-out records, or the ledger itself."""

    class Kill(BaseException):
        pass

    on_account(path, train())
    key, left = path.with_name("held_out.0123456789abcdef.json"), iter([True] * n_flushed)
    write_json(key, {"own": "00" * 32})

    def flush(_: Path) -> None:
        if not next(left, False):
            raise Kill

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "flush", flush)
        # Nobody tidies up behind a killed process.
        patch.setattr(Path, "unlink", lambda *_, **__: None)
        with pytest.raises(Kill):
            back_up(path, tmp_path / "copy")
    with pytest.raises(LedgerError):
        restore(tmp_path / "copy", tmp_path / "elsewhere" / path.name, older=True)
    assert back_up(path, tmp_path / "copy") == len(lines(path))
    assert {one.name for one in (tmp_path / "copy").iterdir()} == {path.name, "ledger.head.json", key.name}


def test_a_key_that_finds_no_room_leaves_the_ledger_to_be_put_back(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once the ledger was there, the next call refused to put anything back."""
    on_account(path, train())
    key = path.with_name("held_out.0123456789abcdef.json")
    write_json(key, {"own": "00" * 32})
    back_up(path, tmp_path / "copy")
    lose_all(path)

    def full(partial: Path) -> None:
        if key.name in partial.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(atomic_files, "flush", full)
        with pytest.raises(RunFolderError, match="No space left"):
            restore(tmp_path / "copy", path, older=True)
    restore(tmp_path / "copy", path, older=True)
    assert key.exists()


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("n_done", range(9))
def test_where_a_copy_was_not_put_back_to_the_end_no_ledger_is_begun_anew(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n_done: int, is_killed: bool
) -> None:
    """With the damaged ledger its head was away, and the next job began a ledger that knew of no release."""

    class Kill(BaseException):
        pass

    on_account(path, train())
    before = lines(path)
    back_up(path, tmp_path / "copy")
    damage(path)
    left = iter([True] * n_done)

    def stopping(call: Any) -> Any:
        def instead(own: Path, *given: Any, **options: Any) -> Any:
            if path.parent in own.parents and not next(left, False):
                raise Kill if is_killed else OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return call(own, *given, **options)

        return instead

    with monkeypatch.context() as patch:
        for name in ("rename", "replace", "write_bytes"):
            patch.setattr(Path, name, stopping(getattr(Path, name)))
        with suppress(Kill, LedgerError, RunFolderError):
            restore(tmp_path / "copy", path)
    with suppress(LedgerError), Ledger(path):
        assert lines(path) == before
        return
    assert restore(tmp_path / "copy", path) == len(before)
    assert lines(path) == before


def test_a_link_to_a_ledger_is_copied_with_what_lies_beside_the_file_and_stays(path: Path, tmp_path: Path) -> None:
    """The link became a file of its own, and whoever else used the ledger went on with the damaged one."""
    on_account(path, train())
    key = path.with_name("held_out.0123456789abcdef.json")
    write_json(key, {"own": "00" * 32})
    before, link = lines(path), tmp_path / "linked" / "people.sqlite"
    link.parent.mkdir()
    link.symlink_to(path)
    back_up(link, tmp_path / "copy")
    assert {one.name for one in (tmp_path / "copy").iterdir()} == {path.name, "ledger.head.json", key.name}
    damage(path)
    restore(tmp_path / "copy", link)
    assert link.is_symlink()
    assert lines(path) == before
    assert [one.name for one in link.parent.iterdir()] == [link.name]


def test_a_copy_that_an_earlier_version_named_after_a_link_is_put_back(path: Path, tmp_path: Path) -> None:
    on_account(path, train())
    before, link = lines(path), tmp_path / "people.sqlite"
    link.symlink_to(path)
    back_up(path, copy := tmp_path / "copy")
    (copy / path.name).rename(copy / "people.sqlite")
    (copy / "ledger.head.json").rename(copy / "people.head.json")
    damage(path)
    restore(copy, link)
    assert lines(path) == before


def test_where_the_folder_that_a_link_leads_to_is_missing_that_is_told(path: Path, tmp_path: Path) -> None:
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    link = tmp_path / "linked" / path.name
    link.parent.mkdir()
    link.symlink_to(tmp_path / "gone" / path.name)
    with pytest.raises(
        LedgerError, match=r"leads to .*gone/ledger\.sqlite, and there is no folder .*gone\. Nothing was"
    ):
        restore(tmp_path / "copy", link, older=True)
    assert not (tmp_path / "gone").exists()
    (tmp_path / "gone").mkdir()
    assert restore(tmp_path / "copy", link, older=True) == len(lines(path))


def test_a_ledger_with_two_names_is_not_taken_for_a_damaged_one(path: Path, tmp_path: Path) -> None:
    on_account(path, train())
    back_up(path, tmp_path / "copy")
    (other := tmp_path / "other.sqlite").hardlink_to(path)
    before = path.read_bytes()
    for older in (False, True):
        with pytest.raises(LedgerError, match="hard links"):
            restore(tmp_path / "copy", path, older=older)
    assert path.read_bytes() == other.read_bytes() == before
