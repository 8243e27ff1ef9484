"""While a party works its channels are looked at, whoever does the work; what goes wrong there is told afterwards."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from parties.errors import RunFolderError
from parties.session import heartbeats as module
from parties.session.heartbeats import heartbeats, with_heartbeats
from protocols.errors import PeerLost


class Watched:
    """A channel that notes who looks at it, and ends as it is told."""

    peer = "shop"

    def __init__(self, error: Exception | None = None) -> None:
        self.looks: list[str] = []
        self._error = error

    def check(self) -> None:
        self.looks.append(threading.current_thread().name)
        if self._error is not None:
            raise self._error


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEARTBEAT_S", 0.01)


def test_steps_are_reported_and_the_channels_looked_at_by_the_thread_that_works() -> None:
    steps: list[Any] = []
    first, second = Watched(), Watched(PeerLost("shop is gone"))
    report = with_heartbeats([first, second], lambda *step: steps.append(step))  # type: ignore[list-item]
    for done in range(5):
        report("encoding", done, 5)
        time.sleep(0.015)
    assert steps == [("encoding", done, 5) for done in range(5)]
    assert first.looks == second.looks != []
    assert set(first.looks) == {threading.current_thread().name}


def test_work_that_reports_nothing_is_looked_after_until_it_is_over() -> None:
    channel = Watched(PeerLost("shop is gone"))
    with heartbeats([channel]) as raise_end:  # type: ignore[list-item]
        time.sleep(0.2)
        # The work may be over here, since nobody is there for its result.
        with pytest.raises(PeerLost, match="shop is gone"):
            raise_end()
    n_looks = len(channel.looks)
    assert n_looks > 2
    assert threading.current_thread().name not in channel.looks
    time.sleep(0.05)
    assert len(channel.looks) == n_looks


def test_a_log_that_cannot_be_written_ends_the_run_after_the_work() -> None:
    channel, done = Watched(RunFolderError("the disk is full")), []

    def work() -> None:
        with heartbeats([channel]):  # type: ignore[list-item]
            time.sleep(0.1)
            done.append(True)

    with pytest.raises(RunFolderError, match="the disk is full"):
        work()
    assert done == [True]
    assert len(channel.looks) == 1


def test_what_goes_wrong_in_the_work_comes_first() -> None:
    channel = Watched(RunFolderError("the disk is full"))

    def fail() -> None:
        with heartbeats([channel]):  # type: ignore[list-item]
            time.sleep(0.05)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
