"""Columns that are learned through their noise are those that came with noise and whose release is known."""

from __future__ import annotations

import math

import numpy as np

from opboost.columns import OwnColumn, RankColumn, noised_sources
from opboost.denoise.channel import ColumnRelease
from opboost.privacy.domain import IntegerDomain
from opboost.privacy.order_preserving import GlobalMap

RANKS = np.array([0, 2, 1], np.uint32)


def released(epsilon: float, index: int) -> RankColumn:
    mechanism = GlobalMap(epsilon=epsilon, domain=IntegerDomain(1, 3))
    return RankColumn("shop", index, f"x{index}", RANKS, 3, ColumnRelease(mechanism, None, np.arange(3)))


def test_of_all_columns_those_with_noise_whose_release_is_known_are_sources() -> None:
    columns = [
        OwnColumn("age", np.arange(3.0)),
        RankColumn("shop", 0, "x0", RANKS, 3),
        released(0.5, 1),
        released(math.inf, 2),
        released(2.0, 3),
    ]
    found = noised_sources(columns)
    assert {number: source.release.mechanism.epsilon for number, source in found.items()} == {2: 0.5, 4: 2.0}
    assert found[2].ranks is RANKS
