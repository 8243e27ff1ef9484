"""The log: what was done and what left, as bytes counted and hashed, never as values."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
import signal
import sys
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.errors import RunFolderError, Stopped
from parties.reports.log_lines import log_lines
from parties.runs.run_folder import RunFolder
from parties.runs.run_log import LOGGED_IN_FULL, EventThrottle, RunLog
from protocols.messages.prediction import Ask
from protocols.messages.vertical import Done, RankChunk
from protocols.transport.codec import encode
from protocols.transport.memory import memory_pair


@pytest.fixture
def spoken() -> list[str]:
    return []


@pytest.fixture
def log(tmp_path: Path, spoken: list[str]) -> Iterator[RunLog]:
    log = RunLog(tmp_path, echo=spoken.append)
    yield log
    log.close()


def lines(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_step_is_a_line_for_machines_and_a_sentence_for_people(
    log: RunLog, tmp_path: Path, spoken: list[str]
) -> None:
    log.step("listening", "bank waits for shop", port=5555)
    (line,) = lines(tmp_path)
    assert (line["event"], line["message"], line["port"]) == ("listening", "bank waits for shop", 5555)
    assert (tmp_path / "log.txt").read_text() == f"{line['time']} bank waits for shop\n"
    assert spoken == ["bank waits for shop"]


def test_progress_of_an_earlier_job_is_gone_when_another_begins(log: RunLog, tmp_path: Path) -> None:
    log.progress("predicting", 3, 3)
    assert json.loads((tmp_path / "progress.json").read_text())["step"] == "predicting"
    RunLog(tmp_path).close()
    assert not (tmp_path / "progress.json").exists()


def test_a_signal_whose_exception_was_lost_is_raised_at_the_next_line_of_the_main_thread(
    log: RunLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that was told to stop in such a moment went on to the end, with exit code 0."""

    class Cell:
        pass

    def told(_: object) -> None:
        Stopped.received = signal.SIGTERM
        raise Stopped(signal.SIGTERM)

    monkeypatch.setattr(Stopped, "received", None)
    cell = Cell()
    watch = weakref.ref(cell, told)
    monkeypatch.setattr(sys, "unraisablehook", lambda lost: None)
    del cell
    assert watch() is None
    with ThreadPoolExecutor() as pool:
        pool.submit(log.step, "peer", "another thread has nobody to tell").result()
    with pytest.raises(Stopped) as ended:
        log.step("begun", "the first step afterwards")
    assert ended.value.code == 143
    with pytest.raises(Stopped):
        log.sent("shop")("done", encode(Done()))
    try:
        raise Stopped(signal.SIGTERM)
    except Stopped:
        # What is on its way already is not raised again by what it does on the way.
        log.step("goodbye", "told the shop")
    assert [line["event"] for line in lines(tmp_path)] == ["peer", "begun", "sent", "goodbye"]


def test_a_step_may_name_a_file_whose_name_is_no_text(log: RunLog, tmp_path: Path) -> None:
    log.step("finished", "the run is in caf\udce9, beside zo\u00eb's for 5 \u20ac")
    assert (tmp_path / "log.txt").read_text(encoding="utf-8").endswith("caf\\udce9, beside zo\u00eb's for 5 \u20ac\n")
    assert lines(tmp_path)[0]["message"].startswith("the run is in caf\udce9,")


def test_every_sent_message_is_a_line_with_the_size_and_digest_of_the_bytes_that_left(
    log: RunLog, tmp_path: Path, spoken: list[str]
) -> None:
    messages = [RankChunk(column=0, start=0, ranks=np.arange(9, dtype=np.uint16)), Done()]
    channel, _ = memory_pair("bank", "shop")
    channel.traffic.on_send = log.sent("shop")
    for message in messages:
        channel.send(message)
    sent = [b"".join(bytes(frame) for frame in encode(message)) for message in messages]
    found = [
        {key: line[key] for key in ("event", "number", "peer", "kind", "bytes", "sha256")} for line in lines(tmp_path)
    ]
    assert found == [
        {
            "event": "sent",
            "number": i + 1,
            "peer": "shop",
            "kind": message.kind,
            "bytes": len(data),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        for i, (message, data) in enumerate(zip(messages, sent, strict=True))
    ]
    assert sum(line["bytes"] for line in lines(tmp_path)) == channel.traffic.sent_bytes
    assert spoken == []


def test_messages_to_all_peers_are_numbered_together(log: RunLog, tmp_path: Path) -> None:
    for peer in ("shop", "post", "shop"):
        log.sent(peer)("done", encode(Done()))
    assert [(line["number"], line["peer"]) for line in lines(tmp_path)] == [(1, "shop"), (2, "post"), (3, "shop")]


def test_what_was_sent_is_not_in_the_log(log: RunLog, tmp_path: Path) -> None:
    log.sent("shop")("ask", encode(Ask(ids=("customer-4711",), desensitized=False)))
    log.close()
    assert len(lines(tmp_path)) == 1
    assert all(b"4711" not in path.read_bytes() for path in tmp_path.iterdir())


def test_a_line_is_on_disk_as_soon_as_it_was_written(log: RunLog, tmp_path: Path) -> None:
    log.step("a", "first")
    assert len(lines(tmp_path)) == 1
    log.step("b", "second")
    assert [line["event"] for line in lines(tmp_path)] == ["a", "b"]


def test_a_later_job_appends_to_the_log_of_the_run(log: RunLog, tmp_path: Path) -> None:
    log.step("trained", "done")
    log.close()
    later = RunLog(tmp_path)
    later.step("predicted", "done")
    later.close()
    assert [line["event"] for line in lines(tmp_path)] == ["trained", "predicted"]


def test_whoever_has_something_left_to_note_is_heard_before_the_files_close(tmp_path: Path) -> None:
    log = RunLog(tmp_path)
    log.before_close.append(lambda: log.step("connection", "turned away twice"))
    log.close()
    assert "turned away twice" in (tmp_path / "log.txt").read_text()


def test_a_log_that_was_renamed_or_removed_is_begun_anew_at_its_name(log: RunLog, tmp_path: Path) -> None:
    log.step("a", "first")
    (tmp_path / "log.jsonl").rename(tmp_path / "log.jsonl.1")
    (tmp_path / "log.txt").unlink()
    log.step("b", "second")
    log.step("c", "third")
    assert [line["event"] for line in lines(tmp_path)] == ["b", "c"]
    assert json.loads((tmp_path / "log.jsonl.1").read_text())["event"] == "a"
    assert [line.split()[-1] for line in (tmp_path / "log.txt").read_text().splitlines()] == ["second", "third"]
    assert (tmp_path / "log.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_log_whose_folder_is_gone_ends_the_run(log: RunLog, tmp_path: Path) -> None:
    log.step("a", "first")
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    with pytest.raises(RunFolderError, match=r"log\.jsonl cannot be written"):
        log.step("b", "second")
    tmp_path.with_name("elsewhere").rename(tmp_path)


def test_parts_of_a_log_are_read_in_the_order_of_their_time(log: RunLog, tmp_path: Path) -> None:
    for name in ("log.jsonl-old", "log.jsonl.2.gz", "log.jsonl.1"):
        log.step(name, "a step")
        text = (tmp_path / "log.jsonl").read_bytes()
        (tmp_path / "log.jsonl").unlink()
        (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
        time.sleep(0.002)
    found = [line["event"] for line in log_lines(RunFolder(tmp_path))]
    assert found == ["log.jsonl-old", "log.jsonl.2.gz", "log.jsonl.1"]
    log.step("now", "a step")
    assert [line["event"] for line in log_lines(RunFolder(tmp_path))] == [*found, "now"]
    (tmp_path / "log.jsonl.2.gz").write_bytes(b"x")
    with pytest.raises(RunFolderError, match="cannot be read: it is damaged"):
        log_lines(RunFolder(tmp_path))


def test_a_services_messages_fill_no_disk_and_leave_a_digest_of_every_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("parties.runs.run_log.PART_BYTES", 2_000)
    parts: dict[str, bytes] = {}
    with contextlib.closing(RunLog(tmp_path, is_service=True)) as log:
        for k in range(203):
            log.sent("shop")("ask", encode(Ask(ids=(f"k{k}",), desensitized=False)))
            found = tmp_path / "messages.jsonl.1"
            if found.exists():
                parts[hashlib.sha256(found.read_bytes()).hexdigest()] = found.read_bytes()
            assert sum(path.stat().st_size for path in tmp_path.glob("messages*")) < 5_000
    assert {line["event"] for line in lines(tmp_path)} == {"messages"}
    assert {line["sha256"]: line["messages"] for line in lines(tmp_path)} == {
        digest: part.count(b"\n") for digest, part in parts.items()
    }
    text = b"".join(parts.values()) + (tmp_path / "messages.jsonl").read_bytes()
    assert [json.loads(line)["number"] for line in text.splitlines()] == list(range(1, 204))
    # A report lists those that are left.
    assert max(line.get("number", 0) for line in log_lines(RunFolder(tmp_path))) == 203


def test_a_throttle_counts_each_kind_of_step_and_begins_anew_every_day() -> None:
    throttle = EventThrottle()
    for day in ("2026-01-01", "2026-01-02"):
        logged = [n for n in range(1, 600) if throttle.is_due("connected", day)]
        assert logged == [*range(1, LOGGED_IN_FULL + 1), 128, 256, 512]
        assert throttle.is_due("failed", day)
