"""Noise that is drawn ahead, and coins that are dealt, serve once: in threads, and never in a forked process too."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
from numpy.typing import NDArray

from opboost.horizontal.splits.column_schedule import uniforms_ahead
from opboost.privacy.additive import RoundedGaussian
from opboost.privacy.coins import RecordCoins
from opboost.rng import DrawnAhead, secure
from tests.support.processes import in_a_fork

N_THREADS = 4


def by_threads(call: Callable[[], NDArray[np.int64]], n_calls: int) -> NDArray[np.int64]:
    """What so many calls of several threads at once return."""
    with ThreadPoolExecutor(N_THREADS) as pool:
        return np.concatenate(list(pool.map(lambda _: call(), range(n_calls))))


class Numbered:
    """Noise of which every draw can be told from every other, if other threads wait for the end of each."""

    def __init__(self) -> None:
        self.n_drawn = 0

    def draw(self, count: int) -> NDArray[np.int64]:
        first = self.n_drawn
        time.sleep(0.001)
        self.n_drawn = first + count
        return np.arange(first, first + count)


@pytest.mark.parametrize("is_locked", [True, False])
def test_threads_take_no_noise_twice(is_locked: bool) -> None:
    stock = DrawnAhead(Numbered().draw, secure(), n_ahead=4)
    if not is_locked:
        stock._lock = nullcontext()
    taken = by_threads(lambda: stock.take(3), 100)
    assert (len(np.unique(taken)) == len(taken)) == is_locked


class EverybodyInTime:
    """That all of 1000 records are eligible, which is known after a while."""

    def __array__(self, *_: object, **__: object) -> NDArray[np.bool_]:
        time.sleep(0.001)
        return np.ones(1000, np.bool_)


@pytest.mark.parametrize("is_locked", [True, False])
def test_threads_deal_every_record_once(is_locked: bool) -> None:
    deal = RecordCoins.geometric(8, ratio=1.0).deal(1000, rng=secure())
    if not is_locked:
        deal._lock = nullcontext()
    records = by_threads(lambda: deal.next_part(EverybodyInTime()), 8)
    assert (sorted(records.tolist()) == list(range(1000))) == is_locked


def noise() -> Callable[[int], object]:
    law, source = RoundedGaussian(50.0), secure()
    stock = DrawnAhead(lambda count: law.draw(count, rng=source), source, n_ahead=1000)
    return lambda count: stock.take(count).tolist()


def uniform_numbers() -> Callable[[int], object]:
    uniforms = uniforms_ahead(secure())
    return lambda count: uniforms(count).tolist()


@pytest.mark.parametrize("kept", [noise, uniform_numbers])
def test_what_was_drawn_ahead_is_not_used_in_a_forked_process_as_well(
    kept: Callable[[], Callable[[int], object]],
) -> None:
    taken = kept()
    taken(4)
    assert in_a_fork(lambda: taken(4)).startswith("ParameterError: this bit source was made in another process")
    taken(4)
