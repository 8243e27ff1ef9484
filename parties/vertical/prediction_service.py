"""A passive party's prediction service: conversation after conversation with the active party, until it is stopped.

The active party listens; this side connects, and reconnects after every conversation. Whatever ends one conversation
(the active party is done, dies, is cut off, has other terms or breaks the protocol) ends that one alone.
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
from parties.session.connections import throttled
from parties.session.session_log import SessionLog, Tally
from parties.tables.data_files import parts
from parties.vertical.prediction_server import AnswerableRecords, Answerer, answer_session
from protocols.errors import ProtocolError
from protocols.messages.vertical import Hello
from protocols.transport.channel import Channel

# Seconds before the next attempt to connect: after a conversation, and at most, after several failed attempts.
PAUSE_S = 0.25
LONGEST_PAUSE_S = 8.0

# Seconds that an active party may take to close its port when it is done; before, a new attempt would find it again.
CLOSE_GRACE_S = 1.0

# A file that changed less than this many seconds ago may still be written to.
SETTLE_S = 1.0


_STOPPING = (signal.SIGTERM, signal.SIGINT)

# Seconds after which an exception that was lost is raised again.
_RERAISE_DELAY_S = 0.05

# Seconds that a request may take to finish after a stop signal: sending blocks if the peer reads nothing.
FINISH_TIMEOUT_S = 10.0


class StopSignals:
    """Context in which the first SIGTERM or SIGINT raises `Stopped`; later ones are ignored, so that closing ends."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}
        self._is_shielded = False
        self._received: int | None = None
        self._hook = sys.unraisablehook

    def __enter__(self) -> Self:
        self._before = {signal_number: signal.signal(signal_number, self._stop) for signal_number in _STOPPING}
        self._before[signal.SIGALRM] = signal.signal(signal.SIGALRM, self._raise_if_stopped)
        sys.unraisablehook = self._raise_again
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0)
        sys.unraisablehook = self._hook
        for signal_number, handler in self._before.items():
            signal.signal(signal_number, handler)
        return kind is Stopped

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Delay `Stopped` until the block has finished, by `FINISH_TIMEOUT_S` at most."""
        if self._is_shielded:
            yield
            return
        self._raise_if_stopped()
        self._is_shielded = True
        try:
            yield
        finally:
            self._is_shielded = False
            signal.setitimer(signal.ITIMER_REAL, 0)
        self._raise_if_stopped()

    def _stop(self, number: int, frame: FrameType | None) -> None:
        for signal_number in _STOPPING:
            signal.signal(signal_number, signal.SIG_IGN)
        self._received = number
        if not self._is_shielded:
            raise Stopped(number)
        signal.setitimer(signal.ITIMER_REAL, FINISH_TIMEOUT_S)

    def _raise_if_stopped(self, *_: object) -> None:
        if self._received is not None:
            raise Stopped(self._received)

    def _raise_again(self, lost: sys.UnraisableHookArgs) -> None:
        """Raise `Stopped` again if it was lost in a callback from C, such as a compiler cache's, which drops errors."""
        if not isinstance(lost.exc_value, Stopped) or self._received is None:
            self._hook(lost)
            return
        signal.setitimer(signal.ITIMER_REAL, _RERAISE_DELAY_S)


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
        """The file's current records; the records read before, if the file cannot be read.

        A file that is being written is left for a later call: it must not change for `SETTLE_S` before it is read, nor
        while it is read. A file that is moved into place is complete at any time.
        """
        signature = _signature(self._path)
        if signature == self._known:
            return self.records
        if signature is not None and (age_s := time.time() - signature[0] / 1e9) < SETTLE_S:
            time.sleep(min(SETTLE_S, SETTLE_S - age_s))
            if _signature(self._path) != signature:
                return self.records
        try:
            records = self._read()
        except (PartyError, OpBoostError) as error:
            self._known = signature
            self._log.step(
                "data", f"the data file has changed and is not used: {error}. The records read before serve on"
            )
            return self.records
        if _signature(self._path) == signature:
            self._known, self.records = signature, records
            self._log.step("data", f"the data file has changed and was read again: {len(records.ids)} records")
        return self.records


@dataclass(slots=True)
class Totals:
    """Counts of a service: conversations, requests and records."""

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
    """Answer the active party's conversations; returns when the process is told to stop.

    The log has a line per conversation, throttled where there are many, and a line per minute of a long one. The reason
    why no conversation could begin is logged when it changes, throttled too.
    """
    totals, tally, pause_s, last_ending = Totals(), Tally(), PAUSE_S, ""
    sessions, wait = SessionLog(log, answerer.n_bits), throttled(partial(log.step, "waiting"))

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
                pause_s, last_ending = PAUSE_S, ""
            elif ending != last_ending:
                last_ending = ending
                wait(f"no conversation began; {channel.peer} is looked for again. {ending}")
            _wait_until_gone(channel)
            # Before the pause: what is left of this conversation must not be delivered to whoever listens there next.
            with signals.shielded():
                channel.reset()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
    return totals


@contextmanager
def _all_counted(sessions: SessionLog, totals: Totals, log: RunLog) -> Iterator[None]:
    """Log the totals at the end of the service, also after an error."""
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
    """Wait up to `CLOSE_GRACE_S` for the active party to close its port; a new connection would find it there again."""
    deadline = time.monotonic() + CLOSE_GRACE_S
    with suppress(ProtocolError):
        while time.monotonic() < deadline:
            channel.check()
            time.sleep(0.01)


def _signature(path: Path) -> tuple[int, ...] | None:
    """Fingerprint of a table's files: the last time of change, then sizes and inodes; None if there are no files."""
    try:
        stats = [os.stat(part) for part in parts(path)]
    except (OSError, TableError):
        return None
    return max(stat.st_mtime_ns for stat in stats), *(
        number for stat in stats for number in (stat.st_size, stat.st_ino)
    )
