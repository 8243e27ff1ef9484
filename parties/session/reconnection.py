"""Reconnection: a job that loses a restarted peer begins again from the handshake, as after a restart of its own.

A broken connection between two running programs is repaired below (`protocols.transport.conversation`). A restarted
program has lost the messages that it received, so all parties begin again from the handshake. They use what is in their
run folders, ledgers and stores; nothing is drawn or charged a second time.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import TypeVar

from parties.runs.run_log import RunLog
from protocols.errors import PeerAborted, PeerLost, PeerRestarted, UnexpectedMessage
from protocols.transport.channel import Channel

T = TypeVar("T")

# Restarts of peers that one process accepts. With each, a peer can test another set of ids; a person decides whether it
# may do so more often.
MAX_RESTARTS = 8

# Random backoff among several peers, doubled every time: without it, the news of one restart would keep setting off the
# next one.
BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 5.0


@dataclass(slots=True)
class Restarts:
    """What peers may do a few times, counted over all attempts of a job.

    Attributes
    ----------
    n : int
        Restarts and departures after ids were compared.
    n_checks : dict of str to int
        Per peer, greetings that only checked whether both sides agree.
    """

    n: int = 0
    n_checks: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def carried_over(self, channels: Sequence[Channel]) -> Iterator[None]:
        """Begin with the checks of earlier attempts, and keep this one's."""
        for channel in channels:
            channel.traffic.n_checks = max(channel.traffic.n_checks, self.n_checks.get(channel.peer, 0))
        try:
            yield
        finally:
            self.n_checks |= {channel.peer: channel.traffic.n_checks for channel in channels}

    def count(self, error: Exception) -> None:
        """Count one more time.

        Raises
        ------
        UnexpectedMessage
            If there were more than `MAX_RESTARTS`.
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
    """Do a job's work from the handshake on, and begin again whenever a peer was restarted.

    Parameters
    ----------
    channels : sequence of Channel
    work : callable
    log : RunLog
    restarts : Restarts, optional
        Counts over all attempts of a job that compares ids and may itself be begun again.

    Raises
    ------
    PeerRestarted
        If peers were restarted too often; an attacker who breaks first connections can cause this, too.
    UnexpectedMessage
        With `restarts`, if peers were restarted or left too often after ids were compared.
    """
    with restarts.carried_over(channels) if restarts else nullcontext():
        return _begun_again(channels, work, log, restarts)


def _begun_again(channels: Sequence[Channel], work: Callable[[], T], log: RunLog, restarts: Restarts | None) -> T:
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
            time.sleep(random.uniform(0, min(BACKOFF_S * 2**n_begun, LONGEST_BACKOFF_S)))
        for channel in channels:
            channel.reset(renews_deadline=True)


def _n_compared(channels: Sequence[Channel]) -> int:
    return sum(channel.traffic.n_compared for channel in channels)
