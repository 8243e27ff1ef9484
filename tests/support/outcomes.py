"""What parties return or raise that work at the same time, each in a thread."""

from __future__ import annotations

import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import pytest

# What takes longer hangs, on however slow a machine.
LIMIT_S = 120


def outcomes_of(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    """What each call returned or raised, all of them running at once, each in a thread of its own."""
    found: dict[str, Any] = {}

    def run(name: str, call: Callable[[], Any]) -> None:
        try:
            found[name] = call()
        except BaseException as error:
            found[name] = error

    threads = [threading.Thread(target=run, args=item, name=item[0], daemon=True) for item in calls.items()]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + LIMIT_S
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    missing = sorted(set(calls) - set(found))
    assert not missing, f"still waiting after {LIMIT_S} s: {missing}\n{_stacks_of_all_threads()}"
    return found


def _stacks_of_all_threads() -> str:
    """Where every thread is: one that waits may wait for a thread of an earlier test."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {names.get(ident, ident)}:\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()
    )


@pytest.fixture(scope="session")
def outcomes() -> Callable[[Mapping[str, Callable[[], Any]]], dict[str, Any]]:
    """Run several parties at once, none of which may hang."""
    return outcomes_of
