"""Lines of a log: in the order of time, from all parts; a line that a crash cut short is left out, no other one."""

from __future__ import annotations

import gzip
import json
import os
from pathlib import Path

import pytest

from parties.errors import RunFolderError
from parties.reports.log_lines import log_lines, read_lines
from parties.runs.run_folder import RunFolder


def text(second: int, *events: str) -> str:
    at = {"time": f"2026-01-01T00:00:0{second}", "seconds": 1.0, "message": "a step"}
    return "".join(json.dumps({**at, "event": event}) + "\n" for event in events)


def test_parts_are_read_in_the_order_of_time_with_a_services_messages(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text(text(4, "d", "e") + '{"event": "sent", "ti')
    (tmp_path / "log.jsonl.1").write_text(text(2, "b"))
    (tmp_path / "log.jsonl.2.gz").write_bytes(gzip.compress(text(1, "a").encode()))
    (tmp_path / "messages.jsonl").write_text(text(3, "c"))
    assert [line["event"] for line in log_lines(RunFolder(tmp_path))] == ["a", "b", "c", "d", "e"]


def test_a_part_that_is_being_compressed_counts_once(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl.1").write_text(text(1, "a"))
    (tmp_path / "log.jsonl.1.gz").write_bytes(gzip.compress(text(1, "a").encode())[:10])
    assert [line["event"] for line in log_lines(RunFolder(tmp_path))] == ["a"]
    (tmp_path / "log.jsonl.1.gz").write_bytes(gzip.compress(text(1, "a").encode()))
    assert [line["event"] for line in log_lines(RunFolder(tmp_path))] == ["a"]
    # Twin: an earlier part of this name that was compressed before.
    (tmp_path / "log.jsonl.1.gz").write_bytes(gzip.compress(text(0, "b").encode()))
    assert [line["event"] for line in log_lines(RunFolder(tmp_path))] == ["b", "a"]


def test_parts_that_cannot_be_read_are_told_or_passed_over(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    assert log_lines(folder, passes_over=True) == []
    (tmp_path / "log.jsonl").write_text(text(4, "d"))
    (tmp_path / "log.jsonl.1.xz").write_bytes(b"\xfd7zXZ")
    (tmp_path / "log.jsonl.2").mkdir()
    (tmp_path / "log.jsonl.3").symlink_to(tmp_path / "nothing")
    (tmp_path / "log.jsonl.4.gz").write_bytes(gzip.compress(text(1, "a").encode())[:10])
    assert [line["event"] for line in log_lines(folder, passes_over=True)] == ["d"]
    with pytest.raises(RunFolderError, match="cannot be read"):
        log_lines(folder)


def test_a_line_that_no_run_writes_is_refused_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(text(1, "a") + "7\n")
    with pytest.raises(RunFolderError, match=r"log\.jsonl: line 2 is not one that a run writes"):
        read_lines(path)
    with pytest.raises(RunFolderError, match="cannot be read: No such file"):
        read_lines(tmp_path / "other.jsonl")


def test_a_pipe_in_the_place_of_a_log_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(RunFolderError, match=r"log\.jsonl cannot be read: it is a named pipe"):
        read_lines(tmp_path / "log.jsonl")
