"""Heartbeats while a party works, so that its peers can tell a long step from a hung program.

`Channel.check` sends them (`protocols.transport.liveness`): work in steps calls it after a step, and for other work,
such as on a cluster, a thread calls it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from parties.progress import Progress
from protocols.errors import ProtocolError
from protocols.transport.channel import Channel

# Seconds between two heartbeats, and between two checks whether the peers are still connected.
HEARTBEAT_S = 0.5


def with_heartbeats(channels: Sequence[Channel], progress: Progress) -> Progress:
    """Progress callback that also sends heartbeats; a lost peer is noticed when it is next needed."""
    last_check = time.monotonic()

    def report(step: str, done: int, total: int) -> None:
        nonlocal last_check
        progress(step, done, total)
        if time.monotonic() - last_check > HEARTBEAT_S:
            last_check = time.monotonic()
            _check_all(channels)

    return report


@contextmanager
def heartbeats(channels: Sequence[Channel]) -> Iterator[Callable[[], None]]:
    """Send heartbeats from a thread during the block, which must not use the channels itself.

    They say that the block is not over, and not that it makes progress.

    Yields
    ------
    callable
        Raises if a peer ended the run or is gone, so that the block need not be finished.
    """
    is_over, failures, ends = threading.Event(), list[BaseException](), list[ProtocolError]()

    def look() -> None:
        try:
            while not is_over.wait(HEARTBEAT_S):
                ends.extend(_check_all(channels))
        except BaseException as error:
            failures.append(error)

    def raise_if_lost() -> None:
        if ends:
            raise ends[0]

    thread = threading.Thread(target=look, name="opboost heartbeats", daemon=True)
    thread.start()
    try:
        yield raise_if_lost
    finally:
        is_over.set()
        thread.join()
    if failures:
        raise failures[0]


def _check_all(channels: Sequence[Channel]) -> list[ProtocolError]:
    """Check all channels; returns the errors of the peers that are gone."""
    found = []
    for channel in channels:
        try:
            channel.check()
        except ProtocolError as error:
            found.append(error)
    return found
