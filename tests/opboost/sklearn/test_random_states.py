"""Random states: one seed is one sequence of bits, none is the system's, and anything else is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opboost.errors import ParameterError
from opboost.sklearn.random_states import bit_source, seed_of


@pytest.mark.parametrize("state", [0, 7, np.int64(7)])
def test_a_number_is_its_own_seed(state: Any) -> None:
    assert seed_of(state) == int(state)
    assert type(seed_of(state)) is int


def test_a_random_state_gives_the_same_seeds_again_and_moves_on() -> None:
    first, again = np.random.RandomState(3), np.random.RandomState(3)
    seeds = [seed_of(first), seed_of(first)]
    assert [seed_of(again), seed_of(again)] == seeds
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("state", [-1, 1.0, "7", np.random.default_rng(1)])
def test_another_state_is_refused(state: Any) -> None:
    with pytest.raises(ParameterError, match="random_state must be None, an integer of at least 0 or a RandomState"):
        seed_of(state)


def test_without_a_seed_bits_are_secure_and_with_one_they_come_again() -> None:
    assert seed_of(None) is None
    assert bit_source(None).is_secure
    assert not bit_source(4).is_secure
    assert bit_source(4).words(2).tolist() == bit_source(4).words(2).tolist()
