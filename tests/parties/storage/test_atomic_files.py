"""Files and folders that are created for their owner alone, and that nothing else creates any."""

from __future__ import annotations

import ast
import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.errors import RunFolderError
from parties.ledger import chain_head
from parties.storage.atomic_files import (
    copy,
    make_folder,
    move_folder,
    read_digested,
    replacing,
    write_array,
    write_digested,
    write_text,
)
from protocols.private_files import private_folder
from protocols.transport.keys import generate
from tests.support.bounded_files import bounded_files
from tests.support.modes import exposed, open_umask

ROOT = Path(__file__).parents[3]
CODE = [path for package in ("parties", "protocols") for path in sorted((ROOT / package).rglob("*.py"))]


@pytest.fixture(autouse=True)
def umask() -> Iterator[None]:
    with open_umask():
        yield


def test_texts_are_utf_8_whatever_the_terminals_encoding_is(tmp_path: Path) -> None:
    """A schema that was drafted on a terminal of another encoding could not be read again."""
    program = "import sys; from pathlib import Path; from parties.storage.atomic_files import write_text"
    settings = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-c", f"{program}; write_text(Path(sys.argv[1]), '\\u20ac')", str(tmp_path / "text")]
    subprocess.run(command, env={**os.environ, **settings}, cwd=ROOT, check=True)
    assert (tmp_path / "text").read_bytes() == "\u20ac".encode()


def test_a_text_may_name_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    write_text(tmp_path / "report.html", "<p>caf\udce9 \u20ac")
    assert (tmp_path / "report.html").read_bytes() == b"<p>caf\\udce9 \xe2\x82\xac"


def test_a_name_is_on_disk_before_its_writer_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a power cut an older file would let a worker answer another question with the same noise."""
    target, synced = tmp_path / "answers.json", list[tuple[bool, bool]]()

    def note(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino == tmp_path.stat().st_ino, target.exists()))

    monkeypatch.setattr(os, "fsync", note)
    (tmp_path / "source").touch()

    def write_otherwise() -> None:
        with replacing(target) as partial:
            partial.write_bytes(b"the trees of a model, after which its journal goes")

    for write in (
        lambda: write_text(target, "{}"),
        lambda: chain_head.write_private(target, b"{}"),
        lambda: copy(tmp_path / "source", target),
        lambda: write_array(target, np.arange(3)),
        write_otherwise,
    ):
        target.unlink(missing_ok=True)
        synced.clear()
        write()
        assert synced == [(False, False), (True, True)]


@pytest.mark.parametrize(
    "array",
    [
        np.empty((0, 3), np.int8),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.arange(9, dtype=">u2")[::2],
        np.array([b"abc", b"d"]),
    ],
    ids=["empty", "columns", "steps", "bytes"],
)
def test_an_array_is_read_as_it_was_written(tmp_path: Path, array: np.ndarray[Any, Any]) -> None:
    write_array(tmp_path / "array.npy", array)
    found = np.load(tmp_path / "array.npy")
    assert found.dtype == array.dtype
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize("n_missing", [1, 4000, 1 << 20])
def test_an_array_whose_last_bytes_find_no_room_does_not_take_its_place(tmp_path: Path, n_missing: int) -> None:
    """Of up to 4 KiB nothing was said, and of more no reason was told."""
    target, array = tmp_path / "array.npy", np.zeros((1 << 20) + 10000, np.uint8)
    write_array(target, array[:10])
    with (
        bounded_files(len(array) + 128 - n_missing),
        pytest.raises(RunFolderError, match=r"array\.npy cannot be written: File too large"),
    ):
        write_array(target, array)
    assert [path.name for path in tmp_path.iterdir()] == ["array.npy"]
    assert len(np.load(target)) == 10


@pytest.mark.parametrize("name", ["file", "file/below", "link"])
def test_a_folder_in_whose_place_or_way_something_is_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(OSError, match=r"exists|Not a directory"):
        private_folder(tmp_path / name)
    with pytest.raises(RunFolderError, match="cannot be written"):
        make_folder(tmp_path / name)


@pytest.fixture(params=[False, True], ids=["this device", "another device"])
def scores(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of files, of which the file system may say that it is on another device than all other places."""
    make_folder(folder := tmp_path / "work" / "scores")
    write_text(folder / "0.parquet", "of this run")
    rename = Path.rename

    def on_another_device(self: Path, target: Path) -> Path:
        if self == folder:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        return rename(self, target)

    if request.param:
        monkeypatch.setattr(Path, "rename", on_another_device)
    return folder


def test_a_folder_is_moved_to_a_place_where_nothing_is(scores: Path, tmp_path: Path) -> None:
    move_folder(scores, target := tmp_path / "made" / "predictions")
    assert [path.name for path in target.parent.iterdir()] == ["predictions"]
    assert {path.name: path.read_text() for path in target.iterdir()} == {"0.parquet": "of this run"}
    assert exposed(tmp_path) == set()
    assert not scores.exists()


@pytest.mark.parametrize("what", ["folder", "empty folder", "file", "link"])
def test_a_folder_is_moved_neither_into_nor_over_what_is_there(scores: Path, tmp_path: Path, what: str) -> None:
    """It became a folder within the one that had appeared."""
    target = tmp_path / "predictions"
    match what:
        case "file":
            write_text(target, "of somebody else")
        case "link":
            target.symlink_to(tmp_path / "nowhere")
        case _:
            make_folder(target)
    if what == "folder":
        write_text(target / "notes.txt", "of somebody else")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunFolderError, match=r"predictions cannot be written: something else is there by now$"):
        move_folder(scores, target)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_cannot_be_copied_as_a_whole_stays(
    scores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(shutil, "copyfile", full)
    monkeypatch.setattr(Path, "rename", full)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(RunFolderError, match="cannot be written: No space left on device"):
        move_folder(scores, tmp_path / "predictions")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_replaced_file_is_private_before_anything_is_written_to_it_and_after(tmp_path: Path) -> None:
    target = tmp_path / "model.json"
    target.touch(0o644)
    with replacing(target) as partial:
        assert partial.stat().st_mode & 0o777 == 0o600
        partial.write_text("{}")
    assert exposed(tmp_path) == set()
    write_text(tmp_path / "report.html", "<p>")
    copy(target, tmp_path / "copy.json")
    assert exposed(tmp_path) == set()


@pytest.mark.parametrize("is_link", [False, True])
def test_what_lies_where_a_file_is_to_be_written_is_neither_kept_nor_followed(tmp_path: Path, is_link: bool) -> None:
    other, partial = tmp_path / "other", tmp_path / ".model.json.partial"
    other.write_text("somebody else's")
    if is_link:
        partial.symlink_to(other)
    else:
        partial.touch(0o666)
    write_text(tmp_path / "model.json", "{}")
    assert other.read_text() == "somebody else's"
    assert (tmp_path / "model.json").stat(follow_symlinks=False).st_mode & 0o777 == 0o600


def test_a_public_key_may_be_read_and_not_changed_by_others(tmp_path: Path) -> None:
    private, public = generate(tmp_path / "keys", "bank")
    assert [path.stat().st_mode & 0o777 for path in (private.parent, private, public)] == [0o700, 0o600, 0o644]


_FOLDERS = {"mkdir", "makedirs", "mkfifo", "mknod", "copytree"}
_WRITERS = {"write_text", "write_bytes", "ParquetWriter", "to_csv", "to_parquet", "touch"}
_WRITERS |= {"copyfile", "copy2", "copy_files"}


def creations(code: str) -> list[str]:
    """Calls that create a file or folder in another way than by `protocols.private_files` or within `replacing`."""
    tree = ast.parse(code)
    withs = (node for node in ast.walk(tree) if isinstance(node, ast.With))
    private = {call for node in withs for call in _calls(node) if _names(call) & _private_files(node)}
    return [ast.unparse(call) for call in _calls(tree) if _creates(call) and call not in private]


def _calls(tree: ast.AST) -> Iterator[ast.Call]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def _private_files(node: ast.With) -> set[str]:
    """Names of what a `with` statement replaces, or opens privately."""
    named = {
        ast.unparse(item.optional_vars): ast.unparse(item.context_expr) for item in node.items if item.optional_vars
    }
    return {
        name
        for name, context in named.items()
        if context.startswith("replacing(")
        or (context.startswith("open(") and context.endswith(", opener=private_opener)"))
    }


def _names(call: ast.Call) -> set[str]:
    """Of what a call writes to: its object and its arguments."""
    home = [ast.unparse(call.func.value)] if isinstance(call.func, ast.Attribute) else []
    return {*home, *map(ast.unparse, call.args)}


def _creates(call: ast.Call) -> bool:
    home, _, name = ast.unparse(call.func).rpartition(".")
    if name == "open" and home == "os":
        return "O_CREAT" in ast.unparse(call)
    if name == "open":
        words = [one.value for one in ast.walk(call) if isinstance(one, ast.Constant) and isinstance(one.value, str)]
        return any(set(word) & set("wax") and len(word) <= 3 for word in words) and "opener=" not in ast.unparse(call)
    if any(word.arg == "destination_filesystem" for word in call.keywords):
        return False  # Of PyArrow's `copy_files`: to an object store.
    return name in _FOLDERS or (home, name) == ("pq", "write_table") or bool(home and name in _WRITERS and call.args)


@pytest.mark.parametrize("path", [path for path in CODE if path.name != "private_files.py"], ids=lambda path: path.stem)
def test_nothing_else_creates_files_or_folders(path: Path) -> None:
    assert creations(path.read_text()) == []


@pytest.mark.parametrize(
    "code",
    [
        "folder.mkdir(mode=0o700, parents=True)",
        "os.makedirs(folder)",
        "path.write_text('x')",
        "path.open('w')",
        "open(path, 'ab')",
        "os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)",
        "frame.to_csv(path, index=False)",
        "pq.write_table(table, path)",
        "shutil.copyfile(a, b)",
        "fs.copy_files(a, b, source_filesystem=store)",
        "with open(a, 'wb', opener=private_opener) as file, pq.ParquetWriter(b, schema) as writer:\n    pass",
        "with replacing(a) as partial:\n    other.write_text('x')",
        "with replacing(a) as partial:\n    pass\npartial.write_text('x')",
        "with open(a, 'wb', opener=private_opener) as file:\n    pass\nframe.to_csv(file)",
    ],
)
def test_a_creation_elsewhere_is_caught(code: str) -> None:
    assert len(creations(code)) == 1


@pytest.mark.parametrize(
    "code",
    [
        "with replacing(a) as partial, partial.open('w') as file:\n    pq.write_table(table, partial)",
        "open(path, 'a', opener=private_opener)",
        "with open(a, 'wb', opener=private_opener) as file, pq.ParquetWriter(file, schema) as writer:\n    pass",
        "fs.copy_files(a, place, destination_filesystem=store)",
        "path.open('rb')",
        "os.open(path, os.O_RDONLY)",
        "frame.to_csv(index=False)",
    ],
)
def test_what_creates_nothing_or_privately_is_let_be(code: str) -> None:
    assert creations(code) == []


def test_what_is_no_file_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(pipe := tmp_path / "pipe")
    (link := tmp_path / "link").symlink_to(pipe)
    for path, kind in ((pipe, "a named pipe"), (link, "a named pipe"), (tmp_path, "a folder"), (Path(), "a folder")):
        with pytest.raises(RunFolderError, match=f"cannot be written: it is {kind}"):
            write_text(path, "report")
    assert pipe.is_fifo()
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe]


def test_bytes_behind_their_digest_are_read_as_they_were_written_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    for content in (b"", b"trees"):
        write_digested(path, content)
        assert read_digested(path) == content
        written = path.read_bytes()
        for damaged in (b"", written[:-1], written[1:], written + b"x"):
            path.write_bytes(damaged)
            assert read_digested(path) is None
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_digested(path)
