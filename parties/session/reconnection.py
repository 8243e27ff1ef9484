"""Reconnection: a job goes on with a peer that was started again, in the way of a job that was itself started again.

A broken connection between two programs that run on costs nothing (`protocols.transport.conversation`). A program that
was started again has lost what it heard, so all begin again from the handshake on: with what is in their run folders,
ledgers and stores, from which nothing is drawn or charged a second time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from parties.runs.run_log import RunLog
from protocols.errors import PeerAborted, PeerLost, PeerRestarted, UnexpectedMessage
from protocols.transport.channel import Channel

T = TypeVar("T")

# How often peers may begin again while one process runs. Each time a peer finds out once more whether the ids are those
# that it has in mind, and which of the ids that it brings are common; a person decides whether it may do so more often.
MAX_RESTARTS = 8

# Among several peers, the news that one begins again goes round. Who begins again waits by chance up to so long, twice
# as long every time, until what is still said in earlier conversations is over: else each would set off the next one.
REST_S, LONGEST_REST_S = 0.1, 5.0


@dataclass(slots=True)
class Restarts:
    """How often peers began again, or left, after ids were compared, in all jobs that share this count."""

    n: int = 0

    def count(self, error: Exception) -> None:
        """Count one more time.

        Raises
        ------
        UnexpectedMessage
            If that was once too often: who is away may come back by itself, who comes again and again may not.
        """
        self.n += 1
        if self.n > MAX_RESTARTS:
            raise UnexpectedMessage(
                f"{error}. That was the {self.n}th time in this process; at most {MAX_RESTARTS} times it begins again "
                "by itself, since each time a peer finds out more about ids. Start it again if that is meant to be"
            ) from None


def with_restarts(
    channels: Sequence[Channel], work: Callable[[], T], log: RunLog, restarts: Restarts | None = None
) -> T:
    """Do a job's work from the handshake on, and again whenever a peer was started again.

    Parameters
    ----------
    channels : sequence of Channel
    work : callable
    log : RunLog
    restarts : Restarts, optional
        Where ids are compared and the job may itself be begun again: counts over all its attempts.

    Raises
    ------
    PeerRestarted
        If that happened too often. Whoever breaks first connections on the way causes it, too.
    UnexpectedMessage
        With `restarts`, if it happened too often after ids were compared, or a peer left too often then.
    """
    n_begun = 0
    while True:
        n_begun, before = n_begun + 1, _n_compared(channels)
        try:
            return work()
        except (PeerLost, PeerAborted) as error:
            if restarts is not None and _n_compared(channels) > before:
                restarts.count(error)
            if not isinstance(error, PeerRestarted) or n_begun > MAX_RESTARTS:
                raise
            log.step("begins again", f"{error}; this party begins again from the greeting on")
        if len(channels) > 1:
            time.sleep(random.uniform(0, min(REST_S * 2**n_begun, LONGEST_REST_S)))
        for channel in channels:
            channel.begin_again(waits_anew=True)


def _n_compared(channels: Sequence[Channel]) -> int:
    return sum(channel.traffic.n_compared for channel in channels)
