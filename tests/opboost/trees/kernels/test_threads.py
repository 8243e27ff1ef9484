"""How many threads compiled loops take."""

from __future__ import annotations

import numba
import numpy as np
import pytest

from opboost.trees.boosting import BoostingParameters, RoundReport
from opboost.trees.kernels.threads import CELLS_PER_THREAD, at_most_threads, n_threads, threads_for
from opboost.trees.losses import Logistic
from opboost.vertical import OwnColumn, train

MOST = numba.config.NUMBA_NUM_THREADS


@pytest.mark.parametrize(("n", "taken"), [(None, MOST), (-1, MOST), (1, 1), (10**6, MOST)])
def test_a_bound_of_threads_holds_and_ends(n: int | None, taken: int) -> None:
    before = n_threads()
    numba.set_num_threads(MOST)
    with at_most_threads(n):
        assert n_threads() == taken
    assert n_threads() == MOST
    numba.set_num_threads(before)


def test_a_small_table_takes_one_thread_and_no_bound_is_raised() -> None:
    with at_most_threads(1), threads_for(100 * CELLS_PER_THREAD):
        assert n_threads() == 1
    with threads_for(CELLS_PER_THREAD - 1):
        assert n_threads() == 1


@pytest.mark.parametrize("n_jobs", [None, 1])
def test_training_takes_no_more_threads_than_it_may(n_jobs: int | None) -> None:
    rng = np.random.default_rng(0)
    columns = [OwnColumn(f"c{c}", rng.normal(size=40_000)) for c in range(4)]
    labels = (columns[0].values > 0) * 1.0
    seen: set[int] = set()

    def note(_: RoundReport) -> None:
        seen.add(n_threads())

    parameters = BoostingParameters(n_estimators=2, n_jobs=n_jobs)
    train(columns, labels, np.ones(len(labels)), loss=Logistic(), parameters=parameters, on_round=note)
    assert seen == {1 if n_jobs else min(MOST, 40_000 * 4 // CELLS_PER_THREAD)}
