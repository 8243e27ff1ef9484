"""Notices: each kind of event is told once, and at the end how often it happened."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from protocols.transport.notices import Notices


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3))))
def test_an_event_is_told_once_and_counted(events: list[tuple[str, int]]) -> None:
    told: list[str] = []
    notices, counts = Notices(told.append), Counter[str]()
    for event, n_times in events:
        notices.note(event, n_times)
        counts[event] += n_times
    assert sorted(told) == sorted(event for event, n in counts.items() if n)
    n_before = len(told)
    notices.close()
    assert sorted(told[n_before:]) == sorted(f"{event} ({n} times in all)" for event, n in counts.items() if n > 1)
