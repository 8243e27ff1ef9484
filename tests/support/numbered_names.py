"""Names of records that stand for numbers, in the order of these."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from parties.tables.key_sets import HALF_NAME, NAME, Names

HALF = HALF_NAME.itemsize


def names(numbers: Iterable[int]) -> Names:
    """The names of some numbers below 2^64, in their order; no two begin with the same half."""
    return paired((int(number), 1) for number in numbers)


def paired(halves: Iterable[tuple[int, int]]) -> Names:
    """Names that are made of two numbers each."""
    return np.array([first.to_bytes(HALF, "big") + rest.to_bytes(HALF, "big") for first, rest in halves], NAME)
