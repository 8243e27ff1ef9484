"""External sort: every row comes back once, in order, with its position, and few of them are read at a time."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.alignment import sorted_rows
from protocols.alignment.sorted_rows import ExternalSort, as_words, first_bits

RNG = np.random.default_rng(1)


@pytest.mark.parametrize("n_rows", [0, 1, 15, 16, 17, 1000])
@pytest.mark.parametrize("key", [slice(None), slice(2, 4)])
def test_rows_ascend_by_their_key_and_keep_their_positions(
    monkeypatch: pytest.MonkeyPatch, n_rows: int, key: slice
) -> None:
    monkeypatch.setattr(sorted_rows, "RUN_BITS", 4)
    rows = RNG.integers(0, 256, (n_rows, 5), np.uint8)
    found = ExternalSort(n_rows, 5, key=key)
    for positions in np.array_split(RNG.permutation(n_rows), 7):
        found.put(positions, rows[positions])
    for _ in range(2):
        pieces = list(found.ascending())
        places = np.concatenate([positions for positions, _ in pieces])
        assert sorted(places.tolist()) == list(range(n_rows))
        np.testing.assert_array_equal(np.concatenate([own for _, own in pieces]), rows[places])
        words = as_words(rows[places][:, key])
        assert (words[1:] >= words[:-1]).all()
        # Of 1000 rows a range has 16 on average, and never a third of all.
        assert n_rows < 1000 or max(len(own) for own, _ in pieces) < 50


@pytest.mark.parametrize(("n_rows", "n_range_bits"), [(1, 0), (1 << 16, 0), (1 << 20, 4), (1 << 26, 10), (1 << 30, 12)])
def test_runs_and_ranges_are_few_enough_to_note_where_each_range_of_each_run_begins(
    n_rows: int, n_range_bits: int
) -> None:
    assert ExternalSort(n_rows, 2).n_range_bits == n_range_bits
    assert (n_rows >> n_range_bits) <= 1 << 18


def test_first_bits_are_those_of_a_number_of_two_bytes() -> None:
    keys = np.array([[0, 1, 9], [128, 0, 9], [255, 255, 9]], np.uint8)
    assert first_bits(keys, 16).tolist() == [1, 32768, 65535]
    assert first_bits(keys, 2).tolist() == [0, 2, 3]
    assert first_bits(keys, 0).tolist() == [0, 0, 0]
