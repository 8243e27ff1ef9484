"""Small sets that are merged say of each record which of them it is in, and take no memory per record."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from parties.ledger import small_sets
from parties.ledger.small_sets import SmallSets
from parties.tables.key_sets import NAME, NAME_BYTES
from tests.support.numbered_names import names

SETS = st.lists(st.sets(st.integers(0, 12)), max_size=8)


@given(SETS, st.sampled_from([1, 3, 99]), st.sampled_from([1, 4, 99]), st.booleans())
def test_each_record_is_in_the_sets_that_have_it(
    sets: list[set[int]], window: int, run_names: int, asks_between: bool
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(small_sets, "WINDOW_ROWS", window)
        patch.setattr(small_sets, "RUN_NAMES", run_names)
        small, asked = SmallSets(NAME), [0, 2, 3, 4, 7, 12, 13]
        for number, members in enumerate(sets):
            small.add(names(sorted(members)), number)
            if asks_between:
                small.runs()
        found = []
        for rows, of_rows in small.sets_of(names(asked)):
            assert len(set(rows.tolist())) == len(rows)
            found += [(asked[row], number) for row, number in zip(rows.tolist(), of_rows.tolist(), strict=True)]
        assert sorted(found) == [(one, number) for one in asked for number, held in enumerate(sets) if one in held]
        assert sum(map(len, small.runs())) == sum(map(len, sets))


@pytest.mark.parametrize("run_names", [1 << 12, 1 << 30])
def test_many_small_sets_take_no_memory_per_record(monkeypatch: pytest.MonkeyPatch, run_names: int) -> None:
    """Runs that never go to disk would hold each name and its set."""
    monkeypatch.setattr(small_sets, "RUN_NAMES", run_names)
    monkeypatch.setattr("protocols.private_files.MEMORY_BYTES", 1 << 12)
    n_names, generator, small = 1 << 17, np.random.default_rng(0), SmallSets(NAME)
    tracemalloc.start()
    try:
        for number in range(n_names >> 8):
            small.add(np.sort(np.frombuffer(generator.bytes(NAME_BYTES << 8), NAME)), number)
        small.runs()
        per_name = tracemalloc.get_traced_memory()[1] / n_names
    finally:
        tracemalloc.stop()
    assert per_name < 4 if run_names == 1 << 12 else per_name > NAME_BYTES + 8
