"""The head of a chain of lines: read as it was written, that of an earlier version without a mark, and nothing else."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

import pytest

from parties.errors import LedgerError
from parties.ledger.chain_head import Head, Verified, is_chain_begun, read_head, write_private

HEADS = [Head(1, "a"), Head(7, "b", Verified(5, "c", "d", "e"), "f"), Head(7, "b", None, "")]


@pytest.mark.parametrize("head", HEADS)
def test_a_head_is_read_as_it_was_written_and_belongs_to_its_owner_alone(tmp_path: Path, head: Head) -> None:
    path = tmp_path / "ledger.head.json"
    path.write_text("another one")
    write_private(path, json.dumps(asdict(head)).encode())
    assert read_head(path) == head
    assert path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


def test_the_head_of_an_earlier_version_has_no_mark(tmp_path: Path) -> None:
    path = tmp_path / "ledger.head.json"
    path.write_text('{"lines": 2, "digest": "a", "verified": null}')
    assert read_head(path) == Head(2, "a")


@pytest.mark.parametrize("text", ["", "{}", '{"lines": "2", "digest": ""}', '{"lines": 2, "digest": "", "mark": 0.5}'])
def test_what_is_no_head_is_an_error(tmp_path: Path, text: str) -> None:
    (path := tmp_path / "ledger.head.json").write_text(text)
    with pytest.raises(ValueError, match="Head"):
        read_head(path)


def test_a_ledger_whose_head_alone_is_there_was_lost(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    assert not is_chain_begun(path)
    write_private(tmp_path / "ledger.head.json", b"{}")
    with pytest.raises(LedgerError, match=r"is not there although its head is\. Restore it from a backup"):
        is_chain_begun(path)
    path.touch()
    assert is_chain_begun(path)


def test_what_is_no_file_is_an_error_of_the_file_system(tmp_path: Path) -> None:
    """A pipe would be waited for."""
    os.mkfifo(tmp_path / "ledger.head.json")
    with pytest.raises(OSError, match=r"head\.json is a named pipe"):
        read_head(tmp_path / "ledger.head.json")
