"""A passive party that stays up: one conversation of the active party after the other, until it is told to stop.

The active party listens, and comes when it wants to; this side connects, and looks for it again and again. Whatever
ends a conversation (the active party is done, dies, disappears, disagrees or talks nonsense) ends that one alone.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, Self

from opboost.errors import OpBoostError
from parties.errors import PartyError, Stopped, TableError
from parties.runs.run_log import RunLog
from parties.session.connections import seldom
from parties.session.session_log import SessionLog, Tally
from parties.tables.data_files import parts
from parties.vertical.prediction_server import AnswerableRecords, Answerer, answer_session
from protocols.errors import ProtocolError
from protocols.messages.vertical import Hello
from protocols.transport.channel import Channel

# How long to wait before the active party is looked for again: after a conversation, and at most, after several that
# failed before they began.
PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0

# How long an active party that is done may take to close its port; until then it would be found there again.
LEAVES_S = 1.0

# A file that changed less than this ago may still be written to.
SETTLES_S = 1.0


_STOPPING = (signal.SIGTERM, signal.SIGINT)

# After which an exception is raised again that was lost.
_AGAIN_S = 0.05

# How long a request may take to be finished when the process is told to stop: its sender may read no answer.
FINISHES_S = 10.0


class StopSignals:
    """Lets SIGTERM and SIGINT raise `Stopped` while it is entered: once, so that closing is not disturbed again."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._is_shielded = False
        self._told: int | None = None
        self._hook = sys.unraisablehook

    def __enter__(self) -> Self:
        self._before = {one: signal.signal(one, self._stop) for one in _STOPPING}
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._raise_if_told)
        sys.unraisablehook = self._come_again
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = self._hook
        for one, handler in self._before.items():
            signal.signal(one, handler)
        return kind is Stopped

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Finish what is done here before the process stops, if that takes no more than `FINISHES_S`."""
        if self._is_shielded:
            yield
            return
        self._raise_if_told()
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._raise_if_told()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        for one in _STOPPING:
            signal.signal(one, signal.SIG_IGN)
        self._told = number
        if not self._is_shielded:
            raise Stopped(number)
        signal.setitimer(signal.ITIMER_REAL, FINISHES_S)

    def _raise_if_told(self, *_: object) -> None:
        if self._told is not None:
            raise Stopped(self._told)

    def _come_again(self, lost: sys.UnraisableHookArgs) -> None:
        """Raise an exception again that nobody got: callbacks from C, as of a compiler's cache, pass none on."""
        if not isinstance(lost.exc_value, Stopped) or self._told is None:
            self._hook(lost)
            return
        signal.setitimer(signal.ITIMER_REAL, _AGAIN_S)


class RecordsFile:
    """A data file whose records are read again when it has changed.

    Parameters
    ----------
    path : Path
    read : callable
        Reads it.
    log : RunLog
    """

    def __init__(self, path: Path, read: Callable[[], AnswerableRecords], log: RunLog) -> None:
        self._path = path
        self._read = read
        self._log = log
        self._known = _signature(path)
        self.records = read()

    def refresh(self) -> AnswerableRecords:
        """The records as they are now; those that were read before, as long as the file cannot be read.

        A file that is being written is left for the next time: it must not have changed for a second, nor change while
        it is read. A file that was moved to its place is whole.
        """
        found = _signature(self._path)
        if found == self._known:
            return self.records
        if found is not None and (age_s := time.time() - found[0] / 1e9) < SETTLES_S:
            time.sleep(min(SETTLES_S, SETTLES_S - age_s))
            if _signature(self._path) != found:
                return self.records
        try:
            records = self._read()
        except (PartyError, OpBoostError) as error:
            self._known = found
            self._log.step(
                "data", f"the data file has changed and is not used: {error}. The records read before serve on"
            )
            return self.records
        if _signature(self._path) == found:
            self._known, self.records = found, records
            self._log.step("data", f"the data file has changed and was read again: {len(records.ids)} records")
        return self.records


@dataclass(slots=True)
class Totals:
    """What a service did: conversations, requests, and records."""

    n_sessions: int = 0
    n_requests: int = 0
    n_answered: int = 0
    n_refused: int = 0

    def add(self, tally: Tally) -> None:
        """Count a conversation."""
        self.n_sessions += 1
        self.n_requests += tally.n_requests
        self.n_answered += tally.n_answered
        self.n_refused += tally.n_refused


def serve_sessions(
    answerer: Answerer, channel: Channel, hello: Hello, *, file: RecordsFile, log: RunLog, signals: StopSignals
) -> Totals:
    """Answer the active party whenever it comes; returns when the process is told to stop.

    One line of the log per conversation; of many, one per several; of one that goes on, one per minute. Why none could
    begin is told once, and again when the reason changes, also seldom where that happens often.
    """
    totals, tally, pause_s, told = Totals(), Tally(), PAUSE_S, ""
    sessions, wait = SessionLog(log, answerer.n_bits), seldom(partial(log.step, "waiting"))

    @contextmanager
    def request() -> Iterator[None]:
        with signals.shielded():
            answerer.records = file.refresh()
            before = replace(tally)
            try:
                yield
            finally:
                asked = tally.since(before)
                log.measure(**asked.answers, requests=asked.n_requests, refused=asked.n_refused)
            sessions.write_due(tally)

    def write_due() -> None:
        with signals.shielded():
            sessions.write_due(tally)

    channel.traffic.on_wait = write_due
    with _all_counted(sessions, totals, log), suppress(Stopped):
        while True:
            tally, ending = Tally(), "told to stop"
            try:
                answer_session(answerer, channel, hello, tally=tally, around=request)
                ending = "done"
            except (OpBoostError, PartyError, ProtocolError) as error:
                ending = str(error)
                log.measure(errors=1)
            finally:
                if tally.began is not None:
                    totals.add(tally)
                    sessions.add(tally, ending)
            if tally.began is not None:
                pause_s, told = PAUSE_S, ""
            elif ending != told:
                told = ending
                wait(f"no conversation began; {channel.peer} is looked for again. {ending}")
            _wait_until_gone(channel)
            # Before the pause: what is left of this conversation must not be delivered to whoever listens there next.
            with signals.shielded():
                channel.begin_again()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return totals


@contextmanager
def _all_counted(sessions: SessionLog, totals: Totals, log: RunLog) -> Iterator[None]:
    """Log what was counted, and that this is all, however the service ends."""
    end = "stopped by an error"
    try:
        yield
        end = "told to stop"
    finally:
        sessions.close()
        log.step(
            "stopped",
            f"{end} after {totals.n_sessions} sessions with {totals.n_requests} requests: {totals.n_answered} records "
            f"answered, {totals.n_refused} refused",
        )


def _wait_until_gone(channel: Channel) -> None:
    """Give the active party time to close its port, where it would be found again, whatever it still says."""
    deadline = time.monotonic() + LEAVES_S
    with suppress(ProtocolError):
        while time.monotonic() < deadline:
            channel.check()
            time.sleep(0.01)


def _signature(path: Path) -> tuple[int, ...] | None:
    """What changes when a table's files do: the last time, then sizes, and which files they are; None if none are."""
    try:
        found = [os.stat(part) for part in parts(path)]
    except (OSError, TableError):
        return None
    return max(one.st_mtime_ns for one in found), *(number for one in found for number in (one.st_size, one.st_ino))
