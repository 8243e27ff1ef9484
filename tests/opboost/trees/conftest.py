"""How many threads the tree core's compiled loops take."""

from __future__ import annotations

from collections.abc import Iterator

import numba
import pytest


@pytest.fixture
def every_thread() -> Iterator[None]:
    """As many threads as there are, also in a module whose tests take one."""
    before = numba.get_num_threads()
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)
    yield
    numba.set_num_threads(before)
