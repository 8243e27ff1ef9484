"""A task that runs twice at once, as Dask may have it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Barrier
from types import ModuleType
from typing import Any

import pytest

_WAIT_S = 10


def run_twice_at_once(monkeypatch: pytest.MonkeyPatch, module: ModuleType, task: Callable[[], Any]) -> list[Any]:
    """The results of two runs of a task of a module; both begin their file before either writes it, and end it so."""
    both, replacing = Barrier(2), vars(module)["replacing"]

    @contextmanager
    def meeting(path: Path, **options: Any) -> Iterator[Path]:
        with replacing(path, **options) as unfinished:
            both.wait(_WAIT_S)
            yield unfinished
            both.wait(_WAIT_S)

    monkeypatch.setattr(module, "replacing", meeting)
    with ThreadPoolExecutor(2) as threads:
        return [run.result() for run in [threads.submit(task) for _ in range(2)]]
