"""Whatever a coordinator says, a worker's compiled code reads and writes nothing beyond its arrays, nothing hangs, and
what is refused changes nothing (`tests.support.hostile_words`)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.hostile_words import TARGETS

# Messages per recipe; 100,000 take about two minutes each.
COUNT = os.environ.get("OPBOOST_HOSTILE_WORDS", "100")


@pytest.fixture(scope="module")
def run(request: pytest.FixtureRequest) -> subprocess.CompletedProcess[str]:
    return attack(request, COUNT, "all")


def attack(request: pytest.FixtureRequest, *arguments: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own; compiled code is kept from one run of the tests to the next, if anything is."""
    cache, name = getattr(request.config, "cache", None), "checked_indices"
    folder = cache.mkdir(name) if cache else request.getfixturevalue("tmp_path_factory").getbasetemp() / name
    call = [sys.executable, "-m", "tests.support.checked", "tests.support.hostile_words", *arguments]
    return subprocess.run(
        call,
        capture_output=True,
        text=True,
        check=False,
        timeout=3 * 3600,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "NUMBA_CACHE_DIR": str(folder)},
    )


def test_random_and_changed_messages_are_refused_without_a_trace_or_taken(
    run: subprocess.CompletedProcess[str],
) -> None:
    assert (run.returncode, run.stderr) == (0, "")
    found = {line["target"]: line for line in map(json.loads, run.stdout.splitlines())}
    assert set(found) == set(TARGETS)
    for name, line in found.items():
        refused = sum(n for kind, n in line.items() if kind.startswith("refused"))
        taken = sum(n for kind, n in line.items() if kind.startswith("taken"))
        assert refused > taken > 0, name
        assert refused + taken >= int(COUNT), name


def test_without_a_look_at_columns_and_cuts_an_index_is_out_of_bounds(request: pytest.FixtureRequest) -> None:
    run = attack(request, "--trusting", "--seed", "2", "10000", "hist")
    assert run.returncode != 0
    assert "IndexError: index" in run.stderr
