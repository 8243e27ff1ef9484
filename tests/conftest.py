"""Where the benchmark data sets lie, what tests skip without them, and how many threads compiled loops take."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import numba
import pandas as pd
import pytest

# Set before a compiled loop runs: idle threads must not spin while other processes of a test need the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

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
