"""Progress callback interface."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with the name of a step, how much of it is done, and how much there is."""


def no_progress(step: str, done: int, total: int) -> None:
    """Ignore progress."""
