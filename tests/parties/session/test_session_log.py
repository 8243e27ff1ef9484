"""Session log: few lines that have every count, also of a conversation that goes on, and of an error's request."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parties.runs.run_log import RunLog
from parties.session import session_log
from parties.session.session_log import LONGEST_WAIT_S, SessionLog, Tally
from protocols.messages.prediction import Answers, Ask, RecordStatus


class Written:
    """A session log by a clock that is set, and what it has written."""

    def __init__(self, folder: Path, log: RunLog) -> None:
        self.sessions, self._path, self.now = SessionLog(log, 9), folder / "log.jsonl", 1000.0

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self._path.read_text().splitlines()]

    def counts(self, what: str) -> list[int]:
        return [line[what] for line in self.lines]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Written]:
    with closing(RunLog(tmp_path)) as log:
        made = Written(tmp_path, log)
        monkeypatch.setattr(session_log.time, "monotonic", lambda: made.now)
        yield made


def answered(tally: Tally, n_records: int, *, desensitized: bool = False) -> Tally:
    """Count another request, whose first record is unknown."""
    tally.began = 1000.0
    ask = Ask(ids=tuple(map(str, range(n_records))), desensitized=desensitized)
    status = np.full(n_records, RecordStatus.ANSWERED, np.uint8)
    status[0] = RecordStatus.UNKNOWN
    tally.count_request(ask)
    tally.count_answers(ask, Answers(status=status, bits=np.zeros((n_records, 2), np.uint8)), 9)
    return tally


def test_a_request_counts_as_refused_until_its_answers_are_counted() -> None:
    tally = Tally()
    tally.count_request(Ask(ids=("a", "b"), desensitized=True))
    assert (tally.n_requests, tally.n_asked, tally.n_refused, tally.modes) == (1, 2, 2, {"desensitized"})
    found = answered(Tally(), 4)
    assert (found.n_answered, found.n_unknown, found.n_refused, found.n_routed_bits) == (3, 1, 0, 27)
    assert answered(Tally(), 4, desensitized=True).n_routed_bits == 0


def test_a_conversation_that_goes_on_is_logged_after_a_minute_and_the_rest_at_its_end(written: Written) -> None:
    sessions, tally = written.sessions, answered(Tally(), 4)
    for seconds in (0, LONGEST_WAIT_S / 2):
        written.now = 1000 + seconds
        sessions.write_due(tally)
        assert written.lines == []
    answered(tally, 3)
    written.now = 1000 + LONGEST_WAIT_S
    for _ in range(3):
        sessions.write_due(tally)
        assert written.lines[0]["message"] == (
            "session 1: 7 records in 2 requests (routed), 5 answered with 9 bits each, 2 unknown, 0 refused, "
            "45 routed bits, 60 s; goes on"
        )
    # Idle for long: nothing waits. Then a minute counts from the next request on.
    written.now += 10 * LONGEST_WAIT_S
    sessions.write_due(answered(tally, 6))
    written.now += LONGEST_WAIT_S - 1
    sessions.write_due(tally)
    assert sessions.rest(tally).n_answered == 5
    assert len(written.lines) == 1
    sessions.add(tally, "done")
    assert written.counts("answered") == [5, 5]
    assert written.counts("routed_bits") == [45, 45]
    assert written.lines[1]["message"].startswith("session 1: 6 records in 1 requests (routed)")
    assert written.lines[1]["message"].endswith("; done")
    sessions.add(answered(Tally(), 2), "done")
    assert written.lines[2]["message"].startswith("session 2: 2 records in 1 requests")
    sessions.close()
    assert len(written.lines) == 3


def test_conversations_that_ended_wait_no_longer_for_others(written: Written) -> None:
    for _ in range(110):
        written.sessions.add(answered(Tally(), 2), "done")
    idle = Tally()
    for _ in range(2):
        written.sessions.write_due(idle)
        written.now += LONGEST_WAIT_S
    assert len(written.lines) == 101
    assert written.lines[-1]["message"].startswith("sessions 101 to 110: 20 records in 10 requests")
    written.sessions.add(answered(Tally(), 2), "done")
    at_hand = answered(Tally(), 3)
    for _ in range(2):
        written.sessions.write_due(at_hand)
        written.now += LONGEST_WAIT_S
    assert written.lines[-1]["message"].startswith("sessions 111 to 112: 5 records in 2 requests")
    written.sessions.add(at_hand, "done")
    written.sessions.close()
    assert written.lines[-1]["message"].startswith("session 112: 0 records in 0 requests (nothing asked)")
    assert sum(written.counts("answered")) == 111 + 2
