"""Session log: what a passive party was asked for and answered, counted by conversation and logged in few lines."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np

from parties.runs.run_log import RunLog
from parties.session.connections import throttled
from protocols.messages.prediction import Answers, Ask, RecordStatus

# Most seconds before a count is logged: a process that is killed loses no more than that.
LONGEST_WAIT_S = 60.0


@dataclass(slots=True)
class Tally:
    """Counts of one conversation's requests and answers.

    Attributes
    ----------
    n_requests, n_asked, n_answered, n_unknown, n_refused : int
        Requests, and records.
    n_routed_bits : int
        Exact bits that left.
    modes : set of str
    began : float or None
        When both sides had agreed, by the monotonic clock.
    """

    n_requests: int = 0
    n_asked: int = 0
    n_answered: int = 0
    n_unknown: int = 0
    n_refused: int = 0
    n_routed_bits: int = 0
    modes: set[str] = field(default_factory=set)
    began: float | None = None

    def count_request(self, ask: Ask) -> None:
        """Count a request before it is answered; its records count as refused unless `count_answers` follows."""
        self.n_requests += 1
        self.n_asked += len(ask.ids)
        self.n_refused += len(ask.ids)
        self.modes.add("desensitized" if ask.desensitized else "routed")

    def count_answers(self, ask: Ask, answers: Answers, n_bits: int) -> None:
        """Count the answers to the request that was counted last, before they leave."""
        n_answered, n_unknown, *_ = np.bincount(answers.status, minlength=len(RecordStatus)).tolist()
        self.n_answered += n_answered
        self.n_unknown += n_unknown
        self.n_refused -= n_answered + n_unknown
        self.n_routed_bits += 0 if ask.desensitized else n_answered * n_bits

    @property
    def answers(self) -> dict[str, int]:
        """Records, those that were answered, and exact bits, as lines of the log and metrics name them."""
        return {"records": self.n_asked, "answered": self.n_answered, "routed_bits": self.n_routed_bits}

    def add(self, later: Tally) -> None:
        """Count another conversation, too."""
        self.n_requests += later.n_requests
        self.n_asked += later.n_asked
        self.n_answered += later.n_answered
        self.n_unknown += later.n_unknown
        self.n_refused += later.n_refused
        self.n_routed_bits += later.n_routed_bits
        self.modes |= later.modes
        self.began = later.began if self.began is None else self.began

    def since(self, before: Tally) -> Tally:
        """The counts since an earlier copy of this tally; the modes are those of the whole conversation."""
        n_requests = self.n_requests - before.n_requests
        return Tally(
            n_requests=n_requests,
            n_asked=self.n_asked - before.n_asked,
            n_answered=self.n_answered - before.n_answered,
            n_unknown=self.n_unknown - before.n_unknown,
            n_refused=self.n_refused - before.n_refused,
            n_routed_bits=self.n_routed_bits - before.n_routed_bits,
            modes=set(self.modes) if n_requests else set(),
            began=self.began,
        )


class SessionLog:
    """Logs conversations: each in a line of its own, and many, as of a peer that comes and goes, several in one.

    What has waited for a minute is logged in any case, also of a conversation that goes on.

    Parameters
    ----------
    log : RunLog
    n_bits : int
        Bits per answered record.
    """

    def __init__(self, log: RunLog, n_bits: int) -> None:
        self._log, self._n_bits = log, n_bits
        self._n_sessions = self._n_logged = 0
        self._tally, self._ending = Tally(), ""
        # The part of the current conversation's counts that was logged.
        self._logged = Tally()
        self._waits_since: float | None = None
        self._write_throttled = throttled(self._write)

    def add(self, tally: Tally, ending: str) -> None:
        """Count a conversation that began, and how it ended."""
        self._n_sessions += 1
        self._tally.add(self.rest(tally))
        self._logged, self._ending = Tally(), ending
        self._write_throttled()

    def rest(self, tally: Tally) -> Tally:
        """The part of the current conversation's tally that is not logged yet."""
        return tally.since(self._logged)

    def write_due(self, tally: Tally) -> None:
        """Log counts that have waited for `LONGEST_WAIT_S`; to be called often, with the current tally."""
        rest = self.rest(tally)
        if not rest.n_requests and self._n_logged == self._n_sessions:
            return
        if self._waits_since is None:
            self._waits_since = time.monotonic()
        elif time.monotonic() - self._waits_since >= LONGEST_WAIT_S:
            if rest.n_requests:
                self._tally.add(rest)
                self._logged, self._ending = replace(tally), "goes on"
            self._write(is_at_hand=rest.n_requests > 0)

    def close(self) -> None:
        """Log what was counted and not logged."""
        if self._n_logged < self._n_sessions:
            self._write()

    def _write(self, *, is_at_hand: bool = False) -> None:
        tally, first, last = self._tally, self._n_logged + 1, self._n_sessions + is_at_hand
        assert tally.began is not None
        seconds = round(time.monotonic() - tally.began, 3)
        modes = " and ".join(sorted(tally.modes)) or "nothing asked"
        which = f"session {last}" if first == last else f"sessions {first} to {last}"
        self._log.step(
            "session",
            f"{which}: {tally.n_asked} records in {tally.n_requests} requests ({modes}), {tally.n_answered} "
            f"answered with {self._n_bits} bits each, {tally.n_unknown} unknown, {tally.n_refused} refused, "
            f"{tally.n_routed_bits} routed bits, {seconds:g} s; {self._ending}",
            **tally.answers,
            requests=tally.n_requests,
            unknown=tally.n_unknown,
            refused=tally.n_refused,
            bits_each=self._n_bits,
            session_seconds=seconds,
        )
        self._tally, self._n_logged, self._waits_since = Tally(), self._n_sessions, None
