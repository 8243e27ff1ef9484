"""Reconnection: a job goes on with a peer that was started again, in the way of a job that was itself started again.

A broken connection between two programs that run on costs nothing (`protocols.transport.conversation`). A program that
was started again has lost what it heard, so all begin again from the handshake on: with what is in their run folders,
ledgers and stores, from which nothing is drawn or charged a second time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from parties.runs.run_log import RunLog
from protocols.errors import PeerRestarted
from protocols.transport.channel import Channel

T = TypeVar("T")

# How often peers may begin again while one process runs. Each time a peer finds out once more whether the ids are those
# that it has in mind, and which of the ids that it brings are common; a person decides whether it may do so more often.
MAX_RESTARTS = 8

# Among several peers, the news that one begins again goes round. Who begins again waits by chance up to so long, twice
# as long every time, until what is still said in earlier conversations is over: else each would set off the next one.
REST_S, LONGEST_REST_S = 0.1, 5.0


def with_restarts(channels: Sequence[Channel], work: Callable[[], T], log: RunLog) -> T:
    """Do a job's work from the handshake on, and again whenever a peer was started again.

    Raises
    ------
    PeerRestarted
        If that happened too often.
    """
    n_restarts = 0
    while True:
        try:
            return work()
        except PeerRestarted as error:
            n_restarts += 1
            if n_restarts > MAX_RESTARTS:
                raise
            log.step("begins again", f"{error}; this party begins again from the greeting on")
            if len(channels) > 1:
                time.sleep(random.uniform(0, min(REST_S * 2**n_restarts, LONGEST_REST_S)))
            for channel in channels:
                channel.begin_again(waits_anew=True)
