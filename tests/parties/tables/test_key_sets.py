"""Sets of keys on disk are the sets that numpy makes of the same keys, whatever is looked at together."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.errors import OverBudget
from parties.ledger.budget import Budget, SpentBudgets
from parties.ledger.costs import Cost, Unit
from parties.storage.spool import ArraySpool, SpooledArray
from parties.tables import key_sets
from parties.tables.key_sets import HALF_NAME, NAME, NAME_BYTES, Names, distinct, is_member, kept_set, union, windows
from tests.support.numbered_names import names, paired

# Far apart, close together and equal.
KEYS = st.lists(st.one_of(st.integers(0, 2**64 - 1), st.integers(0, 9)), max_size=40)


@given(KEYS)
def test_distinct_keys_are_those_of_numpy(numbers: list[int]) -> None:
    found = names(numbers)
    np.testing.assert_array_equal(distinct(found), np.unique(found))


@pytest.fixture(params=[1, 3, 1 << 16])
def window(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(key_sets, "WINDOW_ROWS", request.param)
    return int(request.param)


def drawn(rng: np.random.Generator, n_names: int) -> Names:
    return np.frombuffer(rng.bytes(NAME_BYTES * n_names), NAME)


def stored(keys: Names) -> SpooledArray:
    spool = ArraySpool()
    return spool.view(spool.put(keys))


def test_sets_are_those_of_numpy(window: int) -> None:
    rng = np.random.default_rng(1)
    for n_keys in (0, 1, 7, 50):
        numbers = np.concatenate([drawn(rng, n_keys), names(rng.integers(0, 9, 5).tolist())])
        found = kept_set((numbers[start : start + 4] for start in range(0, len(numbers), 4)), len(numbers))
        assert isinstance(found, SpooledArray) == (len(numbers) > window)
        np.testing.assert_array_equal(found[:], np.unique(numbers))
        np.testing.assert_array_equal(np.concatenate(list(windows(found))), np.unique(numbers))
        sets = [stored(np.unique(numbers[i::3])) for i in range(3)]
        np.testing.assert_array_equal(np.concatenate(list(union(sets))), np.unique(numbers))
        for one in sets:
            asked = np.unique(numbers)
            np.testing.assert_array_equal(is_member(asked, one), np.isin(asked, one[:]))


PAIRS = st.lists(st.tuples(st.integers(0, 5), st.integers(1, 3)), max_size=15)


@given(PAIRS, st.lists(st.integers(0, 5), max_size=5), st.sampled_from([1, 4, 99]))
def test_half_names_stand_for_all_records_that_begin_with_them(
    pairs: list[tuple[int, int]], firsts: list[int], window: int
) -> None:
    """Every record of a set of half names is found, and a record that is known in full is not counted by its half."""
    whole, halves = np.unique(paired(pairs)), np.unique(names(firsts)).astype(HALF_NAME)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_sets, "WINDOW_ROWS", window)
        found = np.concatenate(list(union([whole, stored(halves)])))
        unmet = halves[~np.isin(halves, whole.astype(HALF_NAME))]
        np.testing.assert_array_equal(found, np.unique(np.concatenate([whole, unmet.astype(NAME)])))
        asked = paired((half, rest) for half in range(6) for rest in range(1, 4))
        expected = np.isin(asked.astype(HALF_NAME), halves)
        np.testing.assert_array_equal(is_member(asked, stored(halves)), expected)
        assert not is_member(asked, halves.astype(NAME)).any()


def test_no_sets_have_no_keys() -> None:
    assert [keys.tolist() for keys in union([])] == [[]]
    assert is_member(names([3]), stored(names([]))).tolist() == [False]


def cost_of(records: Any, column: str, epsilon: float) -> Cost:
    return Cost(
        column=column,
        loss=lambda points: points * epsilon,
        category_epsilon=epsilon / 2,
        point=0.5,
        unit=Unit(0.5, "half a point"),
        records=records,
    )


def add(balances: SpentBudgets, one: Cost, name: str) -> None:
    balances.add(balances.charge_of(one), name)


def test_large_sets_cost_each_record_what_small_ones_do(window: int) -> None:
    rng = np.random.default_rng(2)
    whole, looked_through, paid = SpentBudgets(), SpentBudgets(), np.zeros((30, 2))
    for i in range(12):
        numbers, column = np.unique(rng.integers(0, 30, 1 + i)), f"c{i % 2}"
        keys = names(numbers.tolist())
        add(whole, cost_of(keys, column, 0.1 + i), f"set {i}")
        add(looked_through, cost_of(stored(keys) if i % 3 else keys, column, 0.1 + i), f"set {i}")
        paid[numbers, i % 2] += 0.1 + i
        assert looked_through.n_records == whole.n_records == int((paid.sum(axis=1) > 0).sum())
        for c in range(2):
            assert looked_through.worst(f"c{c}") == pytest.approx((paid[:, c].max(), paid[:, c].max() / 2, 0))
        assert looked_through.worst_record() == pytest.approx((1.5 * paid.sum(axis=1).max(), 0))
    asked = names([1, 2, 4, 29])
    total = 1.5 * (paid[[1, 2, 4, 29]].sum(axis=1).max() + 2)
    costs = [cost_of(stored(asked), column, 1.0) for column in ("c0", "c1")]
    for balances in (whole, looked_through):
        balances.check(costs, Budget(per_record=total))
        with pytest.raises(OverBudget):
            balances.check(costs, Budget(per_record=total * 0.99))


def peak_per_key(call: Callable[[Iterator[Names], int], object], n_keys: int) -> float:
    """Bytes that numpy held at once for so many keys."""
    pieces = (drawn(np.random.default_rng(i), 1 << 12) for i in range(n_keys >> 12))
    tracemalloc.start()
    try:
        call(pieces, n_keys)
        return tracemalloc.get_traced_memory()[1] / n_keys
    finally:
        tracemalloc.stop()


def test_a_large_set_takes_no_memory_per_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "WINDOW_ROWS", 1 << 12)
    monkeypatch.setattr("protocols.private_files.MEMORY_BYTES", 1 << 12)
    assert peak_per_key(kept_set, 1 << 18) < 2
    assert peak_per_key(lambda pieces, _: distinct(np.concatenate(list(pieces))), 1 << 18) > NAME_BYTES
