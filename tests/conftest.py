"""Where the benchmark data sets lie, what tests skip without them, where files go, and how many threads loops take."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import numba
import pandas as pd
import pytest

# Set before a compiled loop runs: idle threads must not spin while other processes need the cores. Those that
# `opboost.trees.kernels` asks for took 6 % of the processors' time.
os.environ.setdefault("GOMP_SPINCOUNT", "0")

# Dask's workers are forked from the process of `tests.support.processes`; only
# `tests/parties/cluster/test_dask_cluster.py` starts them as usual.
os.environ.setdefault("DASK_DISTRIBUTED__WORKER__MULTIPROCESSING_METHOD", "forkserver")

# A file system in memory, where there is one with room: parties sync to disk at every charge, and tests need not wait.
if os.access("/dev/shm", os.W_OK) and shutil.disk_usage("/dev/shm").free > 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", "/dev/shm")

# How long an example takes is the business of the machine, which other processes share.
hypothesis.settings.register_profile("opboost", deadline=None)
hypothesis.settings.load_profile("opboost")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect tests without the garbage collector, which then looks only through what they make, and less often."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000, 10, 10)
        gc.enable()


SHARED_DATA = Path(__file__).parent.parent.parent / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of benchmark data sets beside the project; the test skips without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip(
            f"the benchmark data sets are not at {SHARED_DATA.parent.name}/{SHARED_DATA.name} beside the project"
        )
    return SHARED_DATA


@pytest.fixture(scope="session")
def adult(shared_data: Path) -> pd.DataFrame:
    """UCI's Adult with category columns as their codes in order of appearance in the sorted list."""
    frame = pd.read_csv(shared_data / "adult.csv.gz")
    for name in frame.columns.drop("split"):
        if not pd.api.types.is_numeric_dtype(frame[name]):
            frame[name] = frame[name].astype("category").cat.codes.astype(float)
    return frame


@pytest.fixture(scope="session")
def power_plant(shared_data: Path) -> pd.DataFrame:
    """UCI's Combined Cycle Power Plant."""
    return pd.read_csv(shared_data / "power_plant.csv.gz")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """On small tables waking a compiled thread takes longer than its work."""
    before = numba.get_num_threads()
    numba.set_num_threads(1)
    yield
    numba.set_num_threads(before)
