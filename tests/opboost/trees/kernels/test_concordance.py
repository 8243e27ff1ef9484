"""Concordant pairs: those of a comparison of all pairs, ties counting half."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from opboost.trees.kernels.concordance import count_pairs

Row = tuple[int, bool, int]


def slow(rows: list[Row]) -> tuple[int, float]:
    """One pair at a time: of a row with an event and one that outlives it."""
    n_pairs, n_ordered = 0, 0.0
    for one, other in combinations(rows, 2):
        for (time, is_event, place), (later, is_later_event, later_place) in ((one, other), (other, one)):
            outlives = later > time or (later == time and not is_later_event)
            if is_event and outlives:
                n_pairs += 1
                n_ordered += 1.0 if later_place > place else 0.5 if later_place == place else 0.0
    return n_pairs, n_ordered


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(1, 6), st.booleans(), st.integers(0, 4)), min_size=1, max_size=25))
def test_pairs_are_counted_as_one_by_one(rows: list[Row]) -> None:
    rows = sorted(rows, key=lambda row: (-row[0], row[1]))
    times, is_event, places = (np.array(part) for part in zip(*rows, strict=True))
    found = count_pairs(times.astype(float), is_event.astype(np.bool_), places.astype(np.int64), 5)
    assert tuple(found) == slow(rows)
