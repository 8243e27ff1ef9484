"""A clock that goes on when it is told to, and notes for how long its users wait."""

from __future__ import annotations


class FalseClock:
    """Seconds that pass by `now` being set, or by waiting.

    Attributes
    ----------
    now : float
    waits : list of float
    """

    def __init__(self, now: float = 1000.0) -> None:
        self.now = now
        self.waits: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds
