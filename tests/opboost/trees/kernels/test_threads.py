"""How many threads compiled loops take."""

from __future__ import annotations

import os
from pathlib import Path

import numba
import numpy as np
import pytest

from opboost.columns import OwnColumn
from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.kernels import threads
from opboost.trees.kernels.threads import CELLS_PER_THREAD, at_most_threads, idle_cores, n_threads, threads_for
from opboost.trees.losses import Logistic
from opboost.vertical import train

MOST = numba.config.NUMBA_NUM_THREADS


@pytest.mark.parametrize(("n", "taken"), [(None, MOST), (-1, MOST), (1, 1), (10**6, MOST)])
def test_a_bound_of_threads_holds_and_ends(n: int | None, taken: int) -> None:
    before = n_threads()
    numba.set_num_threads(MOST)
    with at_most_threads(n):
        assert n_threads() == taken
    assert n_threads() == MOST
    numba.set_num_threads(before)


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The file in which the system counts what runs, of an idle machine of four cores; this process runs one thread."""
    path = tmp_path / "loadavg"
    monkeypatch.setattr(threads, "TASKS", tmp_path)
    monkeypatch.setattr(threads, "INTERVAL", 0.0)
    _task(tmp_path, 1, "R")
    path.write_text("0.2 0.2 0.1 1/80 11206\n")
    monkeypatch.setattr(threads, "LOAD", path)
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    return path


def _task(folder: Path, number: int, state: str) -> None:
    (folder / str(number)).mkdir()
    (folder / str(number) / "stat").write_text(f"{number} (a) R (b) {state} 1 1")


@pytest.mark.skipif(MOST < 2, reason="needs two cores")
def test_only_threads_of_its_own_loops_that_look_for_work_are_idle(load: Path) -> None:
    load.write_text("0 0 0 3/80 1\n")
    with at_most_threads(2):
        assert idle_cores() == 2
        _task(load.parent, 2, "S")
        assert idle_cores() == 2
        _task(load.parent, 3, "R")
        assert idle_cores() == 3
        _task(load.parent, 4, "R")
        assert idle_cores() == 3
    with at_most_threads(1):
        assert idle_cores() == 2


def test_a_loop_does_not_look_all_the_time(load: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "INTERVAL", 1e9)
    with threads_for(100 * CELLS_PER_THREAD) as look:
        taken = n_threads()
        load.write_text("0 0 0 9/80 1\n")
        look()
        assert n_threads() == taken


@pytest.mark.parametrize(
    ("counted", "idle"), [("1/80", 4), ("0/80", 4), ("2/80", 3), ("4/80", 1), ("40/80", 1), ("x", 4), ("", 4)]
)
def test_cores_with_other_work_are_not_idle(load: Path, counted: str, idle: int) -> None:
    load.write_text(f"9.9 9.9 9.9 {counted} 11206\n" if counted else "")
    assert idle_cores() == idle
    load.unlink()
    assert idle_cores() == 4


def test_a_small_table_takes_one_thread_and_no_bound_is_raised(load: Path) -> None:
    with at_most_threads(1), threads_for(100 * CELLS_PER_THREAD):
        assert n_threads() == 1
    with threads_for(CELLS_PER_THREAD - 1):
        assert n_threads() == 1


@pytest.mark.skipif(MOST < 2, reason="needs two cores")
def test_a_loop_looks_for_idle_cores_again(load: Path) -> None:
    with threads_for(100 * CELLS_PER_THREAD) as look:
        for counted, once, twice in ((1, 4, 4), (3, 4, 2), (9, 2, 1), (1, 4, 4), (9, 4, 1)):
            load.write_text(f"0 0 0 {counted}/80 1\n")
            for taken in (once, twice):
                look()
                assert n_threads() == min(MOST, taken)
    assert n_threads() == MOST


@pytest.mark.parametrize(("n_jobs", "counted"), [(None, 1), (1, 1), (None, 9)], ids=["idle", "bounded", "busy"])
def test_training_takes_no_more_threads_than_it_may(load: Path, n_jobs: int | None, counted: int) -> None:
    rng = np.random.default_rng(0)
    columns = [OwnColumn(f"c{c}", rng.normal(size=40_000)) for c in range(4)]
    labels = (columns[0].values > 0) * 1.0
    seen: set[int] = set()
    load.write_text(f"0 0 0 {counted}/80 1\n")

    def note(_: RoundReport) -> None:
        seen.add(n_threads())

    parameters = BoostingParameters(n_estimators=2, n_jobs=n_jobs)
    train(columns, labels, np.ones(len(labels)), loss=Logistic(), parameters=parameters, on_round=note)
    assert seen == {min(MOST, 40_000 * 4 // CELLS_PER_THREAD) if n_jobs is None and counted == 1 else 1}
