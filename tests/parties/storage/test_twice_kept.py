"""Twice-kept files: any damage to one of the two changes nothing, damage to both is told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pydantic import TypeAdapter

from parties.errors import RunFolderError
from parties.storage.atomic_files import write_json
from parties.storage.twice_kept import copies, is_kept, read_either, write_twice

NUMBERS = TypeAdapter(dict[str, list[int]])
DOCUMENT = {"a": [1, 2], "b": []}


def test_every_bit_of_either_file_may_change_or_the_file_go(tmp_path: Path) -> None:
    path = tmp_path / "numbers.json"
    assert not is_kept(path)
    write_twice(path, DOCUMENT)
    for one in copies(path):
        content = bytearray(one.read_bytes())
        for place in range(len(content)):
            content[place] ^= 1
            one.write_bytes(content)
            assert read_either(path, NUMBERS) == DOCUMENT
            content[place] ^= 1
        one.unlink()
        assert is_kept(path)
        assert read_either(path, NUMBERS) == DOCUMENT
        write_twice(path, DOCUMENT)


@pytest.mark.parametrize("content", ["", "{", "[]", "3", "[" * 100_000, '{"a": [1.5]}', '{"digest": "", "n.json": {}}'])
def test_damage_to_both_is_told(tmp_path: Path, content: str) -> None:
    for one in copies(tmp_path / "n.json"):
        one.write_text(content)
    with pytest.raises(RunFolderError, match=r"n\.json cannot be read; choose another run_id\. Nothing was sent"):
        read_either(tmp_path / "n.json", NUMBERS)


def test_a_file_without_a_digest_is_read_and_one_of_another_name_is_not(tmp_path: Path) -> None:
    write_json(tmp_path / "old.json", DOCUMENT)
    assert read_either(tmp_path / "old.json", NUMBERS) == DOCUMENT
    write_twice(tmp_path / "one.json", DOCUMENT)
    document = json.loads((tmp_path / "one.json").read_text())
    write_json(tmp_path / "two.json", {"digest": document["digest"], "two.json": DOCUMENT})
    with pytest.raises(RunFolderError):
        read_either(tmp_path / "two.json", NUMBERS)


def test_a_pipe_in_the_place_of_one_is_passed_over(tmp_path: Path) -> None:
    write_twice(tmp_path / "n.json", DOCUMENT)
    (tmp_path / "n.json").unlink()
    os.mkfifo(tmp_path / "n.json")
    assert read_either(tmp_path / "n.json", NUMBERS) == DOCUMENT
