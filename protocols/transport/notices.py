"""Rate-limited notices of events that strangers can cause: each kind is logged once, and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping


class Notices:
    """Deduplicates events, so that a scanner does not fill a log.

    Parameters
    ----------
    on_event : callable
        Called with a sentence when it is noted for the first time, and at the end with the number of times.
    """

    def __init__(self, on_event: Callable[[str], None]) -> None:
        self._on_event = on_event
        self._n_times: Counter[str] = Counter()

    def note(self, event: str, n_times: int = 1) -> None:
        """An event happened, or several of a kind."""
        is_new = self._n_times[event] == 0
        self._n_times[event] += n_times
        if is_new and n_times:
            self._on_event(event)

    def note_all(self, events: Mapping[str, int]) -> None:
        """Events happened so many times."""
        for event, n_times in events.items():
            self.note(event, n_times)

    def close(self) -> None:
        """Report the counts."""
        for event, n_times in self._n_times.items():
            if n_times > 1:
                self._on_event(f"{event} ({n_times} times in all)")
