"""Columns of a tree in turn, and uniforms drawn ahead."""

from __future__ import annotations

import numpy as np
import pytest

from opboost import rng
from opboost.errors import ParameterError
from opboost.horizontal.splits.column_schedule import column_turns, uniforms_ahead


def test_turns_go_round():
    draws = uniforms_ahead(rng.seeded(0))
    turn = column_turns("cyclical", 5, 2, uniforms=draws)
    assert [turn().tolist() for _ in range(5)] == [[0, 1], [2, 3], [0, 4], [1, 2], [3, 4]]
    drawn = column_turns("random", 5, 2, uniforms=draws)
    seen = [tuple(sorted(drawn().tolist())) for _ in range(200)]
    assert {len(set(each)) for each in seen} == {2}
    assert len(set(seen)) == 10
    with pytest.raises(ParameterError, match="all, cyclical or random"):
        column_turns("some", 5, 2, uniforms=draws)


def test_noise_that_is_drawn_ahead_is_the_same_stream():
    drawn = uniforms_ahead(rng.seeded(3))
    pieces = np.concatenate([drawn(n) for n in (1, 5000, 7, 4096)])
    np.testing.assert_array_equal(pieces, uniforms_ahead(rng.seeded(3))(len(pieces)))
