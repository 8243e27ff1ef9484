"""Application-level liveness: heartbeats of the program itself, and detection of a stalled peer.

ZeroMQ's own thread answers transport heartbeats while the program behind it hangs. So the thread that does a party's
work sends a `Heartbeat` now and then wherever it works in steps or waits. A party that waits, and hears nothing else
either, takes its peer for hung after `Timing.stall_s`. That is the bound on a single step of a peer's work, too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from protocols.messages.liveness import Heartbeat
from protocols.transport.channel import Timing
from protocols.transport.codec import Frame, encode

HEARTBEAT: tuple[Frame, ...] = tuple(encode(Heartbeat()))

# Most time between two heartbeats to a peer; shorter where `Timing.stall_s` is short.
BEAT_S = 60.0

# Heartbeats that a connection may have sent in its first second, and in every second after it.
MAX_BEATS, MAX_BEATS_PER_S = 1000, 100

# Most seconds between two checks that count as listening: a party that was busy has not listened.
_MAX_GAP_S = 1.0


def is_heartbeat(frames: Sequence[Frame]) -> bool:
    """Whether a message is a heartbeat without a mark."""
    return len(frames) == 1 and len(frames[0]) == len(HEARTBEAT[0]) and frames[0] == HEARTBEAT[0]


@dataclass(slots=True)
class HeartbeatTimer:
    """Timer of heartbeats to a peer, started by the first message.

    Parameters
    ----------
    timing : Timing
    """

    timing: Timing
    _due: float = math.inf

    def start(self) -> None:
        """Start anew: a message was sent."""
        self._due = time.monotonic() + min(BEAT_S, self.timing.stall_s / 4)

    @property
    def is_due(self) -> bool:
        return time.monotonic() >= self._due


@dataclass(slots=True)
class HeartbeatCount:
    """Heartbeats received over a connection; a flood of them is no sign of life."""

    _n: int = 0
    _began: float = field(default_factory=time.monotonic)

    def is_flood(self) -> bool:
        """Count one more; returns whether they are too many."""
        self._n += 1
        return self._n > MAX_BEATS + MAX_BEATS_PER_S * (time.monotonic() - self._began)


@dataclass(slots=True)
class Silence:
    """Timer of a peer's silence while this party listens.

    Parameters
    ----------
    stall_s : float
    """

    stall_s: float
    _checked: float = field(default_factory=time.monotonic)
    _lasted_s: float = 0.0

    def listen(self) -> None:
        """Count the time since the last check: nothing of the peer has come."""
        now = time.monotonic()
        self._lasted_s += min(now - self._checked, _MAX_GAP_S)
        self._checked = now

    def end(self) -> None:
        """Reset: the peer said something, or is not listened to."""
        self._checked, self._lasted_s = time.monotonic(), 0.0

    @property
    def is_stall(self) -> bool:
        return self._lasted_s > self.stall_s


class BlockedSend(Silence):
    """How long a message has waited for a peer that takes nothing: `listen` whenever it could not be sent."""

    def __init__(self, timing: Timing) -> None:
        super().__init__(timing.stall_s if timing.send_s is None else timing.send_s)

    @property
    def reason(self) -> str:
        """Error words for a peer that takes nothing."""
        return f"is connected, but has read nothing for {self.stall_s:g} s"


def stalled(stall_s: float) -> str:
    """Error words for a stalled peer."""
    return f"is connected, but its program has said nothing for {stall_s:g} s; it hangs, or is busy with a longer step"
